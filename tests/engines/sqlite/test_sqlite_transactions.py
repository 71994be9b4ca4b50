"""join: tasks that live, die and end with the user's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlite_help import new, opened, request

from dibs.core.graph import Edge
from dibs.core.states import State
from dibs.core.task import Lease, Outcome, Settlement
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.topics import work_topic
from dibs.engines.values import EnqueueOutcome, SettleOutcome
from dibs.errors import UsageError


async def pending(engine: SqliteEngine) -> int:
    counts = (await engine.counts()).tasks
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
                answers = await engine.join(mine).enqueue([new(), new(queue="default", name="new-kind")])
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
            await engine.join(mine).enqueue([new()])
            assert mine.in_transaction
            mine.rollback()
            assert await pending(engine) == 0
            await engine.join(mine).enqueue([new()])
            mine.commit()
            assert await pending(engine) == 1
            mine.close()

    asyncio.run(go())


def test_a_commit_wakes_waiters(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.enqueue([new()])
            subscription = engine.subscribe([work_topic("default")])
            mine = sqlite3.connect(tmp_path / "x.db")
            await engine.join(mine).enqueue([new()])
            mine.commit()
            assert await subscription.wait(5)
            subscription.close()
            mine.close()

    asyncio.run(go())


def test_refused_items_leave_the_transaction_alone(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            taken = new(args=b'{"n":1}')
            await engine.enqueue([taken])
            mine = sqlite3.connect(tmp_path / "x.db")
            mine.execute("CREATE TABLE orders (id)")
            mine.execute("INSERT INTO orders VALUES (1)")
            other = new(id=taken.id, args=b'{"n":2}')
            answers = await engine.join(mine).enqueue([new(), other])
            outcomes = [answer.outcome for answer in answers]
            assert outcomes == [EnqueueOutcome.ABANDONED, EnqueueOutcome.TAKEN]
            mine.commit()
            assert mine.execute("SELECT count(*) FROM orders").fetchone() == (1,)
            assert await pending(engine) == 1
            mine.close()

    asyncio.run(go())


def test_a_task_completes_with_the_transaction(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            first = new()
            await engine.enqueue([first, new(after=(Edge(first.id),))])
            (task,) = (await engine.claim(request(5))).tasks
            report = Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED, result=b"1")
            mine = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
            for ending, state in (("ROLLBACK", State.RUNNING), ("COMMIT", State.COMPLETED)):
                mine.execute("BEGIN IMMEDIATE")
                assert await engine.join(mine).complete(report) is SettleOutcome.DONE
                assert await engine.join(mine).complete(report) is SettleOutcome.ALREADY
                mine.execute(ending)
                (record,) = await engine.get([task.id])
                assert record is not None
                assert record.state is state
            assert (record.result, record.settled_lease) == (b"1", task.lease)
            assert [answer.outcome for answer in await engine.settle([report])] == [SettleOutcome.ALREADY]
            assert len((await engine.claim(request(5))).tasks) == 1  # the one that waited for it
            assert all(finding.level == "ok" for finding in await engine.check(full=True))
            mine.close()

    asyncio.run(go())


@pytest.mark.parametrize("claimed_again", [False, True])
def test_a_lease_that_is_not_current_writes_nothing(tmp_path: Path, claimed_again: bool) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.enqueue([new()])
            (old,) = (await engine.claim(request(5))).tasks
            await engine.settle([Settlement(lease=Lease(old.id, old.lease), outcome=Outcome.RELEASED)])
            if claimed_again:
                await engine.claim(request(5))
            mine = sqlite3.connect(tmp_path / "x.db")
            mine.execute("CREATE TABLE orders (id)")
            mine.execute("INSERT INTO orders VALUES (1)")
            late = Settlement(lease=Lease(old.id, old.lease), outcome=Outcome.COMPLETED)
            assert await engine.join(mine).complete(late) is SettleOutcome.REFUSED
            mine.commit()
            assert mine.execute("SELECT count(*) FROM orders").fetchone() == (1,)
            mine.close()
            (record,) = await engine.get([old.id])
            assert record is not None
            assert record.state is (State.RUNNING if claimed_again else State.PENDING)
            assert [entry.event for entry in await engine.history(old.id)] == ["released"]

    asyncio.run(go())


def test_says_what_is_wrong_with_a_connection(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            with pytest.raises(UsageError, match=r"can't be a builtins\.object\. It may be of sqlite3"):
                await engine.join(object()).enqueue([new()])
            other = sqlite3.connect(tmp_path / "other.db")
            with pytest.raises(UsageError, match=r"other\.db"):
                await engine.join(other).enqueue([new()])
            other.close()
            idle = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
            with pytest.raises(UsageError, match="BEGIN IMMEDIATE"):
                await engine.join(idle).enqueue([new()])
            idle.close()

    asyncio.run(go())
