"""workflows: tasks that were begun together are seen, cancelled and replayed together."""

from __future__ import annotations

from msgspec import structs

from dibs.core.graph import Rule
from dibs.core.states import Reason, State
from dibs.core.task import HistoryEvent, Outcome, QueueState
from dibs.core.times import DAY, MINUTE
from dibs.engines.values import (
    Cancel,
    CancelWorkflow,
    Changed,
    Counter,
    EnqueueOutcome,
    NewWorkflow,
    Query,
    Replay,
    ReplayWorkflow,
    ended_topic,
    work_topic,
    worker_topic,
)
from dibs.testing.conformance.harness import QUEUE, WORKER, Harness, edges
from dibs.testing.conformance.subscribe import rings

BLOCKED, PENDING, RUNNING = State.BLOCKED, State.PENDING, State.RUNNING
COMPLETED, CANCELLED, DEAD = State.COMPLETED, State.CANCELLED, State.DEAD


async def chain(harness: Harness, rule: Rule = Rule.CANCEL, **facts: object) -> tuple[str, list[str]]:
    """A workflow of three tasks, one after the other."""
    first = harness.new(**facts)
    second = harness.new(after=edges(first.id, rule=rule), **facts)
    third = harness.new(after=edges(second.id, rule=rule), **facts)
    return await harness.begin(first, second, third, name="chain"), [first.id, second.id, third.id]


async def counts(harness: Harness, workflow_id: str) -> dict[State, int]:
    record = await harness.workflow(workflow_id)
    assert record is not None
    return {state: count for state, count in record.counts.items() if count}


async def cancel(harness: Harness, workflow_id: str) -> Changed:
    return (await harness.engine.act([CancelWorkflow(workflow_id, "no more")], actor="ada", now=harness.now))[0]


async def replay(harness: Harness, workflow_id: str) -> Changed:
    return (await harness.engine.act([ReplayWorkflow(workflow_id)], actor="ada", now=harness.now))[0]


