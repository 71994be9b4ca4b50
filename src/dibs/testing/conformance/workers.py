"""workers: who is there."""

from __future__ import annotations

from dibs.testing.conformance.harness import Harness


async def test_all_by_id(harness: Harness) -> None:
    assert await harness.engine.workers() == []
    for worker in ("b", "c", "a"):
        await harness.beat(worker)
    assert [record.id for record in await harness.engine.workers()] == ["a", "b", "c"]


async def test_records_are_values(harness: Harness) -> None:
    await harness.beat("w", running=1)
    (record,) = await harness.engine.workers()
    record.running = 7
    (again,) = await harness.engine.workers()
    assert again.running == 1
