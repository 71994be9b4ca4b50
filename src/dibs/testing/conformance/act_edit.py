"""edit: waiting tasks get other facts and the rank that goes with them."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Edit, HistoryEvent, Outcome
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.values import Changed
from dibs.testing.conformance.harness import Harness

DONE, UNCHANGED = Changed.DONE, Changed.UNCHANGED


async def edit(harness: Harness, *edits: Edit) -> list[Changed]:
    return await harness.engine.act(edits, actor="ada", now=harness.now)


async def test_priority_moves_a_task(harness: Harness) -> None:
    first, second = await harness.add(priority=50), await harness.add(priority=50)
    assert await edit(harness, Edit(id=second, priority=80)) == [DONE]
    assert (await harness.record(second)).spec.priority == 80
    assert await harness.claim_ids(2) == [second, first]


async def test_priority_of_a_scheduled_task(harness: Harness) -> None:
    late = await harness.add(priority=50, delay=MINUTE)
    assert await edit(harness, Edit(id=late, priority=90)) == [DONE]
    harness.later(MINUTE)
    usual = await harness.add(priority=60)
    assert await harness.claim_ids(2) == [late, usual]


async def test_pending_task_is_postponed(harness: Harness) -> None:
    task_id = await harness.add()
    harness.later(SECOND)
    assert await edit(harness, Edit(id=task_id, due_at=harness.now + HOUR)) == [DONE]
    record = await harness.record(task_id)
    assert (record.state, record.due_at) == (State.SCHEDULED, harness.now + HOUR)
    assert await harness.claim() == []
    assert await harness.counts() == {State.SCHEDULED: 1}
    harness.later(HOUR)
    (task,) = await harness.claim()
    assert task.ready_at == harness.now - SECOND, "what it had waited is kept"


async def test_scheduled_task_is_brought_forward(harness: Harness) -> None:
    task_id = await harness.add(delay=DAY)
    assert await edit(harness, Edit(id=task_id, due_at=harness.now - HOUR)) == [DONE]
    assert (await harness.record(task_id)).due_at == harness.now
    (task,) = await harness.claim()
    assert (task.id, task.ready_at) == (task_id, harness.now)


async def test_next_due_follows(harness: Harness) -> None:
    task_id = await harness.add(delay=DAY)
    await edit(harness, Edit(id=task_id, due_at=harness.now + HOUR))
    assert (await harness.claims()).next_due_in == HOUR
    await edit(harness, Edit(id=task_id, due_at=harness.now + 2 * HOUR))
    assert (await harness.claims()).next_due_in == 2 * HOUR


async def test_deadline_gives_its_boost(harness: Harness) -> None:
    first, second = await harness.add(), await harness.add()
    assert await edit(harness, Edit(id=second, deadline=harness.now + MINUTE)) == [DONE]
    record = await harness.record(second)
    assert record.spec.deadline == harness.now + MINUTE
    assert await harness.claim_ids(2) == [second, first]


async def test_metadata_is_replaced(harness: Harness) -> None:
    task_id = await harness.add(metadata={"a": 1, "b": 2})
    assert await edit(harness, Edit(id=task_id, metadata={"a": 3})) == [DONE]
    assert (await harness.record(task_id)).spec.metadata == {"a": 3}
    assert await edit(harness, Edit(id=task_id, metadata={})) == [DONE]
    assert (await harness.record(task_id)).spec.metadata == {}


async def test_leaves_a_trace(harness: Harness) -> None:
    task_id = await harness.add()
    await edit(harness, Edit(id=task_id, priority=80))
    (entry,) = await harness.engine.history(task_id)
    assert (entry.event, entry.actor, entry.at) == (HistoryEvent.EDITED, "ada", harness.now)
    assert "priority=80" in entry.note


async def test_repeat_is_unchanged(harness: Harness) -> None:
    task_id, late = await harness.add(), await harness.add(delay=DAY)
    edits = [
        Edit(id=task_id, priority=80, deadline=harness.now + HOUR, metadata={"a": 1}),
        Edit(id=late, due_at=harness.now - HOUR),
    ]
    assert await edit(harness, *edits) == [DONE, DONE]
    before = await harness.engine.get([task_id, late])
    harness.later(SECOND)
    assert await edit(harness, *edits) == [UNCHANGED, UNCHANGED]
    assert await harness.engine.get([task_id, late]) == before
    assert len(await harness.engine.history(task_id)) == 1
    assert len(await harness.engine.audit()) == 1


async def test_no_change_is_unchanged(harness: Harness) -> None:
    task_id = await harness.add(priority=50)
    assert await edit(harness, Edit(id=task_id)) == [UNCHANGED]
    assert await edit(harness, Edit(id=task_id, priority=50, due_at=harness.now)) == [UNCHANGED]


async def test_only_waiting_tasks(harness: Harness) -> None:
    running, completed = await harness.start(), await harness.ended()
    dead = await harness.ended(Outcome.PERMANENT)
    edits = [Edit(id=task_id, priority=1) for task_id in (running.id, completed, dead, harness.new_id())]
    assert await edit(harness, *edits) == [Changed.WRONG_STATE] * 3 + [Changed.UNKNOWN]


async def test_retrying_task(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.FAILED, delay=DAY)
    assert await edit(harness, Edit(id=task.id, due_at=harness.now + MINUTE, priority=70)) == [DONE]
    assert await harness.state(task.id) is State.RETRYING
    harness.later(MINUTE)
    (again,) = await harness.claim()
    assert (again.id, again.spec.priority, again.attempts) == (task.id, 70, 1)


async def test_postponed_task_leaves_the_depth(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    task_id = await harness.add()
    await edit(harness, Edit(id=task_id, due_at=harness.now + HOUR))
    await harness.add()
