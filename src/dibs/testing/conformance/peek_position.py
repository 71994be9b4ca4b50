"""position: how many pending tasks of its queue go before this one."""

from __future__ import annotations

from dibs.core.times import HOUR
from dibs.engines.values import Position
from dibs.testing.conformance.harness import QUEUE, Harness


async def test_counts_who_goes_before(harness: Harness) -> None:
    for priority in (30, 90, 50, 70, 50, 0, 100):
        await harness.add(priority=priority)
    await harness.add(queue="other", priority=100)
    order = [record.id for record in (await harness.engine.peek("default", 100, now=harness.now)).tasks]
    for ahead, task_id in enumerate(order):
        assert await harness.position(task_id) == Position(ahead)


async def test_in_its_own_queue_only(harness: Harness) -> None:
    first, second = await harness.add_many(2)
    assert await harness.position(first, "other") is None
    peeked = await harness.engine.peek(QUEUE, 1, until=second, now=harness.now)
    assert ([record.id for record in peeked.tasks], peeked.position) == ([first], Position(1))


async def test_only_pending_tasks_have_one(harness: Harness) -> None:
    running, completed = await harness.start(), await harness.ended()
    for task_id in (running.id, completed, await harness.add(delay=HOUR), harness.new_id()):
        assert await harness.position(task_id) is None


async def test_across_lanes(harness: Harness) -> None:
    await harness.set_queue(aging=60, max_aging_bonus=10)
    old = await harness.add(priority=50)
    harness.later(HOUR)
    await harness.rerank()
    low, high = await harness.add(priority=55), await harness.add(priority=65)
    ahead = [await harness.position(task_id) for task_id in (high, old, low)]
    assert ahead == [Position(0), Position(1), Position(2)]
