"""What the programs of all PostgreSQL contestants in Python have in common: their commands, and how they are measured.

`python peer_NAME.py COMMAND [COUNT]` on the database that BENCH_URL names. `install` makes the tables; `one`, `callers`
and `bulk` enqueue COUNT no-op tasks and print how many a second; `starts` enqueues one task for each line that it
reads, and prints when it began to; `work` is a worker process. `node/peers.mjs` is the same for Node.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

__all__ = ["BULK", "CALLERS", "URL", "Peer", "main"]

URL = os.environ.get("BENCH_URL", "")
CALLERS = 64
BULK = 1000


class Peer(Protocol):
    """One contestant's own way to do each thing. `nothing` and `started` are the names of its two tasks."""

    def opened(self, callers: int) -> AbstractAsyncContextManager[None]:
        """Connected, for so many callers at a time."""
        ...

    async def install(self) -> None: ...
    async def enqueue(self, name: str, number: int) -> object: ...
    async def enqueue_many(self, numbers: range) -> object: ...
    async def work(self) -> None: ...


async def install(peer: Peer, count: int) -> None:
    async with peer.opened(1):
        await peer.install()


async def one(peer: Peer, count: int) -> None:
    """One at a time."""
    async with peer.opened(1):
        await peer.enqueue("nothing", 0)  # whatever is made ready at first use
        began = time.perf_counter()
        for number in range(count):
            await peer.enqueue("nothing", number)
        print(count / (time.perf_counter() - began))


async def callers(peer: Peer, count: int) -> None:
    """Many callers at once, each of which waits for its own answer before it goes on."""
    each = max(1, count // CALLERS)

    async def call() -> None:
        for number in range(each):
            await peer.enqueue("nothing", number)

    async with peer.opened(CALLERS):
        await asyncio.gather(*(peer.enqueue("nothing", 0) for _ in range(CALLERS)))
        began = time.perf_counter()
        await asyncio.gather(*(call() for _ in range(CALLERS)))
        print(CALLERS * each / (time.perf_counter() - began))


async def bulk(peer: Peer, count: int) -> None:
    """A thousand at a time, one call after another."""
    async with peer.opened(1):
        began = time.perf_counter()
        for start in range(0, count, BULK):
            await peer.enqueue_many(range(start, min(start + BULK, count)))
        print(count / (time.perf_counter() - began))


async def starts(peer: Peer, count: int) -> None:
    """One task per line read; prints the moment before each call."""
    async with peer.opened(1):
        while await asyncio.to_thread(sys.stdin.readline):
            sent = time.time()
            await peer.enqueue("started", 0)
            print(sent, flush=True)


async def work(peer: Peer, count: int) -> None:
    async with peer.opened(CALLERS):
        await peer.work()


COMMANDS: dict[str, Callable[[Peer, int], Coroutine[Any, Any, None]]] = {
    each.__name__: each for each in (install, one, callers, bulk, starts, work)
}


def main(peer: Peer, run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run) -> None:
    """Do what the command line says; `run` is the event loop that the contestant's own command line would use."""
    command, *rest = sys.argv[1:]
    run(COMMANDS[command](peer, int(rest[0]) if rest else 0))
