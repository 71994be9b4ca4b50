"""get: whatever is known of a task, wherever it is, as values."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Outcome
from dibs.core.times import HOUR, SECOND, Duration
from dibs.testing.conformance.harness import Harness


async def test_looks_in_all_three_places(harness: Harness) -> None:
    ids = [await harness.ended(), await harness.ended(Outcome.PERMANENT), await harness.add()]
    states = [record.state for record in await harness.engine.get(ids) if record]
    assert states == [State.COMPLETED, State.DEAD, State.PENDING]


async def test_answers_in_the_order_asked(harness: Harness) -> None:
    first, second = await harness.add(), await harness.add()
    unknown = harness.new_id()
    found = await harness.engine.get([second, unknown, first, second])
    assert [record and record.id for record in found] == [second, None, first, second]
    assert await harness.engine.get([]) == []


async def test_records_are_values(harness: Harness) -> None:
    task_id = await harness.add(metadata={"a": 1}, headers={"h": "1"})
    record = await harness.record(task_id)
    record.attempts = 99
    record.spec.metadata["a"] = 2
    record.spec.headers["h"] = "2"
    again = await harness.record(task_id)
    assert (again.attempts, again.spec.metadata, again.spec.headers) == (0, {"a": 1}, {"h": "1"})


async def test_what_a_producer_does_later_to_its_values_changes_nothing(harness: Harness) -> None:
    metadata = {"a": 1}
    task_id = await harness.add(metadata=metadata)
    metadata["a"] = 2
    assert (await harness.record(task_id)).spec.metadata == {"a": 1}


async def test_what_a_worker_does_to_its_values_changes_nothing(harness: Harness) -> None:
    task = await harness.start(metadata={"a": 1})
    task.spec.metadata["a"] = 2
    assert (await harness.record(task.id)).spec.metadata == {"a": 1}


async def updated_in(harness: Harness, task_id: str) -> Duration:
    """How long ago the record of a task says that it was last changed."""
    return harness.now - (await harness.record(task_id)).updated_at


async def test_updated_by_enqueue_start_and_end(harness: Harness) -> None:
    task_id = await harness.add()
    assert await updated_in(harness, task_id) == 0
    harness.later(SECOND)
    assert await updated_in(harness, task_id) == SECOND
    task = await harness.take(task_id)
    assert await updated_in(harness, task_id) == 0
    harness.later(SECOND)
    await harness.settle(task)
    assert await updated_in(harness, task_id) == 0


async def test_updated_by_what_only_it_shows(harness: Harness) -> None:
    """Neither start nor end tells of a retry or a loss."""
    task = await harness.start()
    harness.later(SECOND)
    await harness.settle(task, Outcome.FAILED)
    assert await updated_in(harness, task.id) == 0
    await harness.take(task.id)
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert await updated_in(harness, task.id) == 0


async def test_updated_by_the_tasks_that_it_is_tied_to(harness: Harness) -> None:
    first = await harness.add(priority=50)
    harness.later(SECOND)
    second = await harness.follow(first, priority=90)
    assert await updated_in(harness, first) == 0, "it inherits"
    harness.later(SECOND)
    await harness.finish(first)
    assert await updated_in(harness, second) == 0, "it waits no longer"


async def test_updated_by_its_replacement(harness: Harness) -> None:
    task_id = await harness.add(key="k")
    harness.later(SECOND)
    await harness.engine.enqueue([harness.new(key="k", replace=True)], now=harness.now)
    assert await updated_in(harness, task_id) == 0
