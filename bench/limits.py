"""What do limits and fair shares cost? The same tasks claimed and settled with and without them, in one run.

`--case never-full` has 50 partitions with room for 20 each, which 50 slots never fill: drains from some depths, and a
steady flow in and out. It is the limit itself that is measured then, not that tasks have to wait for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from dibs.core.histogram import Histogram, add, percentile
from dibs.core.settings import Limit, QueueSettings
from dibs.core.task import Lease, Outcome, Settlement
from dibs.core.times import HOUR
from dibs.engines.base import Engine
from dibs.engines.open import open_engine
from dibs.engines.values import ClaimRequest
from dibs.runtime.ids import IdMaker
from dibs.testing.tasks import new_task

QUEUE = "bench"
GROUPS = 10_000
Make = Callable[[int], dict[str, str]]

new_id = IdMaker()

CONTESTS: dict[str, tuple[QueueSettings, Make]] = {
    "no limits": (QueueSettings(), lambda _: {}),
    "1 per partition": (QueueSettings(per_partition=Limit(1)), lambda number: {"partition": str(number % GROUPS)}),
    "beside a full partition": (
        QueueSettings(per_partition=Limit(1)),
        lambda number: {"partition": str(number % GROUPS)},
    ),
    "fair tenants": (QueueSettings(fair=True), lambda number: {"tenant": str(number % GROUPS)}),
    "max_concurrent alone": (QueueSettings(max_concurrent=1000), lambda _: {}),
    "all at once": (
        QueueSettings(fair=True, per_partition=Limit(20), max_concurrent=1000, rate=1_000_000),
        lambda number: {"tenant": str(number % GROUPS), "partition": str(number % GROUPS)},
    ),
}
SLOTS = 50
NEVER_FULL: dict[str, tuple[QueueSettings, Make]] = {
    "no limits": CONTESTS["no limits"],
    "50 partitions of 20": (
        QueueSettings(per_partition=Limit(20)),
        lambda number: {"partition": str(number % SLOTS)},
    ),
}
TICK = 0.01
Stores = Callable[[], Any]
"""Gives a context with the URL of an empty store."""

WANTED = {
    "1 per partition": 0.5,
    "beside a full partition": 0.5,
    "fair tenants": 0.6,
    "max_concurrent alone": 0.8,
    "all at once": 0.3,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=("kinds", "never-full"), default="kinds")
    parser.add_argument("--engine", choices=("sqlite", "memory", "postgres"), default="sqlite")
    parser.add_argument("--url", help="the PostgreSQL server to measure on; else one is started")
    parser.add_argument("--waiting", type=int, nargs="+", default=[3000, 10_000, 30_000], help="depths to drain from")
    parser.add_argument("--rate", type=int, default=1500, help="tasks a second, for the flow")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the flow lasts")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=50, help="tasks per claim")
    parser.add_argument("--full", type=int, default=100_000, help="tasks of the partition that is full")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with stores(options) as empty_store:
        report = compare_kinds if options.case == "kinds" else measure_never_full
        report(options, empty_store)


def compare_kinds(options: argparse.Namespace, empty_store: Stores) -> None:
    rates: dict[str, list[float]] = {name: [] for name in CONTESTS}
    for _ in range(options.rounds):
        for name in CONTESTS:
            with empty_store() as url:
                rates[name].append(asyncio.run(contest(name, options, url)))
    figures = {name: median(values) for name, values in rates.items()}
    base = figures["no limits"]
    if options.json:
        print(json.dumps({name: {"per_second": round(f), "ratio": round(f / base, 2)} for name, f in figures.items()}))
        return
    for name, figure in figures.items():
        wanted = f" (at least {WANTED[name]} wanted)" if name in WANTED else ""
        print(f"{name:>24}: {figure:8,.0f}/s, {figure / base:.2f} ×{wanted}")


def measure_never_full(options: argparse.Namespace, empty_store: Stores) -> None:
    drains: dict[str, dict[str, float]] = {}
    for waiting in options.waiting:
        rates: dict[str, list[float]] = {name: [] for name in NEVER_FULL}
        for _ in range(options.rounds):
            for name in NEVER_FULL:
                with empty_store() as url:
                    rates[name].append(asyncio.run(drain_from(name, waiting, url)))
        drains[str(waiting)] = {name: round(median(values)) for name, values in rates.items()}
    flows: dict[str, dict[str, Any]] = {}
    for name in NEVER_FULL:
        with empty_store() as url:
            flows[name] = asyncio.run(Flow(name, options.rate, options.seconds).run(url))
    if options.json:
        print(json.dumps({"drain": drains, "flow": flows}))
        return
    for depth, each in drains.items():
        free, limited = each.values()
        print(f"drain from {int(depth):7,}: {free:8,.0f}/s without, {limited:8,.0f}/s with, {limited / free:.2f} ×")
    for name, flow in flows.items():
        print(
            f"{flow['in_per_second']:,}/s in, {name:>19}: {flow['out_per_second']:8,}/s out, {flow['waiting']:7,} "
            f"waiting at the end, claim P50 {flow['claim_ms_p50']} ms, P99 {flow['claim_ms_p99']} ms"
        )


@contextmanager
def stores(options: argparse.Namespace) -> Iterator[Stores]:
    """Where empty stores come from."""
    if options.engine == "postgres":
        from postgres_server import serving

        with serving(options.url) as server:
            yield server.database
        return

    @contextmanager
    def in_folder() -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="dibs-limits-") as place:
            yield "memory://" if options.engine == "memory" else f"sqlite:///{Path(place)}/bench.db"

    yield in_folder


@asynccontextmanager
async def opened(url: str) -> Iterator[Engine]:  # type: ignore[misc]
    engine = open_engine(url)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def drain_from(name: str, waiting: int, url: str) -> float:
    """Tasks per second from the first claim until none of so many waits any more."""
    settings, facts = NEVER_FULL[name]
    async with opened(url) as engine:
        await engine.set_queue(QUEUE, settings, expected=0)
        await fill(engine, waiting, facts, priority=50)
        began = time.perf_counter()
        done = await drain(engine, SLOTS, waiting)
        return done / (time.perf_counter() - began)


class Flow:
    """A producer at a steady rate, and a worker's claims and settlements, each on its own engine."""

    def __init__(self, name: str, rate: int, seconds: float) -> None:
        self.settings, self.facts = NEVER_FULL[name]
        self.rate = rate
        self.seconds = seconds
        self.enqueued = self.done = 0
        self.claims: Histogram = {}

    async def run(self, url: str) -> dict[str, Any]:
        async with opened(url) as producer:
            worker = producer.sibling() if url == "memory://" else open_engine(url)
            await worker.open()
            try:
                await producer.set_queue(QUEUE, self.settings, expected=0)
                began = time.monotonic()
                working = asyncio.create_task(self.work(worker))
                await self.produce(producer, began)
                took = time.monotonic() - began
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            finally:
                await worker.close()
        spans = [percentile(self.claims, share) for share in (0.5, 0.99)]
        p50, p99 = (None if span is None else round(span / 1000, 2) for span in spans)
        return {
            "in_per_second": round(self.enqueued / took),
            "out_per_second": round(self.done / took),
            "waiting": self.enqueued - self.done,
            "claim_ms_p50": p50,
            "claim_ms_p99": p99,
        }

    async def produce(self, engine: Engine, began: float) -> None:
        """What is due by the clock, whether or not the worker keeps up."""
        while (since := time.monotonic() - began) < self.seconds:
            due = min(1000, int(since * self.rate) - self.enqueued)
            if due > 0:
                numbers = range(self.enqueued, self.enqueued + due)
                await engine.enqueue([new_task(new_id(), QUEUE, "work", **self.facts(n)) for n in numbers])
                self.enqueued += due
            await asyncio.sleep(TICK)

    async def work(self, engine: Engine) -> None:
        sequence = 0
        while True:
            sequence += 1
            began = time.perf_counter()
            found = await engine.claim(ClaimRequest(worker="bench", sequence=sequence, queues=(QUEUE,), limit=SLOTS))
            add(self.claims, round((time.perf_counter() - began) * 1_000_000))
            if not found.tasks:
                await asyncio.sleep(TICK)
                continue
            leases = [Lease(task.id, task.lease) for task in found.tasks]
            await engine.settle([Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in leases])
            self.done += len(leases)


