"""How fast is a store without a worker around it? Bulk enqueue, and claims with settlements, through the seam.

`--old SRC` measures the package in another folder in the same run, in alternating rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from depth import stores

QUEUE = "bench"
FIGURES = ("one", "bulk", "drain", "wal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=30_000)
    parser.add_argument("--batch", type=int, default=200, help="tasks per claim and per settlement")
    parser.add_argument("--kinds", type=int, default=1, help="task names, of which the worker knows all")
    parser.add_argument("--priorities", type=int, default=1)
    parser.add_argument("--claimers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--old", metavar="SRC", help="the package before a change")
    parser.add_argument("--postgres", nargs="?", const="", metavar="URL", help="on PostgreSQL, as for depth.py")
    parser.add_argument("--measure", metavar="STORE", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(measure(options.measure, options))))
        return
    sources = {"new": str(Path(__file__).parents[1] / "src"), **({"old": options.old} if options.old else {})}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
    with tempfile.TemporaryDirectory(prefix="dibs-seam-") as place, stores(Path(place), options.postgres) as urls:
        for number in range(options.rounds):
            for name in sources if number % 2 else [*sources][::-1]:
                found[name].append(in_process(sources[name], urls(f"{name}_{number}")))
    figures = {name: {each: median(row[each] for row in rows) for each in FIGURES} for name, rows in found.items()}
    if options.json:
        print(json.dumps(figures))
        return
    for each in FIGURES:
        line = "  ".join(f"{name} {figures[name][each]:10,.0f}" for name in figures)
        ratio = f"  {figures['new'][each] / figures['old'][each]:.2f} ×" if options.old and figures["old"][each] else ""
        print(f"{each:>6}: {line}{ratio}")


def in_process(source: str, url: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", url, *(word for word in sys.argv[1:] if word != "--json")]
    answer = subprocess.run(command, env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


async def measure(url: str, options: argparse.Namespace) -> dict[str, float]:
    """Tasks per second; and on PostgreSQL, the bytes of WAL that draining one task wrote."""
    from dibs.engines.open import open_engine
    from dibs.runtime.ids import IdMaker
    from dibs.testing.tasks import new_task

    new_id, engine = IdMaker(), open_engine(url)
    await engine.open()
    try:

        def task(number: int) -> Any:
            name = f"work{number % options.kinds}"
            return new_task(new_id(), QUEUE, name, priority=50 + number * 7 % options.priorities)

        began = time.perf_counter()
        few = min(2000, options.tasks)
        for number in range(few):
            await engine.enqueue([task(number)])
        one = few / (time.perf_counter() - began)
        tasks = [task(number) for number in range(options.tasks)]
        began = time.perf_counter()
        for start in range(0, len(tasks), 1000):
            await engine.enqueue(tasks[start : start + 1000], atomic=True)
        bulk = len(tasks) / (time.perf_counter() - began)
        total, wal = few + len(tasks), await wal_of(url)
        began = time.perf_counter()
        share = [total // options.claimers + (number < total % options.claimers) for number in range(options.claimers)]
        await asyncio.gather(*(drain(engine, f"w{n}", options) for n, _ in enumerate(share)))
        drained = total / (time.perf_counter() - began)
        return {"one": one, "bulk": bulk, "drain": drained, "wal": (await wal_of(url) - wal) / total}
    finally:
        await engine.close()


async def drain(engine: Any, worker: str, options: argparse.Namespace) -> None:
    """Settle what was claimed before while the next claim is under way, as a worker does."""
    from dibs.core.task import Lease, Outcome, Settlement
    from dibs.engines.values import ClaimRequest

    names = tuple(f"work{number}" for number in range(options.kinds))
    settling: asyncio.Task[Any] | None = None
    sequence = 0
    while True:
        sequence += 1
        asked = ClaimRequest(worker=worker, sequence=sequence, queues=(QUEUE,), limit=options.batch, names=names)
        tasks = (await engine.claim(asked)).tasks
        if settling is not None:
            answers = await settling
            assert all(answer.outcome == "done" for answer in answers), answers[0]
        if not tasks:
            return
        settlements = [
            Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED, result=b"1") for task in tasks
        ]
        settling = asyncio.create_task(engine.settle(settlements))


async def wal_of(url: str) -> float:
    if not url.startswith("postgres"):
        return 0.0
    from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

    import asyncpg

    parts = urlsplit(url)
    query = urlencode([(key, value) for key, value in parse_qsl(parts.query) if key in ("host", "port")])
    connection = await asyncpg.connect(urlunsplit((*parts[:3], query, "")))
    try:
        found = await connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        return float(found)
    finally:
        await connection.close()


if __name__ == "__main__":
    main()
