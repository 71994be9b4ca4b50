"""Dibs' own side of the PostgreSQL comparison: the commands of `peers.py`.

One at a time and in bulk are blocking calls, measured as `dibs bench` does it, once the store is open; 64 callers are
coroutines, as those of its peers are. Its workers are `dibs worker peer_dibs:app`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import peers
import signals
from dibs import Dibs
from dibs.benchmark import measures
from dibs.benchmark.app import QUEUES

app = Dibs(peers.URL or "memory://")


@app.task(name="bench.nothing", queue=QUEUES[0])
async def nothing(number: int) -> int:
    signals.tell_done()
    return number


@app.task(name="bench.started", queue=QUEUES[0])
async def started() -> None:
    signals.tell_started()


def install(count: int) -> None:
    """Opening the store makes its tables."""
    app.queues.list()


def one(count: int) -> None:
    print(measures.enqueue_one(app, count))


def callers(count: int) -> None:
    asyncio.run(call_at_once(max(1, count // peers.CALLERS)))


async def call_at_once(each: int) -> None:
    async def call() -> None:
        for number in range(each):
            await nothing.aenqueue(number)

    await nothing.aenqueue(0)
    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(peers.CALLERS)))
    print(peers.CALLERS * each / (time.perf_counter() - began))


def bulk(count: int) -> None:
    app.queues.list()
    print(measures.enqueue_bulk(app, count))


def starts(count: int) -> None:
    for _ in sys.stdin:
        sent = time.time()
        started.enqueue()
        print(sent, flush=True)


COMMANDS: dict[str, Callable[[int], None]] = {each.__name__: each for each in (install, one, callers, bulk, starts)}

if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    with app:
        COMMANDS[command](int(rest[0]) if rest else 0)
