"""When what a task waited for has ended: it may run, or it ends too, as the edge's rule says."""

from __future__ import annotations

from dibs.core.graph import Rule
from dibs.core.states import Reason, State
from dibs.core.task import MAX_LOSSES, HistoryEvent, Outcome, QueueState
from dibs.core.times import HOUR, MINUTE
from dibs.engines.topics import ended_topic, work_topic
from dibs.engines.values import Cancel, EnqueueOutcome
from dibs.testing.conformance.enqueue_after import AFTERWARDS, ENDS
from dibs.testing.conformance.harness import QUEUE, Harness, edges
from dibs.testing.conformance.subscribe import notifies

BLOCKED, PENDING, SCHEDULED = State.BLOCKED, State.PENDING, State.SCHEDULED
COMPLETED, CANCELLED, DEAD = State.COMPLETED, State.CANCELLED, State.DEAD


async def test_it_is_ready_from_the_end_of_what_it_waited_for(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    harness.later(HOUR)
    await harness.finish(need)
    record = await harness.record(follower)
    assert (record.state, record.ready_at, record.due_at) == (PENDING, harness.now, None), "blocked, it does not age"
    assert await harness.claim_ids(5) == [follower]


async def test_every_rule_on_every_end(harness: Harness) -> None:
    for rule, states in AFTERWARDS.items():
        for outcome, state in zip(ENDS, states, strict=True):
            need = await harness.add(priority=100)
            follower = await harness.follow(need, rule=rule)
            await harness.finish(need, outcome)
            assert await harness.state(follower) is state, (rule, outcome)
            assert await harness.is_open(follower) == [False]


async def test_what_ends_by_a_dependency_says_so(harness: Harness) -> None:
    need = await harness.add()
    cancelled, dead = await harness.follow(need), await harness.follow(need, rule=Rule.FAIL)
    harness.later(MINUTE)
    await harness.finish(need, Outcome.PERMANENT)
    for task_id, state, event in (
        (cancelled, CANCELLED, HistoryEvent.CANCELLED),
        (dead, DEAD, HistoryEvent.DEAD),
    ):
        record = await harness.record(task_id)
        assert (record.state, record.reason, record.finished_at) == (state, Reason.DEPENDENCY, harness.now)
        assert record.note == f"{need} is dead"
        (entry,) = await harness.engine.history(task_id)
        assert (entry.event, entry.at, entry.note) == (event, harness.now, record.note)
    assert await harness.engine.audit() == []


async def test_it_waits_for_all(harness: Harness) -> None:
    needs = await harness.add_many(3)
    follower = await harness.follow(*needs)
    for left, need in enumerate(needs, 1):
        assert await harness.state(follower) is BLOCKED
        await harness.finish(need)
        assert await harness.is_open(follower) == [False] * left + [True] * (3 - left)
    assert await harness.state(follower) is PENDING


async def test_one_bad_end_is_enough(harness: Harness) -> None:
    first, second = await harness.add_many(2)
    follower = await harness.follow(first, second)
    await harness.finish(first, Outcome.PERMANENT)
    assert await harness.state(follower) is CANCELLED
    assert await harness.is_open(follower) == [False, False]
    await harness.finish(second)
    assert await harness.state(follower) is CANCELLED
    assert await harness.events(follower) == [HistoryEvent.CANCELLED]


async def test_its_own_time_still_holds(harness: Harness) -> None:
    need = await harness.add()
    late, soon = await harness.follow(need, delay=HOUR), await harness.follow(need, delay=MINUTE)
    start = harness.now
    assert (await harness.record(late)).due_at == start + HOUR
    assert (await harness.claims(queues=("nowhere",))).next_due_in is None, "a blocked task falls due for nobody"
    harness.later(2 * MINUTE)
    await harness.finish(need)
    record = await harness.record(late)
    assert (record.state, record.due_at, record.ready_at) == (SCHEDULED, start + HOUR, start + HOUR)
    assert (await harness.record(soon)).ready_at == harness.now
    answer = await harness.claims(5)
    assert ([task.id for task in answer.tasks], answer.next_due_in) == ([soon], HOUR - 2 * MINUTE)
    harness.later(HOUR - 2 * MINUTE)
    assert await harness.claim_ids(5) == [late]


async def test_unblocked_tasks_are_never_refused(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    need = await harness.add(queue="elsewhere")
    followers = [await harness.follow(need) for _ in range(3)]
    await harness.add()
    await harness.finish(need)
    assert await harness.states(*followers) == [PENDING] * 3
    assert await harness.counts() == {PENDING: 4}


async def test_draining_queue_finishes_what_is_blocked_but_takes_no_more(harness: Harness) -> None:
    need = await harness.add(queue="elsewhere")
    follower = await harness.follow(need)
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    assert await harness.outcomes(harness.new(after=edges(need))) == [EnqueueOutcome.DRAINING]
    await harness.finish(need)
    assert await harness.claim_ids(5) == [follower]


async def test_paused_queue_unblocks_and_holds(harness: Harness) -> None:
    need = await harness.add(queue="elsewhere")
    follower = await harness.follow(need)
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    await harness.finish(need)
    assert await harness.state(follower) is PENDING
    assert await harness.claim(5) == []


async def test_what_goes_back_to_waiting_has_not_ended(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    for outcome in (Outcome.RELEASED, Outcome.FAILED, Outcome.SNOOZED):
        await harness.finish(need, outcome)
        assert await harness.state(follower) is BLOCKED
    await harness.take(need)
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert await harness.state(follower) is BLOCKED


async def test_cancelled_by_somebody(harness: Harness) -> None:
    running = await harness.start()
    waiting = await harness.add()
    followers = [await harness.follow(waiting), await harness.follow(running.id)]
    await harness.engine.act([Cancel(waiting), Cancel(running.id)], now=harness.now)
    assert await harness.states(*followers) == [CANCELLED, BLOCKED], "one that runs has not ended yet"
    await harness.settle(running, Outcome.CANCELLED)
    record = await harness.record(followers[1])
    assert (record.state, record.note) == (CANCELLED, f"{running.id} is cancelled")


async def test_lost_for_good(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need, rule=Rule.IF_FAILED)
    for _ in range(MAX_LOSSES):
        assert await harness.state(follower) is BLOCKED
        harness.later(HOUR)
        await harness.take(need)
        harness.later(HOUR)
        await harness.engine.rescue(now=harness.now)
    assert await harness.states(need, follower) == [DEAD, PENDING]


async def test_ends_travel_along_the_chain(harness: Harness) -> None:
    chain = [await harness.add()]
    for queue in ("a", "b", "c"):
        chain.append(await harness.follow(chain[-1], queue=queue))
    cleaner = await harness.follow(chain[-1], rule=Rule.IF_FAILED)
    await harness.finish(chain[0], Outcome.PERMANENT)
    assert await harness.states(*chain, cleaner) == [DEAD, CANCELLED, CANCELLED, CANCELLED, PENDING]
    notes = [(await harness.record(task_id)).note for task_id in chain[1:]]
    assert notes == [f"{chain[0]} is dead", f"{chain[1]} is cancelled", f"{chain[2]} is cancelled"]


async def test_within_one_batch_of_settlements_all_ends_count(harness: Harness) -> None:
    first, second = await harness.start(), await harness.start()
    follower = await harness.follow(first.id, second.id)
    await harness.settle(first)
    await harness.settle(second, Outcome.CANCELLED)
    assert await harness.state(follower) is CANCELLED


async def test_unblocking_leaves_no_trace_in_history(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need)
    await harness.finish(need)
    assert await harness.engine.history(follower) == []


async def test_unblocking_notifies(harness: Harness) -> None:
    need = await harness.start()
    await harness.follow(need.id, queue="other")
    assert await notifies(harness, work_topic("other"), harness.settle(need))


async def test_ends_of_dependents_notify(harness: Harness) -> None:
    need = await harness.start()
    await harness.follow(need.id, queue="other")
    assert await notifies(harness, ended_topic("other"), harness.settle(need, Outcome.PERMANENT))
    assert await notifies(harness, ended_topic(QUEUE), harness.follow(need.id)), "ended at the door"
