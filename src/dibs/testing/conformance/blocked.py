"""Blocked tasks and their prerequisites under the hands of people: cancel, edit, replay, purge, deleted queues."""

from __future__ import annotations

from dibs.core.graph import Rule
from dibs.core.states import Reason, State
from dibs.core.task import Edit, EndedBy, HistoryEvent, Outcome
from dibs.core.times import HOUR, MINUTE
from dibs.engines.topics import ended_topic
from dibs.engines.values import Cancel, Changed, EnqueueOutcome, Purge, Replay
from dibs.testing.conformance.harness import QUEUE, Harness
from dibs.testing.conformance.subscribe import notifies

BLOCKED, PENDING, SCHEDULED, RUNNING = State.BLOCKED, State.PENDING, State.SCHEDULED, State.RUNNING
COMPLETED, CANCELLED, DEAD = State.COMPLETED, State.CANCELLED, State.DEAD


async def test_cancel_ends_it_and_frees_its_prerequisites(harness: Harness) -> None:
    needs = await harness.add_many(2)
    follower = await harness.follow(*needs)
    cancel = harness.engine.act([Cancel(follower, "no")], actor="ada", now=harness.now)
    assert await cancel == [Changed.DONE]
    record = await harness.record(follower)
    assert (record.state, record.reason, record.note) == (CANCELLED, Reason.USER, "no")
    assert await harness.is_open(follower) == [False, False]
    assert (await harness.engine.edges([needs[0]], followers=100))[0].followers == []
    assert await harness.engine.act([Cancel(follower)], now=harness.now) == [Changed.WRONG_STATE]
    for need in needs:
        await harness.finish(need)
    assert await harness.state(follower) is CANCELLED


async def test_cancel_goes_down_the_chain(harness: Harness) -> None:
    need = await harness.add()
    middle = await harness.follow(need)
    last, cleaner = await harness.follow(middle), await harness.follow(middle, rule=Rule.RUN)
    await harness.engine.act([Cancel(middle, "no")], actor="ada", now=harness.now)
    assert await harness.states(need, middle, last, cleaner) == [PENDING, CANCELLED, CANCELLED, PENDING]
    record = await harness.record(last)
    assert (record.reason, record.note) == (Reason.DEPENDENCY, f"{middle} is cancelled")
    assert record.ended_by == EndedBy(middle, State.CANCELLED)
    (entry,) = await harness.engine.history(last)
    assert entry.actor in (None, ""), "nobody cancelled this one"
    assert len(await harness.engine.audit()) == 1


