"""stats: per-minute figures come with a worker's beat and are written whole."""

from __future__ import annotations

from dibs.core.times import MINUTE
from dibs.engines.figures import Minute
from dibs.testing.conformance.harness import WORKER, Harness


def minute(number: int, queue: str = "a", **facts: int) -> Minute:
    return Minute(minute=number, worker=WORKER, queue=queue, tier="medium", wait={3: 1}, run={90: 2}, **facts)


async def test_minutes_come_back(harness: Harness) -> None:
    minutes = [minute(number, completed=number) for number in (12, 10, 11)]
    await harness.beat(minutes=minutes)
    assert await harness.engine.stats("a", 10, 12) == sorted(minutes, key=lambda each: each.minute)
    assert await harness.engine.stats("a", 11, 11) == [minutes[2]]
    assert await harness.engine.stats("a", 13, 99) == []


async def test_by_queue_or_all(harness: Harness) -> None:
    await harness.beat(minutes=[minute(1, "a"), minute(1, "b")])
    assert [each.queue for each in await harness.engine.stats("b", 0, 9)] == ["b"]
    assert sorted(each.queue for each in await harness.engine.stats(None, 0, 9)) == ["a", "b"]


async def test_repeat_changes_nothing_and_more_replaces(harness: Harness) -> None:
    now_minute = harness.now // MINUTE
    await harness.beat(minutes=[minute(now_minute, completed=1)])
    await harness.beat(minutes=[minute(now_minute, completed=1)])
    assert await harness.engine.stats("a", now_minute, now_minute) == [minute(now_minute, completed=1)]
    await harness.beat(minutes=[minute(now_minute, completed=5, dead=1)])
    assert await harness.engine.stats("a", now_minute, now_minute) == [minute(now_minute, completed=5, dead=1)]
