"""workflows: tasks that were begun together are seen together."""

from __future__ import annotations

from dibs.core.graph import Rule
from dibs.core.states import State
from dibs.core.task import Outcome
from dibs.core.times import DAY, MINUTE
from dibs.engines.figures import Counter
from dibs.engines.values import CancelWorkflow, Changed, EnqueueOutcome, NewWorkflow, Query, ReplayWorkflow
from dibs.testing.conformance.harness import Harness, edges

__all__ = ["cancel", "chain", "counts", "replay"]

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
    assert {(await harness.record(task_id)).spec.workflow for task_id in ids} == {workflow_id}


async def test_counts_follow_its_tasks(harness: Harness) -> None:
    workflow_id, ids = await chain(harness)
    task = await harness.take(ids[0])
    assert await counts(harness, workflow_id) == {RUNNING: 1, BLOCKED: 2}
    await harness.settle(task)
    assert await counts(harness, workflow_id) == {COMPLETED: 1, PENDING: 1, BLOCKED: 1}
    await harness.finish(ids[1], Outcome.PERMANENT)
    assert await counts(harness, workflow_id) == {COMPLETED: 1, DEAD: 1, CANCELLED: 1}


async def test_the_lease_tells_of_it(harness: Harness) -> None:
    workflow_id, ids = await chain(harness, takes=True)
    task = await harness.take(ids[0])
    assert (task.spec.workflow, task.spec.takes) == (workflow_id, True)


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


async def test_those_asked_for_that_are_there(harness: Harness) -> None:
    first, second, third = [await harness.begin(harness.new()) for _ in range(3)]
    found = await harness.engine.workflows([third, harness.new_id(), first])
    assert [record.id for record in found] == [third, first]
    assert await harness.engine.workflows([]) == []
    assert second not in [record.id for record in found]


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


async def test_pruned_members_are_in_no_count_and_an_empty_one_goes(harness: Harness) -> None:
    await harness.set_queue(keep=86_400, keep_dead=3 * 86_400)
    first, second = harness.new(), harness.new()
    workflow_id = await harness.begin(first, second)
    await harness.finish(first.id)
    await harness.finish(second.id, Outcome.PERMANENT)
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
    await harness.finish(first.id, Outcome.PERMANENT)
    assert await replay(harness, workflow_id) is Changed.DONE
    assert (await harness.counter(Counter.REPLAYED, "a"), await harness.counter(Counter.REPLAYED, "b")) == (1, 1)


async def test_what_is_no_id_names_no_workflow(harness: Harness) -> None:
    assert await harness.engine.workflows(["nonsense", "ünï", ""]) == []
    assert await harness.engine.act([CancelWorkflow("nonsense")], now=harness.now) == [Changed.UNKNOWN]
    assert await harness.engine.act([ReplayWorkflow("nonsense")], now=harness.now) == [Changed.UNKNOWN]
