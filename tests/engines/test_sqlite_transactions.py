"""enqueue_in: tasks that live and die with the user's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlite_help import new_task, opened, request

from dibs.engines.base import EnqueueOutcome, work_topic
from dibs.engines.sqlite import SqliteEngine
from dibs.errors import UsageError


async def pending(engine: SqliteEngine) -> int:
    counts = await engine.counts()
    return sum(counts.get("default", {}).values())


@pytest.mark.parametrize("isolation", [None, "", "IMMEDIATE"])
def test_there_if_it_commits_and_never_if_it_rolls_back(tmp_path: Path, isolation: str | None) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            mine = sqlite3.connect(tmp_path / "x.db", isolation_level=isolation)
            mine.row_factory = sqlite3.Row
            mine.execute("CREATE TABLE orders (id)")
            for ending, expected in (("ROLLBACK", 0), ("COMMIT", 2)):
                if isolation is None:
                    mine.execute("BEGIN IMMEDIATE")
                mine.execute("INSERT INTO orders VALUES (1)")
                answers = engine.enqueue_in(mine, [new_task(), new_task(queue="default", name="new-kind")])
                assert [answer.outcome for answer in answers] == [EnqueueOutcome.ENQUEUED] * 2
                assert await pending(engine) == 0
                mine.execute(ending)
                assert await pending(engine) == expected
                assert len(mine.execute("SELECT * FROM orders").fetchall()) == expected // 2
            assert mine.row_factory is sqlite3.Row
            mine.close()
            assert len((await engine.claim(request(5))).tasks) == 2
            assert all(finding.level == "ok" for finding in await engine.check(full=True))

    asyncio.run(go())


def test_a_driver_in_implicit_mode_begins_by_itself(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            mine = sqlite3.connect(tmp_path / "x.db")
            engine.enqueue_in(mine, [new_task()])
            assert mine.in_transaction
            mine.rollback()
            assert await pending(engine) == 0
            engine.enqueue_in(mine, [new_task()])
            mine.commit()
            assert await pending(engine) == 1
            mine.close()

    asyncio.run(go())


def test_a_commit_wakes_waiters(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.enqueue([new_task()])
            subscription = engine.subscribe([work_topic("default")])
            mine = sqlite3.connect(tmp_path / "x.db")
            engine.enqueue_in(mine, [new_task()])
            mine.commit()
            assert await subscription.wait(5)
            subscription.close()
            mine.close()

    asyncio.run(go())


def test_refused_items_leave_the_transaction_alone(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            taken = new_task(args=b'{"n":1}')
            await engine.enqueue([taken])
            mine = sqlite3.connect(tmp_path / "x.db")
            mine.execute("CREATE TABLE orders (id)")
            mine.execute("INSERT INTO orders VALUES (1)")
            other = new_task(id=taken.id, args=b'{"n":2}')
            outcomes = [answer.outcome for answer in engine.enqueue_in(mine, [new_task(), other])]
            assert outcomes == [EnqueueOutcome.ABANDONED, EnqueueOutcome.TAKEN]
            mine.commit()
            assert mine.execute("SELECT count(*) FROM orders").fetchone() == (1,)
            assert await pending(engine) == 1
            mine.close()

    asyncio.run(go())


def test_says_what_is_wrong_with_a_connection(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            with pytest.raises(UsageError, match=r"must be a sqlite3\.Connection"):
                engine.enqueue_in(object(), [new_task()])
            other = sqlite3.connect(tmp_path / "other.db")
            with pytest.raises(UsageError, match=r"other\.db"):
                engine.enqueue_in(other, [new_task()])
            other.close()
            idle = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
            with pytest.raises(UsageError, match="BEGIN IMMEDIATE"):
                engine.enqueue_in(idle, [new_task()])
            idle.close()

    asyncio.run(go())
