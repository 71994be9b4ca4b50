"""How fast do dependents come free? A fan-out from one task and a fan-in to one, against unconnected tasks."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median

from dibs.core.graph import Edge
from dibs.core.states import State
from dibs.core.task import Lease, NewTask, Outcome, Settlement
from dibs.engines.base import Engine
from dibs.engines.open import open_engine
from dibs.engines.values import Claimed, ClaimRequest
from dibs.runtime.ids import IdMaker

QUEUE = "bench"
WANTED = 1.0
"""Seconds from the completion of the first task until all its dependents are pending."""

new_id = IdMaker()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("sqlite", "memory"), default="sqlite")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=50, help="tasks per claim")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds = [asyncio.run(measure(options)) for _ in range(options.rounds)]
    figures = {name: round(median(each[name] for each in rounds), 3) for name in rounds[0]}
    if options.json:
        print(json.dumps(figures))
        return
    count = options.tasks
    print(f"enqueue, unconnected:      {figures['enqueue_plain']:7.3f} s")
    print(f"enqueue, as one workflow:  {figures['enqueue_workflow']:7.3f} s")
    print(f"unblock {count:,} at once:   {figures['unblock']:7.3f} s (at most {WANTED:g} s wanted)")
    print(f"drain, unconnected:        {figures['drain_plain']:7.3f} s")
    print(f"drain, joined at the end:  {figures['drain_joined']:7.3f} s")


async def measure(options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="dibs-waiting-") as place:
        engine = open_engine("memory://" if options.engine == "memory" else f"sqlite:///{Path(place)}/bench.db")
        await engine.open()
        try:
            return await rounds_of(engine, options.tasks, options.batch)
        finally:
            await engine.close()


async def rounds_of(engine: Engine, count: int, batch: int) -> dict[str, float]:
    figures = {}
    began = time.perf_counter()
    await engine.enqueue([new() for _ in range(count)], atomic=True)
    figures["enqueue_plain"] = time.perf_counter() - began
    began = time.perf_counter()
    await drain(engine, batch, 0)
    figures["drain_plain"] = time.perf_counter() - began

    first = new()
    middle = [new(first) for _ in range(count)]
    began = time.perf_counter()
    await engine.enqueue([first, *middle, new(*middle)], atomic=True)
    figures["enqueue_workflow"] = time.perf_counter() - began
    claimed = await claim(engine, 1)
    began = time.perf_counter()
    await settle(engine, claimed)
    while (await claim(engine, 0)).next_due_in == 0:
        pass
    figures["unblock"] = time.perf_counter() - began
    assert ((await engine.counts()).tasks)[QUEUE][State.PENDING] == count
    began = time.perf_counter()
    await drain(engine, batch, 0)
    figures["drain_joined"] = time.perf_counter() - began
    return figures


def new(*needs: NewTask) -> NewTask:
    return NewTask(id=new_id(), queue=QUEUE, name="work", after=tuple(Edge(need.id) for need in needs))


sequences = iter(range(1, 2**31))


async def claim(engine: Engine, limit: int) -> Claimed:
    return await engine.claim(ClaimRequest(worker="bench", sequence=next(sequences), queues=(QUEUE,), limit=limit))


async def settle(engine: Engine, claimed: Claimed) -> None:
    leases = [Lease(task.id, task.lease) for task in claimed.tasks]
    await engine.settle([Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in leases])


async def drain(engine: Engine, batch: int, left: int) -> None:
    """Until nothing is left that can be claimed."""
    while (claimed := await claim(engine, batch)).tasks or claimed.next_due_in == 0:
        await settle(engine, claimed)
    assert ((await engine.counts()).tasks)[QUEUE][State.PENDING] == left


if __name__ == "__main__":
    main()