async def contest(name: str, options: argparse.Namespace, url: str) -> float:
    """Tasks per second from the first claim to the last settlement."""
    settings, facts = CONTESTS[name]
    async with opened(url) as engine:
        await engine.set_queue(QUEUE, settings, expected=0)
        if name == "beside a full partition":
            await fill(engine, options.full, lambda _: {"partition": "full"}, priority=90)
            blocker = ClaimRequest(worker="blocker", sequence=1, queues=(QUEUE,), limit=1, lease=HOUR)
            assert len((await engine.claim(blocker)).tasks) == 1
        await fill(engine, options.tasks, facts, priority=50)
        began = time.perf_counter()
        done = await drain(engine, options.batch, options.tasks)
        return done / (time.perf_counter() - began)


async def fill(engine: Engine, count: int, facts: Make, priority: int) -> None:
    for start in range(0, count, 1000):
        numbers = range(start, min(start + 1000, count))
        await engine.enqueue([new_task(new_id(), QUEUE, "work", priority=priority, **facts(n)) for n in numbers])


async def drain(engine: Engine, batch: int, count: int) -> int:
    done = sequence = 0
    while done < count:
        sequence += 1
        claimed = await engine.claim(ClaimRequest(worker="bench", sequence=sequence, queues=(QUEUE,), limit=batch))
        assert claimed.tasks, f"nothing to claim after {done:,} of {count:,}"
        leases = [Lease(task.id, task.lease) for task in claimed.tasks]
        await engine.settle([Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in leases])
        done += len(leases)
    return done


if __name__ == "__main__":
    main()
