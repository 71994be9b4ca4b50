"""events: a cursor skips nothing that is committed late, and waits for nothing that others hold open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from postgres_help import NOW, claim, connection, engines, new, run, settle
from test_postgres_joining import complete, enqueue

from dibs.core.times import SECOND
from dibs.engines.events import EventPage, EventRequest
from dibs.engines.postgres import PostgresEngine


class Reader:
    """A subscriber to everything."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.engine = engine
        self.cursor: str | None = None

    async def page(self, limit: int = 1000) -> EventPage:
        request = EventRequest(subscriber="r", cursor=self.cursor, limit=limit)
        page = await self.engine.events(request, now=NOW)
        self.cursor = page.cursor
        return page

    async def read(self, limit: int = 1000) -> list[tuple[str, str | None]]:
        return [(event.type, event.task) for event in (await self.page(limit)).events]


@asynccontextmanager
async def subscribed() -> AsyncIterator[tuple[PostgresEngine, Reader]]:
    async with engines() as (engine,):
        await engine.enqueue([new()], now=NOW)  # the queue and the track exist
        reader = Reader(engine)
        assert await reader.read() == []
        yield engine, reader


@asynccontextmanager
async def begun() -> AsyncIterator[Any]:
    async with connection() as mine:
        await mine.execute("BEGIN")
        yield mine


def test_an_event_that_commits_after_later_ones_is_not_skipped() -> None:
    async def test() -> None:
        async with subscribed() as (engine, reader), begun() as mine:
            held, quick = new(), [new() for _ in range(5)]
            await enqueue(engine, mine, [held])
            for each in quick:
                await engine.enqueue([each], now=NOW)
            seen = [("task.submitted", each.id) for each in quick]
            assert await reader.read() == seen, "others are not held up"
            await engine.enqueue([late := new()], now=NOW)
            assert await reader.read() == [("task.submitted", late.id)]
            assert await reader.read() == []
            await mine.execute("COMMIT")
            assert await reader.read() == [("task.submitted", held.id)]
            assert await reader.read() == []
            assert ":" not in str(reader.cursor), "nothing is left to remember"

    run(test)


def test_pages_while_a_transaction_is_open() -> None:
    async def test() -> None:
        async with subscribed() as (engine, reader), begun() as mine:
            held = [new() for _ in range(3)]
            await enqueue(engine, mine, held)
            quick = [new() for _ in range(7)]
            await engine.enqueue(quick, now=NOW)
            found: list[tuple[str, str | None]] = []
            while page := await reader.read(limit=2):
                found += page
            await mine.execute("COMMIT")
            while page := await reader.read(limit=2):
                found += page
            assert found == [("task.submitted", each.id) for each in (*quick, *held)]

    run(test)


def test_what_is_rolled_back_never_happened() -> None:
    async def test() -> None:
        async with subscribed() as (engine, reader), begun() as mine:
            await enqueue(engine, mine, [new()])
            await mine.execute("ROLLBACK")
            await engine.enqueue([kept := new()], now=NOW)
            assert await reader.read() == [("task.submitted", kept.id)]

    run(test)


def test_a_task_that_completes_in_its_own_transaction() -> None:
    async def test() -> None:
        async with subscribed() as (engine, reader), begun() as mine:
            (task,) = await claim(engine, 1, now=NOW)
            assert await reader.read() == [("task.started", task.id)]
            await complete(engine, mine, task, now=NOW + SECOND)
            assert await reader.read() == []
            await mine.execute("COMMIT")
            (event,) = (await reader.page()).events
            assert (event.type, event.task, event.took) == ("task.completed", task.id, SECOND)

    run(test)


def test_numbers_beyond_what_a_lock_can_hold() -> None:
    """Locks have 31 bits of a number: it goes on in the same way after they have overflowed."""

    async def test() -> None:
        async with subscribed() as (engine, reader), connection() as own:
            schema = engine.address.schema
            await own.execute(f"ALTER TABLE {schema}.events ALTER COLUMN n RESTART WITH {2**31 - 3}")
            reader.cursor = None
            await reader.read()
            async with begun() as mine:
                await enqueue(engine, mine, [held := new()])
                quick = [new() for _ in range(10)]
                await engine.enqueue(quick, now=NOW)
                assert await reader.read() == [("task.submitted", each.id) for each in quick]
                await mine.execute("COMMIT")
            assert await reader.read() == [("task.submitted", held.id)]
            await settle(engine, await claim(engine, 1, now=NOW), now=NOW)
            assert [name for name, _ in await reader.read()] == ["task.started", "task.completed"]

    run(test)


def test_without_subscribers_nothing_is_written_and_no_lock_taken() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own, begun() as mine:
            await engine.enqueue([new()], now=NOW)
            await enqueue(engine, mine, [new()])
            await settle(engine, await claim(engine, 1, now=NOW), now=NOW)
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
            assert await own.fetchval(locks) == 0
            assert await own.fetchval(f"SELECT count(*) FROM {engine.address.schema}.events") == 0

    run(test)
