"""Searches read about as many rows as their bound, and the index of id blocks lets no transaction wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from postgres_help import NOW, claim, connection, engines, new, run, settle

from dibs.core.ids import uuid7
from dibs.core.states import State
from dibs.core.times import HOUR
from dibs.engines.decisions.blocks import block_of, created_trait, name_trait, worker_trait
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres.statements import statement
from dibs.engines.values import Query

DEPTH = 3000
READ = """
SELECT coalesce(sum(seq_tup_read), 0) AS scanned, coalesce(sum(idx_tup_fetch), 0) AS fetched
FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname <> 'store'
"""


async def reading(own: Any, schema: str, name: str, *parameters: object) -> tuple[int, int, list[Any]]:
    """What a statement scanned and fetched, and its rows."""
    async with own.transaction():
        before = await own.fetchrow(READ, schema)
        rows = await own.fetch(statement(name, schema), *parameters)
        after = await own.fetchrow(READ, schema)
    return int(after["scanned"] - before["scanned"]), int(after["fetched"] - before["fetched"]), rows


async def fill(engine: PostgresEngine) -> None:
    """Finished, running, pending and scheduled tasks."""
    await engine.enqueue([new() for _ in range(DEPTH)], now=NOW)
    await settle(engine, await claim(engine, DEPTH // 3, now=NOW), now=NOW)
    await claim(engine, 10, now=NOW)
    await engine.enqueue([new(delay=HOUR) for _ in range(DEPTH)], now=NOW)


async def pairs(own: Any, schema: str, trait: str) -> list[int]:
    rows = await own.fetch(f"SELECT block FROM {schema}.blocks WHERE trait = $1 ORDER BY block", trait)
    return [row["block"] for row in rows]


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_search_reads_within_its_bound(mode: str, analysed: bool) -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await own.execute(f"SET plan_cache_mode = {mode}")
            await fill(engine)
            many = f"INSERT INTO {schema}.blocks SELECT 'other ' || n, n FROM generate_series(1, {DEPTH}) AS n"
            await own.execute(many)
            if analysed:
                await own.execute(f"ANALYZE {schema}.tasks, {schema}.finished, {schema}.blocks")
            low, high = uuid7(0, 0, 0), uuid7(2**48 - 1, 0, 0)
            anything = ([], None, None, None, None, None, None, None)
            asked = ([low], [high], 100, True, True, True, False, *anything)
            scanned, fetched, rows = await reading(own, schema, "newest", *asked)
            assert (scanned, sum(row["visited"] or 0 for row in rows)) == (0, 200)
            assert fetched <= 220
            asked = ([low], [high], 100, False, False, False, True, *anything)
            assert (await reading(own, schema, "newest", *asked))[:2] == (0, 0), "no task was cancelled"
            tracks = sorted({row["track"] for row in await own.fetch(f"SELECT track FROM {schema}.tasks")})
            for state, most in ((State.RUNNING, 10), (State.SCHEDULED, 50)):
                asked = (None, 50, tracks, [state] * len(tracks))
                scanned, fetched, rows = await reading(own, schema, "unfinished_in", *asked)
                assert (scanned, len(rows)) == (0, most)
                assert fetched <= 2 * most + 20
            asked = ([name_trait("default", "work"), worker_trait("nobody")], 2**36, 10)
            scanned, fetched, rows = await reading(own, schema, "blocks", *asked)
            assert scanned == 0
            assert 0 < fetched < 30
            assert rows

    run(test)


def test_an_open_transaction_lets_no_other_wait() -> None:
    """Both store that the same block has tasks of the same name."""

    async def test() -> None:
        async with engines(2) as (engine, other), connection() as mine:
            await engine.enqueue([new(queue="q")], now=NOW)  # the queue is there
            await mine.execute("BEGIN")
            joined = engine.join(mine)
            await joined.prepare()
            first = uuid7(NOW // 1000 + 10**6, 0, 1)
            await joined.enqueue([new(id=first, queue="q")], now=NOW)
            async with asyncio.timeout(20):
                second, third = (uuid7(NOW // 1000 + 10**6, 0, n) for n in (2, 3))
                await other.enqueue([new(id=second, queue="q")], now=NOW)
                await other.enqueue([new(id=third, queue="q", key="k")], now=NOW)
            await mine.execute("COMMIT")
            found = await other.search(Query(queues=("q",), limit=3))
            assert [task.id for task in found.tasks] == [third, second, first]

    run(test)


def test_a_pair_is_written_once_by_a_process() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            task_id = uuid7(NOW // 1000, 0, 1)
            await engine.enqueue([new(id=task_id)], now=NOW)
            for number in range(2, 5):
                await engine.enqueue([new(id=uuid7(NOW // 1000, 0, number))], now=NOW)
                await engine.enqueue([new(id=uuid7(NOW // 1000, 1, n)) for n in (number, -number)], now=NOW)
            for _ in range(3):
                await claim(engine, 1, now=NOW)
            assert await pairs(own, schema, name_trait("default", "work")) == [block_of(task_id)]
            assert len(await pairs(own, schema, worker_trait("w"))) == 1
            assert await pairs(own, schema, created_trait(block_of(task_id))) == [], "its id is of this time"

    run(test)
