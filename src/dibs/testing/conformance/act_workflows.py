"""act on workflows: all their tasks are cancelled and replayed together."""

from __future__ import annotations

from msgspec import structs

from dibs.core.graph import Rule
from dibs.core.states import Reason, State
from dibs.core.task import HistoryEvent, Outcome, QueueState
from dibs.core.times import MINUTE
from dibs.engines.figures import Counter
from dibs.engines.topics import ended_topic, work_topic, worker_topic
from dibs.engines.values import Cancel, Changed, Replay
from dibs.testing.conformance.harness import QUEUE, WORKER, Harness, edges
from dibs.testing.conformance.subscribe import notifies
from dibs.testing.conformance.workflows import cancel, chain, counts, replay

BLOCKED, PENDING, RUNNING = State.BLOCKED, State.PENDING, State.RUNNING

COMPLETED, CANCELLED, DEAD = State.COMPLETED, State.CANCELLED, State.DEAD


async def test_cancel_ends_all_that_wait(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    stranger = await harness.follow(ids[2])
    await harness.finish(ids[0])
    assert await cancel(harness, workflow_id) is Changed.DONE
    assert await harness.states(*ids, stranger) == [COMPLETED, CANCELLED, CANCELLED, CANCELLED]
    for task_id in ids[1:]:
        record = await harness.record(task_id)
        assert (record.reason, record.note) == (Reason.USER, "no more")
        (entry,) = await harness.engine.history(task_id)
        assert (entry.event, entry.actor, entry.note) == (HistoryEvent.CANCELLED, "ada", "no more")
    assert (await harness.record(stranger)).reason is Reason.DEPENDENCY, "it is no member"
    (line,) = await harness.engine.audit()
    assert (line.actor, line.act, line.target, line.detail) == ("ada", "cancel workflow", workflow_id, "no more")


async def test_cancel_asks_those_that_run(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    task = await harness.take(ids[0])
    assert await notifies(harness, worker_topic(WORKER), cancel(harness, workflow_id))
    assert await harness.states(*ids) == [RUNNING, CANCELLED, CANCELLED]
    assert (await harness.record(ids[0])).cancel_reason == "no more"
    await harness.settle(task, Outcome.CANCELLED)
    assert await counts(harness, workflow_id) == {CANCELLED: 3}


async def test_cancel_again_is_unchanged(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.take(ids[0])
    assert await cancel(harness, workflow_id) is Changed.DONE
    assert await cancel(harness, workflow_id) is Changed.UNCHANGED, "the one that runs has been asked"
    assert await harness.events(ids[0]) == [HistoryEvent.CANCEL_REQUESTED]
    assert len(await harness.engine.audit()) == 1


async def test_cancel_of_a_finished_workflow_is_unchanged(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    for task_id in ids:
        await harness.finish(task_id)
    assert await cancel(harness, workflow_id) is Changed.UNCHANGED
    assert await replay(harness, workflow_id) is Changed.UNCHANGED
    assert await harness.engine.audit() == []


async def test_cancel_notifies(harness: Harness) -> None:
    workflow_id, _ = await chain(harness)
    assert await notifies(harness, ended_topic(QUEUE), cancel(harness, workflow_id))


async def test_replay_runs_what_failed_and_what_waited_for_it(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.finish(ids[0], Outcome.PERMANENT)
    assert await harness.states(*ids) == [DEAD, CANCELLED, CANCELLED]
    harness.later(MINUTE)
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await harness.states(*ids) == [PENDING, BLOCKED, BLOCKED]
    assert [await harness.is_open(task_id) for task_id in ids] == [[], [True], [True]]
    for task_id in ids:
        assert (await harness.events(task_id))[-1] is HistoryEvent.REPLAYED
        assert (await harness.engine.history(task_id))[-1].actor == "ada"
        record = await harness.record(task_id)
        assert (record.reason, record.note, record.finished_at, record.attempts) == (None, "", None, 0)
    assert await harness.counter(Counter.REPLAYED) == 3
    for task_id in ids:
        await harness.finish(task_id)
    assert await counts(harness, workflow_id) == {COMPLETED: 3}


async def test_replay_leaves_what_is_done(harness: Harness) -> None:
    workflow_id, ids = await chain(harness, Rule.FAIL)
    await harness.finish(ids[0])
    await harness.finish(ids[1], Outcome.PERMANENT)
    assert await harness.states(*ids) == [COMPLETED, DEAD, DEAD]
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await harness.states(*ids) == [COMPLETED, PENDING, BLOCKED]
    assert await harness.is_open(ids[1]) == [False]
    (entry,) = await harness.engine.audit()
    assert (entry.act, entry.target) == ("replay workflow", workflow_id)


async def test_replay_again_is_unchanged(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.finish(ids[0], Outcome.PERMANENT)
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await replay(harness, workflow_id) is Changed.UNCHANGED
    assert await harness.counter(Counter.REPLAYED) == 3
    await harness.finish(ids[0], Outcome.PERMANENT)
    assert await replay(harness, workflow_id) is Changed.DONE, "it failed again"


async def test_replay_does_not_bring_back_what_people_cancelled(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.engine.act([Cancel(ids[1])], now=harness.now)
    assert await harness.states(*ids) == [PENDING, CANCELLED, CANCELLED]
    await replay(harness, workflow_id)
    assert await harness.states(*ids) == [PENDING, CANCELLED, CANCELLED], "what it waits for stays cancelled"


async def test_replay_runs_at_once_what_has_nothing_left_to_wait_for(harness: Harness) -> None:
    """Its prerequisite was replayed alone and has completed since."""
    workflow_id, ids = await chain(harness)
    await harness.finish(ids[0], Outcome.PERMANENT)
    await harness.engine.act([Replay(ids[0])], now=harness.now)
    await harness.finish(ids[0])
    assert await harness.states(*ids) == [COMPLETED, CANCELLED, CANCELLED]
    harness.later(MINUTE)
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await harness.states(*ids) == [COMPLETED, PENDING, BLOCKED]
    assert (await harness.record(ids[1])).ready_at == harness.now
    assert await harness.is_open(ids[1]) == [False]


async def test_replay_waits_for_what_still_runs(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.finish(ids[0], Outcome.PERMANENT)
    await harness.engine.act([Replay(ids[0])], now=harness.now)
    await harness.take(ids[0])
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await harness.states(*ids) == [RUNNING, BLOCKED, BLOCKED]


async def test_cleaning_up_waits_again_too(harness: Harness) -> None:
    work = harness.new()
    cleaner = harness.new(after=edges(work.id, rule=Rule.IF_FAILED))
    after_all = harness.new(after=edges(work.id, rule=Rule.RUN))
    workflow_id = await harness.begin(work, cleaner, after_all)
    await harness.finish(work.id, Outcome.PERMANENT)
    assert await harness.states(cleaner.id, after_all.id) == [PENDING, PENDING]
    await replay(harness, workflow_id)
    assert await harness.states(work.id, cleaner.id, after_all.id) == [PENDING, PENDING, PENDING], "those go on"


async def test_replay_leaves_what_a_stranger_holds_back(harness: Harness) -> None:
    """Nobody may wait again for a member that stays as it ended, whatever the order of their ids."""
    stranger = await harness.ended(Outcome.PERMANENT)
    early, late = harness.new(), harness.new()
    for first, second in ((early, late), (harness.new(id=late.id[:-1] + "f"), harness.new(id=early.id[:-1] + "f"))):
        member = structs.replace(first, after=edges(stranger, rule=Rule.FAIL))
        follower = structs.replace(second, after=edges(first.id))
        workflow_id = await harness.begin(member, follower)
        assert await harness.states(first.id, second.id) == [DEAD, CANCELLED]
        await replay(harness, workflow_id)
        assert await harness.states(first.id, second.id) == [DEAD, CANCELLED]
        assert await harness.followers(first.id) == []


async def test_replay_into_a_draining_queue(harness: Harness) -> None:
    first = harness.new()
    second = harness.new(after=edges(first.id), queue="other")
    workflow_id = await harness.begin(first, second)
    await harness.finish(first.id, Outcome.PERMANENT)
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    await replay(harness, workflow_id)
    assert await harness.states(first.id, second.id) == [DEAD, CANCELLED], "and nobody waits for it in vain"
    await harness.engine.set_queue_state(QUEUE, QueueState.ACTIVE, now=harness.now)
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await harness.states(first.id, second.id) == [PENDING, BLOCKED]


async def test_replay_passes_urgency_on(harness: Harness) -> None:
    first = harness.new(priority=10)
    second = harness.new(priority=90, after=edges(first.id))
    workflow_id = await harness.begin(first, second)
    await harness.finish(first.id, Outcome.PERMANENT)
    await replay(harness, workflow_id)
    record = await harness.record(first.id)
    assert (record.inherited, record.urgency) == (90, 90)
    usual = await harness.add(priority=50)
    assert await harness.peek() == [first.id, usual]


async def test_replay_notifies(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.finish(ids[0], Outcome.PERMANENT)
    assert await notifies(harness, work_topic(QUEUE), replay(harness, workflow_id))
