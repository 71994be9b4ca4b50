"""What do limits and fair shares cost? The same tasks claimed and settled with and without them, in one run."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from dibs.core.settings import Limit, QueueSettings
from dibs.core.task import Lease, NewTask, Outcome, Settlement
from dibs.core.times import HOUR
from dibs.engines.base import Engine
from dibs.engines.open import open_engine
from dibs.engines.values import ClaimRequest
from dibs.runtime.ids import IdMaker

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
}
WANTED = {"1 per partition": 0.5, "beside a full partition": 0.5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("sqlite", "memory"), default="sqlite")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=50, help="tasks per claim")
    parser.add_argument("--full", type=int, default=100_000, help="tasks of the partition that is full")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in CONTESTS}
    for _ in range(options.rounds):
        for name in CONTESTS:
            rates[name].append(asyncio.run(contest(name, options)))
    figures = {name: median(values) for name, values in rates.items()}
    base = figures["no limits"]
    if options.json:
        print(json.dumps({name: {"per_second": round(f), "ratio": round(f / base, 2)} for name, f in figures.items()}))
        return
    for name, figure in figures.items():
        wanted = f" (at least {WANTED[name]} wanted)" if name in WANTED else ""
        print(f"{name:>24}: {figure:8,.0f}/s, {figure / base:.2f} ×{wanted}")


@asynccontextmanager
async def opened(kind: str) -> Iterator[Engine]:  # type: ignore[misc]
    with tempfile.TemporaryDirectory(prefix="dibs-limits-") as place:
        engine = open_engine("memory://" if kind == "memory" else f"sqlite:///{Path(place)}/bench.db")
        await engine.open()
        try:
            yield engine
        finally:
            await engine.close()


async def contest(name: str, options: argparse.Namespace) -> float:
    """Tasks per second from the first claim to the last settlement."""
    settings, facts = CONTESTS[name]
    async with opened(options.engine) as engine:
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
        await engine.enqueue(
            [NewTask(id=new_id(), queue=QUEUE, name="work", priority=priority, **facts(n)) for n in numbers]
        )


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
