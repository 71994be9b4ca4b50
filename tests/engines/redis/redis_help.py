"""What the tests of the Redis engine share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from dibs.core.ids import uuid7
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.task import Lease, LeasedTask, NewTask, Outcome, Settlement
from dibs.core.times import SECOND
from dibs.engines.redis import RedisEngine, from_url
from dibs.engines.values import Beat, ClaimRequest, Level, SettleAnswer
from dibs.errors import StoreError
from dibs.testing.tasks import changed
from servers.redis import Server, server

__all__ = [
    "NOW",
    "PATIENCE",
    "beat",
    "calls",
    "claim",
    "dump",
    "engines",
    "keys_of",
    "new",
    "new_url",
    "opened",
    "options",
    "run",
    "set_queue",
    "settle",
    "somehow",
    "sound",
    "until",
]

NOW = 1_760_000_000 * SECOND
PATIENCE = 30.0
numbers = count(1)
prefixes = count(1)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def new(**facts: Any) -> NewTask:
    """A task not yet enqueued; ids are in order."""
    number = next(numbers)
    return changed(NewTask(id=uuid7(NOW // 1000 + number, 0, number), queue="default", name="work"), **facts)


def beat(worker: str, pid: int, **facts: Any) -> Beat:
    return Beat(id=worker, host="here", pid=pid, version="1", queues=("default",), names=None, **facts)


# Engines.


def options(url: str, **given: object) -> str:
    text = "&".join(f"{name}={value}" for name, value in given.items())
    return f"{url}{'&' if '?' in url else '?'}{text}" if text else url


def new_url(url: str | None = None, **given: object) -> str:
    """Of a new store: a server's URL, with a prefix that no other test of this process has."""
    return options(url or server().url, **{"prefix": f"own{next(prefixes)}", **given})


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisEngine]:
    engine = from_url(url)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def engines(number: int = 1, url: str | None = None, **given: object) -> AsyncIterator[list[RedisEngine]]:
    """Open engines on one new store, each with connections of its own."""
    made = [from_url(found) for found in [new_url(url, **given)] * number]
    try:
        for engine in made:
            await engine.open()
        yield made
    finally:
        for engine in made:
            await engine.close()


async def claim(engine: RedisEngine, limit: int, worker: str = "w", **facts: Any) -> list[LeasedTask]:
    now = facts.pop("now", None)
    request = ClaimRequest(worker=worker, limit=limit, **{"sequence": next(numbers), "queues": ("default",), **facts})
    return (await engine.claim(request, now=now)).tasks


async def settle(
    engine: RedisEngine, tasks: list[LeasedTask], outcome: Outcome = Outcome.COMPLETED, now: int | None = None
) -> list[SettleAnswer]:
    reports = [Settlement(lease=Lease(task.id, task.lease), outcome=outcome) for task in tasks]
    return await engine.settle(reports, now=now)


async def set_queue(engine: RedisEngine, **changes: object) -> None:
    found = {record.name: record.settings for record in await engine.queues()}
    old = found.get("default")
    settings = change_settings(old or QueueSettings(), changes)
    await engine.set_queue("default", settings, expected=0 if old is None else old.version)


async def sound(engine: RedisEngine) -> None:
    """Nothing is wrong with the store; above all, the counts that were kept are what counting gives."""
    wrong = [finding for finding in await engine.check(full=True) if finding.level is Level.ERROR]
    assert wrong == []


async def somehow(act: Callable[[], Awaitable[Any]]) -> Any:
    """As callers are told to: again when the store was not available."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await act()
        except StoreError:
            assert time.monotonic() < deadline, "it never recovers"
            await asyncio.sleep(0.01)


async def until(holds: Callable[[], Awaitable[Any]], said: str = "it did not happen") -> Any:
    """Until something holds, looked at often."""
    deadline = time.monotonic() + PATIENCE
    while not (found := await holds()):
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.005)
    return found


# What is in the server.


def keys_of(own: Server, engine: RedisEngine) -> list[str]:
    base = f"{{{engine.address.prefix}}}:"
    return sorted(each for each in own.command("KEYS", "*") if each.startswith(base))


READERS: dict[str, tuple[object, ...]] = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
}


def dump(own: Server, engine: RedisEngine) -> dict[str, Any]:
    """All keys of a store, with what they hold."""
    return {key: content(own, key) for key in keys_of(own, engine)}


def content(own: Server, key: str) -> Any:
    name, *rest = READERS[own.command("TYPE", key)]
    found = own.command(name, key, *rest)
    return dict(zip(found[::2], found[1::2], strict=True)) if name == "HGETALL" else found


def calls(own: Server) -> dict[str, int]:
    """By command, how often the server has run it, also inside scripts."""
    found = own.info("commandstats")
    told = {name.removeprefix("cmdstat_"): value for name, value in found.items()}
    return {name: int(value.partition(",")[0].removeprefix("calls=")) for name, value in told.items()}
