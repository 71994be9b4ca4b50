"""How long does a page of a search take at a million tasks?

    python bench/search.py                  # on a SQLite file
    python bench/search.py --postgres       # on a PostgreSQL server of its own; or --postgres URL
    python bench/search.py --tasks 100000 --rate 5000

Fills the store through the engine: tasks of several queues and names, tenants, partitions, keys and workers, whose ids
are spread over time at the given rate; half of them completed, some dead, cancelled, running, scheduled, retrying. Then
times the first page of each search, the median of five, and counts the rows that it visited.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from dibs.core.ids import uuid7
from dibs.core.states import State
from dibs.core.task import Lease, NewTask, Outcome, Settlement, TaskSpec
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.base import Engine
from dibs.engines.open import open_engine
from dibs.engines.values import Cancel, ClaimRequest, Query

BATCH = 1000
ROUNDS = 5
NAMES = ("send", "resize", "index", "report")


class Fill:
    """Fills a store, with a clock of its own."""

    def __init__(self, engine: Engine, tasks: int, rate: int) -> None:
        self.engine, self.tasks, self.rate = engine, tasks, rate
        self.random = random.Random(7)
        self.start = time.time_ns() // 1000 - tasks * SECOND // rate - HOUR
        self.made = self.sequence = 0

    @property
    def now(self) -> int:
        return self.start + self.made * SECOND // self.rate

    def batch(self, queue: str, name: str, **facts: object) -> list[NewTask]:
        """Like tasks, as most batches are."""
        found = []
        for _ in range(BATCH):
            task_id = uuid7(self.now // 1000, self.made & 0xFFF, self.random.getrandbits(62))
            found.append(NewTask(id=task_id, queue=queue, name=name, args=b'{"to":"ada"}', **facts))
            self.made += 1
        return found

    def batches(self) -> Iterator[list[NewTask]]:
        """Most are plain; the rest has what searches look for."""
        for number in range(self.tasks // BATCH):
            kind, queue = number % 20, f"queue-{number % 5}"
            spec = TaskSpec(tenant=f"tenant-{number % 200}", partition=f"partition-{number % 50}", key=None)
            if kind == 3:
                yield self.batch(queue, "tenants", spec=spec)
            elif kind == 4:
                yield self.batch(queue, "later", delay=DAY)
            elif kind == 5:
                yield self.batch("gone", "dying")
            elif kind == 6:
                yield self.batch("dropped", "dropped")
            else:
                yield self.batch(queue, NAMES[number % len(NAMES)])

    async def fill(self) -> None:
        for number, tasks in enumerate(self.batches()):
            if number == self.tasks // BATCH // 3:
                await self.add_rare()
            await self.engine.enqueue(tasks, now=self.now)
            if number % 2:
                await self.complete(f"worker-{number % 8}", f"queue-{number % 5}")
            await self.end(number)

    async def add_rare(self) -> None:
        """What is behind hundreds of thousands of others."""
        spec = TaskSpec(tenant="rare", partition="rare", key="order-7")
        (rare,) = self.batch("rare", "rare", spec=spec)[:1]
        await self.engine.enqueue([rare], now=self.now)
        await self.complete("rare-worker", "rare")
        (held,) = self.batch("held", "held")[:1]
        await self.engine.enqueue([held], now=self.now)
        await self.claim("busy", "held")

    async def claim(self, worker: str, queue: str) -> list[Settlement]:
        self.sequence += 1
        request = ClaimRequest(worker=worker, sequence=self.sequence, queues=(queue,), limit=BATCH, lease=30 * DAY)
        found = await self.engine.claim(request, now=self.now)
        return [Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED) for task in found.tasks]

    async def complete(self, worker: str, queue: str) -> None:
        await self.engine.settle(await self.claim(worker, queue), now=self.now)

    async def end(self, number: int) -> None:
        if number % 20 == 5 and number % 40 == 5:
            runs = await self.claim("unlucky", "gone")
            dead = [Settlement(lease=run.lease, outcome=Outcome.PERMANENT) for run in runs]
            await self.engine.settle(dead, now=self.now)
        elif number % 20 == 6 and number % 40 == 6:
            found = await self.engine.search(Query(queues=("dropped",), states=(State.PENDING,), limit=500))
            await self.engine.act([Cancel(task.id) for task in found.tasks], now=self.now)


def queries(fill: Fill) -> dict[str, Query]:
    middle = fill.start + (fill.now - fill.start) // 3
    states = {f"state {state}": Query(states=(state,)) for state in State}
    return {
        "all": Query(),
        **states,
        "queue, common": Query(queues=("queue-1",)),
        "queue, rare": Query(queues=("rare",)),
        "name, common": Query(names=("send",)),
        "name, rare": Query(names=("held",)),
        "queue and state": Query(queues=("dropped",), states=(State.PENDING,)),
        "running, rare name": Query(names=("held",), states=(State.RUNNING,)),
        "worker, common": Query(worker="worker-1"),
        "worker, rare": Query(worker="rare-worker"),
        "key": Query(key="order-7"),
        "tenant": Query(tenant="tenant-3"),
        "tenant, rare": Query(tenant="rare"),
        "partition": Query(partition="partition-3"),
        "partition, rare": Query(partition="rare"),
        "created before": Query(created_before=middle),
        "created between": Query(created_after=middle, created_before=middle + MINUTE),
        "created, name, state": Query(created_before=middle, names=("send",), states=(State.COMPLETED,)),
        "unknown name": Query(names=("nothing",)),
        "unknown key": Query(key="nothing"),
        "priority (budget)": Query(priority_min=90),
        "metadata (budget)": Query(metadata={"a": 1}),
        "text (budget)": Query(text="grace"),
    }


async def measure(engine: Engine, fill: Fill) -> None:
    print(f"{'search':24} {'ms':>8} {'found':>6} {'visited':>9}  goes on")
    for name, query in queries(fill).items():
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            page = await engine.search(query)
            times.append(time.perf_counter() - began)
        goes_on = "" if page.cursor is None or len(page.tasks) == query.limit else "yes"
        print(f"{name:24} {1000 * median(times):8.1f} {len(page.tasks):6} {page.visited:9,}  {goes_on}")


async def shares(engine: Engine) -> str:
    """How many tasks there are in each state."""
    queues = (await engine.counts()).tasks.values()
    return ", ".join(f"{sum(counts[state] for counts in queues):,} {state}" for state in State)


@contextmanager
def store(postgres: str | None) -> Iterator[str]:
    """The URL of an empty store."""
    if postgres is None:
        with tempfile.TemporaryDirectory(prefix="dibs-search-") as folder:
            yield f"sqlite:///{Path(folder) / 'tasks.db'}"
        return
    from postgres_server import serving

    with serving(postgres or None) as server, server.database() as url:
        yield url


async def run(url: str, tasks: int, rate: int) -> None:
    engine = open_engine(url)
    await engine.open()
    try:
        fill = Fill(engine, tasks, rate)
        began = time.perf_counter()
        await fill.fill()
        print(f"{tasks:,} tasks in {time.perf_counter() - began:.0f} s: {await shares(engine)}", flush=True)
        await measure(engine, fill)
    finally:
        await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--postgres", nargs="?", const="", help="on a server of our own, or on the one of this URL")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=2_000, help="tasks a second, by their ids")
    options = parser.parse_args()
    with store(options.postgres) as url:
        asyncio.run(run(url, options.tasks, options.rate))


if __name__ == "__main__":
    main()
