"""A store with tasks in every state, opened by an engine that knows one step more."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_help import completed, opened, request

from dibs.core.graph import Edge
from dibs.core.states import State
from dibs.core.task import Lease, NewTask, Outcome, Settlement
from dibs.core.times import HOUR, SECOND
from dibs.engines.sqlite import SqliteEngine, layout
from dibs.engines.values import Level, SettleOutcome
from dibs.errors import StoreError
from dibs.testing.tasks import new_task

NOW = 1_760_000_000 * SECOND
STEP = "ALTER TABLE dibs_tasks ADD COLUMN extra INTEGER NOT NULL DEFAULT 7;\nUPDATE dibs_tasks SET extra = 8;"
IDS = ["a-completed", "b-cancelled", "c-dead", "d-retrying", "e-running", "f-pending", "g-scheduled"]
known_scripts = layout.migration_scripts


async def fill(path: Path) -> None:
    """A task in each of these states, whose name is in its id."""
    outcomes = [Outcome.COMPLETED, Outcome.CANCELLED, Outcome.PERMANENT, Outcome.FAILED]
    async with opened(path) as engine:
        tasks = [
            new_task(task_id, "default", "work", metadata={"price": 0.1234567890123456789}) for task_id in IDS[:-1]
        ]
        await engine.enqueue(tasks, now=NOW)
        await engine.enqueue([NewTask(id=IDS[-1], queue="default", name="work", delay=HOUR)], now=NOW)
        claimed = (await engine.claim(request(5), now=NOW)).tasks
        by_id = {task.id: task.lease for task in claimed}
        ends = [
            Settlement(lease=Lease(task_id, by_id[task_id]), outcome=outcome, result=b"3", delay=SECOND)
            for task_id, outcome in zip(IDS, outcomes, strict=False)
        ]
        assert {answer.outcome for answer in await engine.settle(ends, now=NOW)} == {SettleOutcome.DONE}


def know(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    last = max(known_scripts())
    monkeypatch.setattr(layout, "migration_scripts", lambda: {**known_scripts(), last + 1: ("one more", script)})


def test_tasks_in_every_state_live_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"

    async def go() -> None:
        await fill(path)
        know(monkeypatch, STEP)
        last = layout.known_layout()
        assert await SqliteEngine(path).migrations() == [f"{last:04d} one more"]
        async with opened(path) as engine:
            found = {record.id: record for record in await engine.get(IDS) if record is not None}
            assert [found[task_id].state for task_id in IDS] == [State(each.partition("-")[2]) for each in IDS]
            assert found["a-completed"].result == b"3"
            assert found["f-pending"].spec.metadata == {"price": 0.1234567890123456789}
            assert await engine.migrations() == []
            assert all(finding.level is not Level.ERROR for finding in await engine.check(full=True))

    asyncio.run(go())
    with closing(sqlite3.connect(path)) as connection:
        stored = connection.execute("SELECT layout, oldest_reader FROM dibs_store").fetchone()
        assert stored == (layout.known_layout(), layout.OLDEST_READER)
        assert connection.execute("SELECT DISTINCT extra FROM dibs_tasks").fetchall() == [(8,)]


def test_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    later = NOW + 2 * SECOND

    async def go() -> None:
        await fill(path)
        know(monkeypatch, STEP)
        async with opened(path) as engine:
            done = Settlement(lease=Lease("e-running", 1), outcome=Outcome.COMPLETED, result=b"1")
            assert [answer.outcome for answer in await engine.settle([done], now=later)] == [SettleOutcome.DONE]
            edges = (Edge("f-pending"), Edge("a-completed"))
            follower = NewTask(id="h", queue="default", name="work", after=edges)
            assert (await engine.enqueue([follower], now=later))[0].state is State.BLOCKED
            claimed = await engine.claim(request(10), now=later)
            assert {task.id for task in claimed.tasks} == {"f-pending", "d-retrying"}
            await engine.settle([completed(task) for task in claimed.tasks], now=later)
            assert [task.id for task in (await engine.claim(request(10), now=later)).tasks] == ["h"]
            assert all(finding.level is not Level.ERROR for finding in await engine.check(full=True))

    asyncio.run(go())


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"

    async def go() -> None:
        await fill(path)
        know(monkeypatch, f"{STEP}\nINSERT INTO dibs_nowhere VALUES (1);")
        with pytest.raises(StoreError, match="dibs_nowhere"):
            await SqliteEngine(path).open()
        monkeypatch.setattr(layout, "migration_scripts", known_scripts)
        async with opened(path) as engine:
            assert await engine.migrations() == []
            assert len([record for record in await engine.get(IDS) if record is not None]) == len(IDS)

    asyncio.run(go())
    with closing(sqlite3.connect(path)) as connection:
        assert "extra" not in [row[1] for row in connection.execute("PRAGMA table_info(dibs_tasks)")]
