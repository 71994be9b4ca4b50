"""What does a task cost in bytes? Waiting, running and finished; and what do heartbeats write?

Sizes are of packed tables and their indexes (VACUUM, on PostgreSQL VACUUM FULL) less the empty ones. Heartbeats are
those of one worker with 1,000 running tasks, six a minute: bytes of WAL on PostgreSQL, bytes written on SQLite.
`--old SRC` measures the package in another folder in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from depth import stores
from dibs.core.task import Lease, Outcome, Settlement
from dibs.core.times import SECOND
from dibs.engines.open import open_engine
from dibs.engines.values import ClaimRequest, Extension
from dibs.runtime.ids import IdMaker
from dibs.testing.tasks import new_task

QUEUE = "bench"
RUNNING = 1000
BEATS = 6
PACKED = ("tasks", "finished")
ARGS = b'["' + b"x" * 96 + b'"]'

new_id = IdMaker()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--old", metavar="SRC", help="the package before a change")
    parser.add_argument("--postgres", nargs="?", const="", metavar="URL", help="on PostgreSQL, as for depth.py")
    parser.add_argument("--measure", metavar="STORE", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(measure(options.measure, options.tasks))))
        return
    sources = {"new": str(Path(__file__).parents[1] / "src"), **({"old": options.old} if options.old else {})}
    with tempfile.TemporaryDirectory(prefix="dibs-sizes-") as place, stores(Path(place), options.postgres) as urls:
        figures = {name: in_process(source, urls(name)) for name, source in sources.items()}
    if options.json:
        print(json.dumps(figures))
        return
    for each in figures["new"]:
        print(f"{each:>32}: " + "  ".join(f"{name} {found[each]:12,.1f}" for name, found in figures.items()))


def in_process(source: str, url: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", url, *(word for word in sys.argv[1:] if word != "--json")]
    found = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(found.stdout)
    return figures


async def measure(url: str, count: int) -> dict[str, float]:
    engine = open_engine(url)
    await engine.open()
    figures = {}
    empty = await packed(url)
    try:
        tasks = [new_task(new_id(), QUEUE, "work", args=ARGS) for _ in range(count)]
        for start in range(0, count, 1000):
            await engine.enqueue(tasks[start : start + 1000])
        figures["bytes of a waiting task"] = (await packed(url) - empty) / count
        claims = [await claim(engine, number) for number in range(count // RUNNING)]
        leases = [Lease(task.id, task.lease) for found in claims for task in found]
        figures["bytes of a running task"] = (await packed(url) - empty) / count
        for minute in (1, 2):
            before, began = await written(url), time.perf_counter()
            for _ in range(BEATS):
                await engine.extend([Extension(lease, 30 * SECOND) for lease in leases[:RUNNING]])
            figures[f"ms of a heartbeat, minute {minute}"] = (time.perf_counter() - began) * 1000 / BEATS
            figures[f"bytes of heartbeats, minute {minute}"] = await written(url) - before
        for start in range(0, count, 1000):
            ends = [Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in leases[start : start + 1000]]
            await engine.settle(ends)
        figures["bytes of a finished task"] = (await packed(url) - empty) / count
    finally:
        await engine.close()
    return figures


async def claim(engine: Any, number: int) -> list[Any]:
    request = ClaimRequest(worker="bench", sequence=number, queues=(QUEUE,), limit=RUNNING)
    return list((await engine.claim(request)).tasks)


async def packed(url: str) -> int:
    """How many bytes the tasks of a store take up, packed."""
    if url.startswith("sqlite"):
        with tempfile.NamedTemporaryFile(suffix=".db") as copy:
            source = sqlite3.connect(url.removeprefix("sqlite:///"))
            source.execute("VACUUM INTO ?", (copy.name,))
            source.close()
            return Path(copy.name).stat().st_size
    async with connected(url) as connection:
        size = 0
        tables = await connection.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname ~ $2",
            url.rpartition("schema=")[2], f"^({'|'.join(PACKED)})",
        )  # fmt: skip
        for (table,) in tables:
            await connection.execute(f"VACUUM FULL {table}")
            size += await connection.fetchval("SELECT pg_total_relation_size($1::text::regclass)", table)
    return size


async def written(url: str) -> int:
    """Bytes of WAL since the server was made, or bytes that this process has written."""
    if url.startswith("sqlite"):
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])
    async with connected(url) as connection:
        return int(await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'"))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection to a PostgreSQL store's database, for what no engine says."""
    import asyncpg

    connection = await asyncpg.connect(url.rpartition("&schema=")[0])
    try:
        yield connection
    finally:
        await connection.close()


if __name__ == "__main__":
    main()
