"""What was decided about a task is written only if the task is still as it was loaded: the statements compare.

Transactions keep others from moving a task in between. Here it is moved all the same, from inside.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres_help import NOW, engines, new
from sqlite_help import opened

from dibs.core.states import State
from dibs.core.task import Lease, NewTask, Outcome, Settlement
from dibs.core.times import SECOND
from dibs.engines.base import Engine
from dibs.engines.decisions.records import Changes
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres import transaction as postgres
from dibs.engines.sql_transaction import SqlTransaction, TaskMoved
from dibs.engines.sqlite import transaction as sqlite
from dibs.engines.values import Cancel, ClaimRequest, Purge, Replay, SettleOutcome
from dibs.errors import StoreBusy

ENGINES = ["sqlite", "postgres"]
MOVES = ["lease = lease + 1", "state = 'retrying'"]
Act = Callable[[Engine, NewTask], Awaitable[object]]


@asynccontextmanager
async def engine_of(kind: str, path: Path) -> AsyncIterator[Engine]:
    if kind == "sqlite":
        async with opened(path / "x.db") as engine:
            yield engine
    else:
        async with engines() as (engine,):
            yield engine


def move_before_saving(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, place: str, change: str, times: int
) -> list[int]:
    """Each of the next transactions finds, when it saves, that its tasks have been moved; how many have is counted."""
    saved: list[int] = []
    number = itertools.count(1)

    def script() -> str:
        saved.append(next(number))
        table = f"{engine.address.schema}.{place}" if isinstance(engine, PostgresEngine) else f"dibs_{place}"
        return f"UPDATE {table} SET {change}"

    save = SqlTransaction.save

    async def on_sqlite(self: sqlite.Transaction, changes: Changes) -> None:
        if len(saved) < times:
            self.connection.execute(script())
        await save(self, changes)

    async def on_postgres(self: postgres.Transaction, changes: Changes) -> None:
        if len(saved) < times:
            await self.connection.execute(script())
        await save(self, changes)

    monkeypatch.setattr(sqlite.Transaction, "save", on_sqlite)
    monkeypatch.setattr(postgres.Transaction, "save", on_postgres)
    return saved


async def claimed(engine: Engine) -> NewTask:
    task = new()
    await engine.enqueue([task], now=NOW)
    request = ClaimRequest(worker="w", sequence=1, queues=("default",), limit=1)
    assert len((await engine.claim(request, now=NOW)).tasks) == 1
    return task


async def stored(engine: Engine, task: NewTask) -> Any:
    (record,) = await engine.get([task.id])
    return record


def report(task: NewTask, outcome: Outcome) -> Settlement:
    return Settlement(lease=Lease(task.id, 1), outcome=outcome, delay=SECOND)


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("change", MOVES)
@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.COMPLETED])
def test_a_settlement_is_refused_by_the_statement(
    kind: str, change: str, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with engine_of(kind, tmp_path) as engine:
            task = await claimed(engine)
            before = await stored(engine, task)
            move_before_saving(monkeypatch, engine, "tasks", change, times=100)
            with pytest.raises((TaskMoved, StoreBusy)):
                await engine.settle([report(task, outcome)], now=NOW)
            assert await stored(engine, task) == before, "nothing was written"
            assert (await engine.counts()).tasks["default"][State.RUNNING] == 1

    asyncio.run(test())


@pytest.mark.parametrize("kind", ENGINES)
def test_it_is_tried_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engine_of(kind, tmp_path) as engine:
            task = await claimed(engine)
            saved = move_before_saving(monkeypatch, engine, "tasks", MOVES[0], times=1)
            (answer,) = await engine.settle([report(task, Outcome.FAILED)], now=NOW)
            assert answer.outcome is SettleOutcome.DONE
            assert saved == [1]
            assert (await stored(engine, task)).state is State.RETRYING

    asyncio.run(test())


async def cancel(engine: Engine, task: NewTask) -> object:
    return await engine.act([Cancel(task.id)], now=NOW)


async def replay(engine: Engine, task: NewTask) -> object:
    return await engine.act([Replay(task.id)], now=NOW)


async def purge(engine: Engine, task: NewTask) -> object:
    return await engine.act([Purge(task.id)], now=NOW)


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize(
    ("outcome", "place", "act"),
    [
        (None, "tasks", cancel),
        (Outcome.RELEASED, "tasks", cancel),
        (Outcome.PERMANENT, "dead", replay),
        (Outcome.PERMANENT, "dead", purge),
        (Outcome.COMPLETED, "finished", purge),
    ],
    ids=["asked to stop", "cancelled", "replayed", "purged", "purged when finished"],
)
def test_so_is_what_people_do(
    kind: str, outcome: Outcome | None, place: str, act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with engine_of(kind, tmp_path) as engine:
            task = await claimed(engine)
            if outcome is not None:
                await engine.settle([report(task, outcome)], now=NOW)
            before = await stored(engine, task)
            move_before_saving(monkeypatch, engine, place, MOVES[0], times=100)
            with pytest.raises((TaskMoved, StoreBusy)):
                await act(engine, task)
            assert await stored(engine, task) == before

    asyncio.run(test())