async def test_it_is_recorded_with_its_tasks(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    record = await harness.workflow(workflow_id)
    assert record is not None
    assert (record.id, record.name, record.created_at, record.total) == (workflow_id, "chain", harness.now, 3)
    assert record.counts == {state: {BLOCKED: 2, PENDING: 1}.get(state, 0) for state in State}
    assert {(await harness.record(task_id)).workflow for task_id in ids} == {workflow_id}


async def test_counts_follow_its_tasks(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    task = await harness.take(ids[0])
    assert await counts(harness, workflow_id) == {RUNNING: 1, BLOCKED: 2}
    await harness.settle(task)
    assert await counts(harness, workflow_id) == {COMPLETED: 1, PENDING: 1, BLOCKED: 1}
    await harness.finish(ids[1], Outcome.DEAD)
    assert await counts(harness, workflow_id) == {COMPLETED: 1, DEAD: 1, CANCELLED: 1}


async def test_the_lease_tells_of_it(harness: Harness) -> None:
    workflow_id, ids = await chain(harness, takes=True)
    task = await harness.take(ids[0])
    assert (task.workflow, task.takes) == (workflow_id, True)


async def test_refused_as_a_whole(harness: Harness) -> None:
    workflow = NewWorkflow(harness.new_id(), "none")
    batch = [harness.new(workflow=workflow.id), harness.new(workflow=workflow.id, after=edges(harness.new_id()))]
    answers = await harness.engine.enqueue(batch, atomic=True, workflow=workflow, now=harness.now)
    assert [answer.outcome for answer in answers] == [EnqueueOutcome.ABANDONED, EnqueueOutcome.UNKNOWN]
    assert await harness.workflow(workflow.id) is None
    assert await harness.engine.workflows() == []


async def test_repeat_begins_nothing_new(harness: Harness) -> None:
    workflow = NewWorkflow(harness.new_id(), "once")
    batch = [harness.new(workflow=workflow.id) for _ in range(2)]
    await harness.engine.enqueue(batch, atomic=True, workflow=workflow, now=harness.now)
    before = await harness.workflow(workflow.id)
    harness.later(MINUTE)
    answers = await harness.engine.enqueue(batch, atomic=True, workflow=workflow, now=harness.now)
    assert [answer.outcome for answer in answers] == [EnqueueOutcome.EXISTS] * 2
    assert await harness.workflow(workflow.id) == before


async def test_newest_first_in_pages(harness: Harness) -> None:
    ids = [await harness.begin(harness.new(), name=str(number)) for number in range(5)]
    found = await harness.engine.workflows()
    assert [record.id for record in found] == ids[::-1]
    assert [record.id for record in await harness.engine.workflows(limit=2)] == [ids[4], ids[3]]
    assert [record.id for record in await harness.engine.workflows(limit=2, before=ids[3])] == [ids[2], ids[1]]
    assert found[0] == await harness.workflow(ids[4])


async def test_unknown_ones(harness: Harness) -> None:
    missing = harness.new_id()
    assert await harness.workflow(missing) is None
    assert await cancel(harness, missing) is Changed.UNKNOWN
    assert await replay(harness, missing) is Changed.UNKNOWN
    assert await harness.engine.audit() == []


async def test_search_by_workflow(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.begin(harness.new())
    await harness.finish(ids[0])
    page = await harness.engine.search(Query(workflow=workflow_id))
    assert [record.id for record in page.tasks] == ids[::-1]
    page = await harness.engine.search(Query(workflow=workflow_id, states=(COMPLETED,)))
    assert [record.id for record in page.tasks] == [ids[0]]


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
    assert await rings(harness, worker_topic(WORKER), cancel(harness, workflow_id))
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


async def test_cancel_rings(harness: Harness) -> None:
    workflow_id, _ = await chain(harness)
    assert await rings(harness, ended_topic(QUEUE), cancel(harness, workflow_id))


async def test_replay_runs_what_failed_and_what_waited_for_it(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.finish(ids[0], Outcome.DEAD)
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
    await harness.finish(ids[1], Outcome.DEAD)
    assert await harness.states(*ids) == [COMPLETED, DEAD, DEAD]
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await harness.states(*ids) == [COMPLETED, PENDING, BLOCKED]
    assert await harness.is_open(ids[1]) == [False]
    (entry,) = await harness.engine.audit()
    assert (entry.act, entry.target) == ("replay workflow", workflow_id)


async def test_replay_again_is_unchanged(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.finish(ids[0], Outcome.DEAD)
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await replay(harness, workflow_id) is Changed.UNCHANGED
    assert await harness.counter(Counter.REPLAYED) == 3
    await harness.finish(ids[0], Outcome.DEAD)
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
    await harness.finish(ids[0], Outcome.DEAD)
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
    await harness.finish(ids[0], Outcome.DEAD)
    await harness.engine.act([Replay(ids[0])], now=harness.now)
    await harness.take(ids[0])
    assert await replay(harness, workflow_id) is Changed.DONE
    assert await harness.states(*ids) == [RUNNING, BLOCKED, BLOCKED]


async def test_cleaning_up_waits_again_too(harness: Harness) -> None:
    work = harness.new()
    cleaner = harness.new(after=edges(work.id, rule=Rule.IF_FAILED))
    after_all = harness.new(after=edges(work.id, rule=Rule.RUN))
    workflow_id = await harness.begin(work, cleaner, after_all)
    await harness.finish(work.id, Outcome.DEAD)
    assert await harness.states(cleaner.id, after_all.id) == [PENDING, PENDING]
    await replay(harness, workflow_id)
    assert await harness.states(work.id, cleaner.id, after_all.id) == [PENDING, PENDING, PENDING], "those go on"


async def test_replay_leaves_what_a_stranger_holds_back(harness: Harness) -> None:
    """Nobody may wait again for a member that stays as it ended, whatever the order of their ids."""
    stranger = await harness.ended(Outcome.DEAD)
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
    await harness.finish(first.id, Outcome.DEAD)
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
    await harness.finish(first.id, Outcome.DEAD)
    await replay(harness, workflow_id)
    record = await harness.record(first.id)
    assert (record.inherited, record.urgency) == (90, 90)
    usual = await harness.add(priority=50)
    assert await harness.peek() == [first.id, usual]


async def test_replay_rings(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    await harness.finish(ids[0], Outcome.DEAD)
    assert await rings(harness, work_topic(QUEUE), replay(harness, workflow_id))


async def test_pruned_members_are_in_no_count_and_an_empty_one_goes(harness: Harness) -> None:
    await harness.set_queue(keep=86_400, keep_dead=3 * 86_400)
    first, second = harness.new(), harness.new()
    workflow_id = await harness.begin(first, second)
    await harness.finish(first.id)
    await harness.finish(second.id, Outcome.DEAD)
    harness.later(2 * DAY + 1)
    await harness.all_chores()
    record = await harness.workflow(workflow_id)
    assert record is not None
    assert (record.total, await counts(harness, workflow_id)) == (2, {DEAD: 1})
    harness.later(2 * DAY)
    await harness.all_chores()
    assert await harness.workflow(workflow_id) is None
    assert await cancel(harness, workflow_id) is Changed.UNKNOWN


async def test_a_task_that_joins_later_is_a_member(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    late = await harness.add(workflow=workflow_id, queue="late")
    record = await harness.workflow(workflow_id)
    assert record is not None
    assert (record.total, record.counts[PENDING]) == (4, 2)
    await cancel(harness, workflow_id)
    assert await harness.states(*ids, late) == [CANCELLED] * 4


async def test_members_in_several_queues(harness: Harness) -> None:
    first = harness.new(queue="a")
    second = harness.new(queue="b", after=edges(first.id))
    workflow_id = await harness.begin(first, second)
    await harness.finish(first.id, Outcome.DEAD)
    assert await replay(harness, workflow_id) is Changed.DONE
    assert (await harness.counter(Counter.REPLAYED, "a"), await harness.counter(Counter.REPLAYED, "b")) == (1, 1)
