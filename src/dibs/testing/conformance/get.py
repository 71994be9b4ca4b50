"""get: whatever is known of a task, wherever it is, as values."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Outcome
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
