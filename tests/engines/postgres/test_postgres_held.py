"""While a transaction elsewhere keeps dead rows from being cleaned away: few are read, and nothing is missed for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from postgres_help import NOW, claim, connection, engines, new, run, settle

from dibs.core.states import State
from dibs.core.times import HOUR
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres.index_bloat import LONG_AGO
from dibs.engines.postgres.statements import statement

CHANGE = "INSERT INTO {schema}.count_changes (what, track, n) VALUES ('pending', 1, 1)"
MANY = "INSERT INTO {schema}.count_changes (what, track, n) SELECT 'pending', 1, 0 FROM generate_series(1, 10000)"
RESTORED = "UPDATE {schema}.chores SET folded_until = '1000000000000000000', folded_by = '3'"
"""As if from a dump of another server: the row is by another transaction than it says."""


@asynccontextmanager
async def held() -> AsyncIterator[None]:
    async with connection() as holder:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        yield


async def blocks_read(own: Any, engine: PostgresEngine, name: str, *parameters: object) -> int:
    script = statement(name, engine.address.schema)
    told = await own.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {script}", *parameters)
    plan = json.loads(told)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_rescue_does_not_read_what_ended_long_ago() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own, held():
            await engine.enqueue([new() for _ in range(3000)], now=NOW)
            await settle(engine, await claim(engine, 3000, now=NOW), now=NOW)
            await own.execute("SET enable_seqscan = off")
            now = NOW + HOUR
            asked = (now, 500, [1, 2], now - LONG_AGO, [])
            for _ in range(2):
                await blocks_read(own, engine, "expired", *asked)  # the first call also reads catalogs, to plan
                assert await blocks_read(own, engine, "expired", *asked) < 30
                await own.execute(f"ANALYZE {engine.address.schema}.tasks")

    run(test)


# Counts.


@asynccontextmanager
async def counting() -> AsyncIterator[tuple[PostgresEngine, Any]]:
    """An engine with one pending task that has been counted, and a connection."""
    async with engines() as (engine,), connection() as own:
        await engine.enqueue([new()])
        for _ in range(2):  # the first one has nowhere to remember how far it has come
            await fold(engine)
        yield engine, own


async def fold(engine: PostgresEngine) -> None:
    term = await engine.lead("w")
    assert term is not None
    assert not (await engine.chore("fold_counts", term)).more


async def pending(engine: PostgresEngine) -> int:
    """As enqueues count, and as people are told."""
    store = engine._store
    assert store is not None
    ((depth,),) = await store.rows("depth", list(store.catalog.tracks))
    assert ((await engine.counts()).tasks)["default"][State.PENDING] == depth
    return int(depth)


def script(engine: PostgresEngine, text: str) -> str:
    return text.replace("{schema}", engine.address.schema)


async def unfolded(own: Any, engine: PostgresEngine) -> int:
    found: int = await own.fetchval(script(engine, "SELECT count(*) FROM {schema}.count_changes"))
    return found


def test_counting_does_not_read_what_has_been_added_up() -> None:
    async def test() -> None:
        async with held(), counting() as (engine, own):
            await own.execute(script(engine, MANY))
            await own.execute(script(engine, CHANGE))
            await own.execute("SET enable_seqscan = off")
            async with asyncio.timeout(30):  # any writer on the server blocks it until it has committed
                while await blocks_read(own, engine, "depth", [1]) >= 30:
                    await fold(engine)
            assert await blocks_read(own, engine, "counts") < 30
            assert await blocks_read(own, engine, "tail", 1000) < 30
            assert await blocks_read(own, engine, "fold", 1000) < 60
            assert await pending(engine) == 2

    run(test)


def test_a_change_that_commits_after_later_ones_were_added_up_counts() -> None:
    async def test() -> None:
        async with counting() as (engine, own):
            async with own.transaction():
                await own.execute(script(engine, CHANGE))
                await engine.enqueue([new()])
                for _ in range(2):
                    await fold(engine)
                assert await pending(engine) == 2
            assert await pending(engine) == 3
            await fold(engine)
            assert (await pending(engine), await unfolded(own, engine)) == (3, 0)

    run(test)


def test_counts_are_added_up_in_parts() -> None:
    async def test() -> None:
        async with counting() as (engine, own):
            for changes in (2, 3, 1):
                async with own.transaction():
                    for _ in range(changes):
                        await own.execute(script(engine, CHANGE))
            for left in (4, 2, 0):
                assert await own.fetchval(statement("fold", engine.address.schema), 2) == 2
                assert (await pending(engine), await unfolded(own, engine)) == (7, left)

    run(test)


def test_a_restored_store_counts_from_the_beginning() -> None:
    async def test() -> None:
        async with counting() as (engine, own):
            await own.execute(script(engine, RESTORED))
            await engine.enqueue([new()])
            assert await pending(engine) == 2
            await fold(engine)
            assert (await pending(engine), await unfolded(own, engine)) == (2, 0)
            await engine.enqueue([new()])
            assert await pending(engine) == 3

    run(test)
