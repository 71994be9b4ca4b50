"""What the tests of the PostgreSQL engine share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import asyncpg

from dibs.core.ids import uuid7
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.task import Lease, LeasedTask, NewTask, Outcome, Settlement
from dibs.core.times import SECOND
from dibs.engines.postgres import PostgresEngine, from_url
from dibs.engines.values import ClaimRequest, Level
from dibs.testing.tasks import changed
from servers.postgres import new_url, server_url

__all__ = ["NOW", "claim", "connection", "engines", "new", "run", "set_queue", "settle", "sound"]

NOW = 1_760_000_000 * SECOND
numbers = count(1)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def new(**facts: Any) -> NewTask:
    """A task not yet enqueued; ids are in order."""
    number = next(numbers)
    return changed(NewTask(id=uuid7(NOW // 1000 + number, 0, number), queue="default", name="work"), **facts)


@asynccontextmanager
async def engines(number: int = 1, **options: str) -> AsyncIterator[list[PostgresEngine]]:
    """Open engines on one new store, each with connections of its own."""
    url = new_url(**options)
    opened = [from_url(url) for _ in range(number)]
    try:
        for engine in opened:
            await engine.open()
        yield opened
    finally:
        for engine in opened:
            await engine.close()


@asynccontextmanager
async def connection() -> AsyncIterator[Any]:
    """A connection of the test's own."""
    own = await asyncpg.connect(server_url())
    try:
        yield own
    finally:
        await own.close()


async def claim(engine: PostgresEngine, limit: int, worker: str = "w", now: int | None = None) -> list[LeasedTask]:
    request = ClaimRequest(worker=worker, sequence=next(numbers), queues=("default",), limit=limit)
    return (await engine.claim(request, now=now)).tasks


async def settle(
    engine: PostgresEngine, tasks: list[LeasedTask], outcome: Outcome = Outcome.COMPLETED, now: int | None = None
) -> None:
    reports = [Settlement(lease=Lease(task.id, task.lease), outcome=outcome) for task in tasks]
    await engine.settle(reports, now=now)


async def set_queue(engine: PostgresEngine, **changes: object) -> None:
    found = {record.name: record.settings for record in await engine.queues()}
    old = found.get("default")
    settings = change_settings(old or QueueSettings(), changes)
    await engine.set_queue("default", settings, expected=0 if old is None else old.version)


async def sound(engine: PostgresEngine) -> None:
    """Nothing is wrong with the store; above all, the counts that were kept are what counting gives."""
    wrong = [finding for finding in await engine.check(full=True) if finding.level is Level.ERROR]
    assert wrong == []
