"""backlog: how many tasks of each tier are pending, and since when; no task is read."""

from __future__ import annotations

from dibs.core.settings import Tier
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.figures import Backlog
from dibs.testing.conformance.harness import QUEUE, START, Harness


def of(tier: Tier, pending: int, oldest: int, queue: str = QUEUE) -> Backlog:
    return Backlog(queue=queue, tier=tier, pending=pending, oldest=oldest)


async def backlog(harness: Harness) -> list[Backlog]:
    return await harness.engine.backlog(now=harness.now)


async def test_empty_store(harness: Harness) -> None:
    assert await backlog(harness) == []


async def test_by_queue_and_tier(harness: Harness) -> None:
    await harness.add(priority=30)
    harness.later(MINUTE)
    await harness.add_many(2, priority=35)
    await harness.add(priority=90)
    await harness.add(queue="a")
    await harness.add(queue="a", name="other")
    assert await backlog(harness) == [
        of(Tier.MEDIUM, 2, START + MINUTE, "a"),
        of(Tier.CRITICAL, 1, START + MINUTE),
        of(Tier.LOW, 3, START),
    ]


async def test_only_pending_tasks(harness: Harness) -> None:
    await harness.start()
    await harness.ended()
    await harness.add(delay=HOUR)
    await harness.follow(await harness.add(priority=90), priority=90)
    assert await backlog(harness) == [of(Tier.CRITICAL, 1, START)]


async def test_the_oldest_is_found_behind_more_urgent_ones(harness: Harness) -> None:
    await harness.add(priority=40)
    harness.later(MINUTE)
    await harness.add_many(20, priority=59)
    assert await backlog(harness) == [of(Tier.MEDIUM, 21, START)]


async def test_tasks_that_came_back(harness: Harness) -> None:
    """The time that they have waited before counts."""
    task = await harness.start()
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert (await harness.record(task.id)).ready_at == harness.now
    assert await backlog(harness) == [of(Tier.MEDIUM, 1, harness.now)]


async def test_lanes(harness: Harness) -> None:
    await harness.set_queue(aging=60, max_aging_bonus=10)
    await harness.add()
    harness.later(HOUR)
    await harness.rerank()
    await harness.add()
    assert await backlog(harness) == [of(Tier.MEDIUM, 2, START)]


async def test_shares_and_gated_tasks(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await harness.set_queue("gated", per_partition=1)
    for tenant in ("a", "b", ""):
        await harness.add(tenant=tenant)
        harness.later(SECOND)
    await harness.add_many(3, queue="gated", partition="x")
    await harness.claim(queues=("gated",))
    assert await backlog(harness) == [
        of(Tier.MEDIUM, 3, START),
        of(Tier.MEDIUM, 2, START + 3 * SECOND, "gated"),
    ]


async def test_settings_that_have_changed(harness: Harness) -> None:
    """Tasks that are not ranked again yet are counted with those that are."""
    await harness.add()
    harness.later(MINUTE)
    await harness.set_queue(policy="strict")
    await harness.add()
    assert await backlog(harness) == [of(Tier.MEDIUM, 2, START)]


async def test_a_deep_queue(harness: Harness) -> None:
    await harness.add()
    harness.later(SECOND)
    await harness.add_many(2_500)
    assert await backlog(harness) == [of(Tier.MEDIUM, 2_501, START)]