async def test_prerequisite_and_dependent_cancelled_in_one_call(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    outcomes = await harness.engine.act([Cancel(follower), Cancel(need)], now=harness.now)
    assert outcomes == [Changed.DONE, Changed.DONE]
    assert await harness.events(follower) == [HistoryEvent.CANCELLED]


async def test_edit_moves_its_time_and_keeps_it_blocked(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    edits = [Edit(id=follower, due_at=harness.now + HOUR, metadata={"a": 1}, deadline=harness.now + 2 * HOUR)]
    assert await harness.engine.act(edits, now=harness.now) == [Changed.DONE]
    assert await harness.engine.act(edits, now=harness.now) == [Changed.UNCHANGED]
    record = await harness.record(follower)
    assert (record.state, record.due_at, record.ready_at) == (BLOCKED, harness.now + HOUR, None)
    assert await harness.events(follower) == [HistoryEvent.EDITED]
    await harness.finish(need)
    assert await harness.state(follower) is SCHEDULED
    harness.later(HOUR)
    assert await harness.claim_ids(5) == [follower]


async def test_edit_brings_it_forward(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need, delay=HOUR)
    assert await harness.engine.act([Edit(id=follower, due_at=harness.now)], now=harness.now) == [Changed.DONE]
    record = await harness.record(follower)
    assert (record.state, record.due_at) == (BLOCKED, None)
    harness.later(MINUTE)
    await harness.finish(need)
    assert (await harness.record(follower)).ready_at == harness.now


async def test_settings_of_its_queue_are_those_when_it_is_unblocked(harness: Harness) -> None:
    need = await harness.add(queue="elsewhere")
    follower = await harness.follow(need, priority=30)
    await harness.set_queue(policy="strict")
    await harness.rerank()
    assert await harness.state(follower) is BLOCKED
    await harness.finish(need)
    urgent = await harness.add(priority=60)
    harness.later(100 * HOUR)
    newer = await harness.add(priority=40)
    assert await harness.claim_ids(3) == [urgent, newer, follower]


async def test_unfinished_tasks_are_not_purged(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    assert await harness.engine.act([Purge(need), Purge(follower)], now=harness.now) == [Changed.WRONG_STATE] * 2


async def test_a_purged_prerequisite_has_done_its_part(harness: Harness) -> None:
    need, other = await harness.add(priority=90), await harness.add()
    follower = await harness.follow(need, other)
    await harness.finish(need)
    assert await harness.engine.act([Purge(need)], now=harness.now) == [Changed.DONE]
    assert await harness.is_open(follower) == [False, True]
    await harness.finish(other)
    assert await harness.state(follower) is PENDING


async def test_a_purged_dependent_is_forgotten(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    await harness.engine.act([Cancel(follower)], now=harness.now)
    assert await harness.engine.act([Purge(follower)], now=harness.now) == [Changed.DONE]
    assert await harness.followers(need) == []
    await harness.finish(need)
    assert await harness.counts() == {COMPLETED: 1}


async def test_replayed_prerequisite_does_not_call_its_dependents_back(harness: Harness) -> None:
    need = await harness.add()
    followers = [await harness.follow(need), await harness.follow(need, rule=Rule.FAIL)]
    await harness.finish(need, Outcome.PERMANENT)
    assert await harness.engine.act([Replay(need)], now=harness.now) == [Changed.DONE]
    await harness.finish(need)
    assert await harness.states(*followers) == [CANCELLED, DEAD]


async def test_a_replayed_prerequisite_is_waited_for_again_by_new_tasks(harness: Harness) -> None:
    need = await harness.ended(Outcome.PERMANENT)
    await harness.engine.act([Replay(need)], now=harness.now)
    follower = await harness.follow(need)
    assert await harness.state(follower) is BLOCKED
    await harness.finish(need)
    assert await harness.state(follower) is PENDING


async def test_replay_of_one_dead_dependent_runs_it_without_waiting(harness: Harness) -> None:
    need, other = await harness.add_many(2)
    follower = await harness.follow(need, other, rule=Rule.FAIL)
    await harness.finish(need, Outcome.PERMANENT)
    harness.later(MINUTE)
    assert await harness.engine.act([Replay(follower)], now=harness.now) == [Changed.DONE]
    record = await harness.record(follower)
    assert (record.state, record.ready_at, record.reason, record.note) == (PENDING, harness.now, None, "")
    assert await harness.is_open(follower) == [False, False]


async def test_cancelled_by_dependency_is_not_replayed_alone(harness: Harness) -> None:
    need = await harness.ended(Outcome.PERMANENT)
    follower = await harness.follow(need)
    assert await harness.engine.act([Replay(follower)], now=harness.now) == [Changed.WRONG_STATE]


async def test_a_queue_with_blocked_tasks_is_not_deleted(harness: Harness) -> None:
    need = await harness.add(queue="elsewhere")
    await harness.follow(need)
    assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.WRONG_STATE


async def test_force_buries_blocked_tasks_too(harness: Harness) -> None:
    need = await harness.add(queue="elsewhere", priority=10)
    follower = await harness.follow(need, priority=90)
    assert await harness.engine.delete_queue(QUEUE, force=True, now=harness.now) is Changed.DONE
    record = await harness.record(follower)
    assert (record.state, record.reason) == (DEAD, Reason.QUEUE)
    assert await harness.is_open(follower) == [False]
    assert (await harness.record(need)).inherited == 0
    await harness.finish(need)
    assert await harness.state(follower) is DEAD


async def test_force_is_an_end_for_those_who_wait_elsewhere(harness: Harness) -> None:
    need = await harness.add()
    followers = [await harness.follow(need, queue="other"), await harness.follow(need, queue="other", rule=Rule.RUN)]
    delete = harness.engine.delete_queue(QUEUE, force=True, now=harness.now)
    assert await notifies(harness, ended_topic("other"), delete)
    assert await harness.states(*followers) == [CANCELLED, PENDING]
    assert (await harness.record(followers[0])).note == f"{need} is dead"


async def test_a_whole_chain_in_a_deleted_queue(harness: Harness) -> None:
    need = await harness.add()
    middle = await harness.follow(need)
    last = await harness.follow(middle)
    await harness.engine.delete_queue(QUEUE, force=True, now=harness.now)
    assert await harness.counts() != {}
    for task_id in (need, middle, last):
        record = await harness.record(task_id)
        assert (record.state, record.reason) == (DEAD, Reason.QUEUE), "the queue is the reason for all of them"
        assert len(await harness.events(task_id)) == 1


async def test_a_run_without_a_queue_to_go_back_to_is_an_end(harness: Harness) -> None:
    need = await harness.start()
    follower = await harness.follow(need.id, queue="other")
    await harness.engine.delete_queue(QUEUE, force=True, now=harness.now)
    assert await harness.states(need.id, follower) == [RUNNING, BLOCKED]
    await harness.settle(need, Outcome.FAILED)
    assert await harness.states(need.id, follower) == [DEAD, CANCELLED]


async def test_a_key_is_held_by_a_blocked_task(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need, key="k", window=0)
    harness.later(HOUR)
    assert await harness.outcomes(harness.new(key="k")) == [EnqueueOutcome.DUPLICATE]
    await harness.engine.act([Cancel(follower)], now=harness.now)
    assert await harness.outcomes(harness.new(key="k")) == [EnqueueOutcome.ENQUEUED]
