"""events on a file: in the user's own transaction, from other processes, and for nothing if nobody subscribes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from sqlite_help import new, opened, request

from dibs.core.task import Lease, Outcome, Settlement
from dibs.engines.events import Event, EventRequest
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.topics import EVENTS


async def read(engine: SqliteEngine, cursor: str | None) -> tuple[list[Event], str]:
    page = await engine.events(EventRequest(subscriber="r", cursor=cursor))
    return page.events, page.cursor


async def run_one(engine: SqliteEngine) -> None:
    (task,) = (await engine.claim(request(1))).tasks
    await engine.settle([Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED)])


def test_without_subscribers_hot_verbs_touch_no_table_of_events(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.enqueue([new()])
            await run_one(engine)
            store = engine._store
            assert store is not None
            assert store.writer is not None
            run: list[str] = []
            store.writer.set_trace_callback(run.append)
            await engine.enqueue([new()])
            await engine.enqueue([new() for _ in range(50)])
            await run_one(engine)
            assert len(run) > 5
            assert not [text for text in run if "dibs_events" in text or "dibs_watches" in text]
            _, cursor = await read(engine, None)
            await run_one(engine)
            assert [event.type for event in (await read(engine, cursor))[0]] == ["task.started", "task.completed"]

    asyncio.run(go())


def test_in_the_users_own_transaction(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.enqueue([new()])
            _, cursor = await read(engine, None)
            mine = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
            for ending, expected in (("ROLLBACK", []), ("COMMIT", ["task.submitted"])):
                mine.execute("BEGIN IMMEDIATE")
                await engine.join(mine).enqueue([new()])
                mine.execute(ending)
                events, cursor = await read(engine, cursor)
                assert [event.type for event in events] == expected
            mine.close()

    asyncio.run(go())


def test_subscribers_are_woken(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine, opened(tmp_path / "x.db") as other:
            _, cursor = await read(engine, None)
            subscription = engine.subscribe([EVENTS])
            try:
                await other.enqueue([task := new()])
                assert await subscription.wait(30)
                events, _ = await read(engine, cursor)
                assert [event.task for event in events] == [task.id]
            finally:
                subscription.close()

    asyncio.run(go())


def test_numbers_go_on_after_all_events_were_deleted(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            _, cursor = await read(engine, None)
            await engine.enqueue([new()])
            (first,), cursor = await read(engine, cursor)
            with sqlite3.connect(tmp_path / "x.db") as own:
                own.execute("DELETE FROM dibs_events")
            await engine.enqueue([new()])
            (second,), _ = await read(engine, cursor)
            assert second.n > first.n

    asyncio.run(go())
