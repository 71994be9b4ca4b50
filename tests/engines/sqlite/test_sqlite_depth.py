"""However deep something is, what a verb does about it is bounded: counted in steps of SQLite, not in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlite_help import completed, new, opened, request

from dibs.core.graph import Edge
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.states import State
from dibs.core.task import Lease
from dibs.core.times import MINUTE
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.values import Extension

TICK = 100
"""Steps between two ticks."""

Filled = Callable[[SqliteEngine, int], Awaitable[Callable[[], Awaitable[Any]]]]
"""Makes something so deep, and gives the verb to be measured."""


async def limited(engine: SqliteEngine, **changes: object) -> None:
    await engine.set_queue("default", change_settings(QueueSettings(), changes), expected=0)


async def full_partition(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
    await limited(engine, per_partition=1)
    await engine.enqueue([new(partition="hot") for _ in range(depth)])
    assert len((await engine.claim(request(1))).tasks) == 1
    await engine.enqueue([new(partition="cool")])

    async def claim() -> None:
        assert len((await engine.claim(request(5))).tasks) == 1

    return claim


async def slot_of_a_deep_partition(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
    await limited(engine, per_partition=1)
    await engine.enqueue([new(partition="hot") for _ in range(depth)])
    (task,) = (await engine.claim(request(1))).tasks

    async def settle_and_claim() -> None:
        await engine.settle([completed(task)])
        assert len((await engine.claim(request(1))).tasks) == 1

    return settle_and_claim


async def partitions_without_tokens(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
    await limited(engine, per_partition={"rate": 0.001, "burst": 1})
    for _ in range(2):
        await engine.enqueue([new(partition=f"p{n}") for n in range(depth)])
    assert len((await engine.claim(request(depth))).tasks) == depth
    await engine.enqueue([new()])

    async def claim() -> None:
        assert len((await engine.claim(request(5))).tasks) == 1

    return claim


async def tenants(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
    await limited(engine, fair=True)
    await engine.enqueue([new(tenant=f"t{n}") for n in range(depth)])

    async def claim() -> None:
        assert len((await engine.claim(request(5))).tasks) == 5

    return claim


async def tenants_of_another_kind(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
    await limited(engine, fair=True)
    await engine.enqueue([new(tenant=f"t{n}", name="other") for n in range(depth)])
    await engine.enqueue([new(tenant="u")])

    async def claim() -> None:
        assert len((await engine.claim(request(5, names=("work",)))).tasks) == 1

    return claim


async def full_tenants(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
    await limited(engine, fair=True, per_partition=1)
    for _ in range(2):
        await engine.enqueue([new(tenant=f"t{n}", partition=f"t{n}") for n in range(depth)])
    assert len((await engine.claim(request(depth))).tasks) == depth
    while (await engine.claim(request(5))).next_due_in == 0:
        pass  # turns that have nothing to give are forgotten when they are met
    await engine.enqueue([new(tenant="u")])

    async def claim() -> None:
        assert len((await engine.claim(request(5))).tasks) == 1

    return claim


async def name_that_fills(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
    await limited(engine, per_task={"work": 1})
    await engine.enqueue([new() for _ in range(depth)])
    await engine.enqueue([new(name="other")])

    async def claim() -> None:
        assert len((await engine.claim(request(5))).tasks) == 2

    return claim


def never_full(**changes: object) -> Filled:
    """Limits with room for all that a worker takes."""

    async def fill(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
        await limited(engine, **changes)
        await engine.enqueue([new(partition=f"p{n % 10}", tenant=f"t{n % 10}") for n in range(depth)])

        async def claim_and_settle() -> None:
            for _ in range(2):
                tasks = (await engine.claim(request(20))).tasks
                assert len(tasks) == 20
                await engine.settle([completed(task) for task in tasks])

        return claim_and_settle

    return fill


partitions_never_full = never_full(per_partition=20)
queue_never_full = never_full(max_concurrent=1000)
all_limits_at_once = never_full(fair=True, per_partition=20, max_concurrent=1000, rate=1_000_000)


async def one_of_many_needs(engine: SqliteEngine, depth: int) -> Callable[[], Awaitable[Any]]:
    needs = [new() for _ in range(depth)]
    await engine.enqueue([*needs, new(after=tuple(Edge(need.id) for need in needs))])
    (task,) = (await engine.claim(request(1))).tasks

    async def settle() -> None:
        await engine.settle([completed(task)])

    return settle


async def steps_of(path: Path, fill: Filled, depth: int) -> int:
    async with opened(path, synchronous="normal") as engine:
        verb = await fill(engine, depth)
        writer = engine._store.writer  # type: ignore[union-attr]
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return 0

        writer.set_progress_handler(tick, TICK)  # type: ignore[union-attr]
        await verb()
        writer.set_progress_handler(None, 0)  # type: ignore[union-attr]
        return ticks


@pytest.mark.parametrize(
    "fill",
    [
        full_partition,
        slot_of_a_deep_partition,
        partitions_without_tokens,
        tenants,
        tenants_of_another_kind,
        full_tenants,
        name_that_fills,
        partitions_never_full,
        queue_never_full,
        all_limits_at_once,
        one_of_many_needs,
    ],
)
def test_depth_costs_nothing(fill: Filled, tmp_path: Path) -> None:
    assert_alike(tmp_path, fill, 50, 2000)


@pytest.mark.soak
@pytest.mark.parametrize("fill", [partitions_never_full, queue_never_full, all_limits_at_once, tenants])
def test_a_claim_from_a_limited_queue_does_not_look_at_the_backlog(fill: Filled, tmp_path: Path) -> None:
    assert_alike(tmp_path, fill, 3000, 300_000)


def assert_alike(path: Path, fill: Filled, *depths: int) -> None:
    async def go() -> list[int]:
        return [await steps_of(path / f"{depth}.db", fill, depth) for depth in depths]

    few, many = asyncio.run(go())
    assert many <= few + 10, f"{few} and {many} ticks of {TICK} steps for {depths}"


def test_a_limit_that_comes_late_is_met_in_bounded_steps(tmp_path: Path) -> None:
    """Nothing was gated when the tasks came: claims gate what they meet, and say that they have more to do."""

    async def go() -> None:
        async with opened(tmp_path / "x.db", synchronous="normal") as engine:
            await engine.enqueue([new(partition="hot") for _ in range(2500)])
            await engine.enqueue([new()])
            (queue,) = await engine.queues()
            wanted = change_settings(queue.settings, {"per_partition": 1})
            await engine.set_queue("default", wanted, expected=queue.settings.version)
            claims = [await engine.claim(request(10)) for _ in range(4)]
            assert [len(claimed.tasks) for claimed in claims] == [1, 0, 1, 0]
            assert [claimed.next_due_in for claimed in claims] == [0, 0, None, None]
            assert len((await engine.peek("default", 5000)).tasks) == 2499
            (queue,) = await engine.queues()
            await engine.set_queue("default", QueueSettings(), expected=queue.settings.version)
            calls = 1
            while (await engine.claim(request(0))).next_due_in == 0:
                calls += 1
            assert calls == 2
            assert len((await engine.claim(request(5000))).tasks) == 2499

    asyncio.run(go())


def test_errands_survive_their_process(tmp_path: Path) -> None:
    async def go() -> None:
        path = tmp_path / "x.db"
        async with opened(path, synchronous="normal") as engine:
            need = new()
            await engine.enqueue([need, *(new(after=(Edge(need.id),)) for _ in range(2500))])
            (task,) = (await engine.claim(request(1))).tasks
            await engine.settle([completed(task)])
            assert ((await engine.counts()).tasks)["default"][State.PENDING] == 1000
        async with opened(path, synchronous="normal") as engine:
            claims = [await engine.claim(request(0)) for _ in range(3)]
            assert [claimed.next_due_in for claimed in claims] == [0, None, None]
            assert ((await engine.counts()).tasks)["default"][State.PENDING] == 2500

    asyncio.run(go())


def test_turns_that_have_nothing_are_forgotten_in_bounded_steps(tmp_path: Path) -> None:
    """Whatever is left behind by tenants that are done, the one that is not gets its turn."""

    async def go() -> None:
        async with opened(tmp_path / "x.db", synchronous="normal") as engine:
            await limited(engine, fair=True)
            await engine.enqueue([new(tenant=f"t{n:04}") for n in range(2500)])
            await engine.enqueue([new(tenant="z") for _ in range(2)])
            assert len((await engine.claim(request(2501))).tasks) == 2501
            claims = [await engine.claim(request(5)) for _ in range(4)]
            assert sum(len(claimed.tasks) for claimed in claims) == 1
            assert claims[0].next_due_in == 0
            assert claims[-1].next_due_in is None

    asyncio.run(go())


def test_a_heartbeat_writes_one_row_for_all_that_it_extends(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db", synchronous="normal") as engine:
            await engine.enqueue([new() for _ in range(1000)])
            tasks = (await engine.claim(request(1000))).tasks
            asked = [Extension(Lease(task.id, task.lease), MINUTE) for task in tasks]
            assert engine._store is not None
            writer = engine._store.writer
            assert writer is not None
            written = []
            for _ in range(3):
                before = writer.total_changes
                await engine.extend(asked)
                written.append(writer.total_changes - before)
            assert written == [1001, 1, 1]
            await engine.settle([completed(task) for task in tasks])
            (batch,) = writer.execute("SELECT expires_at FROM dibs_batches").fetchone()
            await engine.rescue(now=batch)
            assert writer.execute("SELECT count(*) FROM dibs_batches").fetchone() == (0,), "nothing is left of it"

    asyncio.run(go())
