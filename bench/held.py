"""What does a forgotten transaction do to a queue? A steady rate in and out while an old snapshot is held.

Nothing that was deleted since can be cleaned away, so a claim that begins at the lowest rank walks over ever more dead
entries. `--plain` shows that form at the same rate, `--free` the same without the held transaction. `--dead` has so
many tasks come and go at once, before the first line, as hours of work would leave them. `--tasks` chooses what they
are like: all alike, or of mixed priorities, also in a fair queue of 50 tenants, or in 50 partitions that are never
full.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from dibs.core.histogram import Histogram, add, percentile
from held_app import make_app
from held_plain import Plain
from postgres_server import serving

HERE = Path(__file__).parent
TICK = 0.01
MOST = 1000
"""Tasks per call of the producer, when it is behind."""

PATIENCE = 60.0
CONCURRENCY = 50
HOLD = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1"
AGE = "SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = $1"
PASSING = (
    """
    INSERT INTO dibs.tasks (id, rank, ready_at, lease_for, created_at, track, state, args, facts)
    SELECT
        lpad(to_hex(g), 32, '0')::uuid, t.rank - 1000 * ($1::bigint - g), t.ready_at - 1000 * ($1::bigint - g),
        30000000, t.created_at, t.track, 'pending', t.args, t.facts
    FROM (SELECT * FROM dibs.finished LIMIT 1) AS t, generate_series($2::bigint, $3::bigint) AS g
    """,
    "UPDATE dibs.tasks SET state = 'running', lease_expires_at = ready_at + lease_for WHERE state = 'pending'",
    "DELETE FROM dibs.tasks WHERE state = 'running'",
)
"""Tasks like the one that has run, one a millisecond until then: they are stored, given, and gone."""
AT_ONCE = 100_000
DEAD = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'tasks'"


KINDS: dict[str, tuple[dict[str, Any], Callable[[int], dict[str, Any]]]] = {
    "alike": ({}, lambda _: {}),
    "priorities": ({}, lambda _: {"priority": random.randint(0, 100)}),
    "fair": ({"fair": True}, lambda number: {"tenant": str(number % CONCURRENCY), "priority": random.randint(0, 100)}),
    "partitions": (
        {"per_partition": 20},
        lambda number: {"per": str(number % CONCURRENCY), "priority": random.randint(0, 100)},
    ),
}
"""The settings of the queue, and the options of each task."""


class Side(Protocol):
    """A producer and a worker. `claims`: all claims so far, by how long they took."""

    claims: Histogram

    async def open(self) -> None: ...
    async def enqueue(self, number: int) -> None: ...
    def check(self) -> None: ...
    async def close(self) -> None: ...


class Real(asyncio.DatagramProtocol):
    """Dibs: a producer in this process, a worker in another, which tells what it sees."""

    def __init__(self, url: str, started: Callable[[int], None], kind: str) -> None:
        self._url = url
        self._started = started
        self._settings, self._options = KINDS[kind]
        self._numbers = count()
        self.claims: Histogram = {}

    def datagram_received(self, data: bytes, addr: object) -> None:
        late, claims = json.loads(data)
        self.claims = {int(bucket): count for bucket, count in claims.items()}
        for each in late:
            self._started(each)

    async def open(self) -> None:
        self._app = make_app(self._url)
        await self._app.queues.aset("held", **self._settings)
        self._task = self._app.task_named("held.nothing")
        loop = asyncio.get_running_loop()
        self._ear, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        port = self._ear.get_extra_info("sockname")[1]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the rest
        self._worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "dibs",
                "worker",
                "held_app:app",
                "--queues",
                "held",
                "--concurrency",
                str(CONCURRENCY),
            ],
            env={**os.environ, "PYTHONPATH": str(HERE), "DIBS_URL": self._url, "BENCH_PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    async def enqueue(self, number: int) -> None:
        sent = time.time()
        options = (self._options(next(self._numbers)) for _ in range(number))
        await self._app.aenqueue_many([self._task.using(**each).call(sent=sent) for each in options])

    def check(self) -> None:
        if self._worker.poll() is not None:
            self._log.seek(0)
            sys.exit(f"the worker ended: {self._log.read()[-1000:]}")

    async def close(self) -> None:
        self._worker.kill()
        self._worker.wait()
        self._ear.close()
        self._log.close()
        await asyncio.to_thread(self._app.close)


class Watch:
    """What has been seen, a line at a time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._holder: asyncpg.Connection | None = None
        self._late: Histogram = {}
        self._claims: Histogram = {}
        self._enqueued = self._ran = 0
        self.enqueued = self.ran = 0
        self.lines: list[dict[str, Any]] = []

    def started(self, late: int) -> None:
        """A task has, so many microseconds after the call that enqueued it."""
        self.ran += 1
        add(self._late, late)

    def forget(self, claims: Histogram) -> None:
        """What went before the first line does not count."""
        self._late, self._claims, self.ran = {}, dict(claims), 0

    async def open(self, hold: bool) -> None:
        self._looker = await asyncpg.connect(self._url)
        if hold:
            self._holder = await asyncpg.connect(self._url)
            await self._holder.execute(HOLD)
            if await self._age() is None:
                sys.exit("the held transaction holds no snapshot: what follows would show nothing.")

    async def leave_dead(self, count: int) -> None:
        """Have so many tasks come and go, like the one that has run, once the worker has said so."""
        async with asyncio.timeout(PATIENCE):
            while not await self._looker.fetchval("SELECT count(*) FROM dibs.finished"):
                await asyncio.sleep(TICK)
        store, give, end = PASSING
        for first in range(1, count + 1, AT_ONCE):
            async with self._looker.transaction():  # the worker sees none of them
                await self._looker.execute(store, count, first, min(count, first + AT_ONCE - 1))
                await self._looker.execute(give)
                await self._looker.execute(end)

    async def _age(self) -> int | None:
        """How many transactions ago the held snapshot was taken."""
        return None if self._holder is None else await self._looker.fetchval(AGE, self._holder.get_server_pid())

    async def line(self, seconds: float, since: float, claims: Histogram) -> dict[str, Any]:
        """What has happened in the last `since` seconds."""
        new = {bucket: count - self._claims.get(bucket, 0) for bucket, count in claims.items()}
        made = {
            "seconds": round(seconds),
            "in_per_second": round((self.enqueued - self._enqueued) / since),
            "out_per_second": round((self.ran - self._ran) / since),
            "waiting": self.enqueued - self.ran,
            "start_ms_p50": milliseconds(self._late, 0.5),
            "start_ms_p99": milliseconds(self._late, 0.99),
            "claims": sum(new.values()),
            "claim_ms_p50": milliseconds(new, 0.5),
            "claim_ms_p99": milliseconds(new, 0.99),
            "dead_rows": await self._looker.fetchval(DEAD),
            "snapshot_age": await self._age(),
        }
        self._late, self._claims, self._enqueued, self._ran = {}, dict(claims), self.enqueued, self.ran
        self.lines.append(made)
        return made

    async def close(self) -> None:
        await self._looker.close()
        if self._holder is not None:
            await self._holder.close()


def milliseconds(histogram: Histogram, share: float) -> float | None:
    span = percentile(histogram, share)
    return None if span is None else round(span / 1000, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--url", help="the server to measure on, by someone who may create databases; else one is started"
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=2000, help="tasks a second")
    parser.add_argument("--every", type=float, default=30.0, help="seconds per line")
    parser.add_argument("--plain", action="store_true", help="a plain SKIP LOCKED loop instead of Dibs")
    parser.add_argument("--tasks", choices=tuple(KINDS), default="alike", help="what the tasks are like")
    parser.add_argument("--free", action="store_true", help="without the held transaction")
    parser.add_argument("--dead", type=int, default=0, help="tasks that have come and gone before the first line")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if options.plain and options.dead:
        parser.error("--dead is about the tables of Dibs")
    if options.tasks != "alike" and (options.plain or options.dead):
        parser.error("--plain and --dead have tasks that are all alike")
    with serving(options.url) as server:
        settings = server.settings()
        with server.database() as url:
            lines = asyncio.run(measure(url, options))
    form = "plain" if options.plain else "dibs"
    if options.json:
        report = {"form": form, "tasks": options.tasks, "held": not options.free, "server": settings, "lines": lines}
        print(json.dumps(report, indent=2))
        return
    first, last = lines[0], lines[-1]
    print(f"{form}, last line against the first: claim P50 {times(last, first, 'claim_ms_p50')},", end=" ")
    print(f"P99 {times(last, first, 'claim_ms_p99')}; out {times(last, first, 'out_per_second')}")


def times(last: dict[str, Any], first: dict[str, Any], figure: str) -> str:
    return f"{last[figure] / first[figure]:.2f} ×" if last[figure] and first[figure] else "–"


async def measure(url: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    watch = Watch(url)
    side: Side = Plain(url, watch.started) if options.plain else Real(url, watch.started, options.tasks)
    await side.open()
    await watch.open(hold=not options.free)
    try:
        await warm_up(side, watch)
        if options.dead:
            await watch.leave_dead(options.dead)
            watch.forget(side.claims)
        await steadily(side, watch, options)
    finally:
        await side.close()
        await watch.close()
    return watch.lines


async def warm_up(side: Side, watch: Watch) -> None:
    """Until the worker has run a task, so that its start is not measured."""
    await side.enqueue(1)
    async with asyncio.timeout(PATIENCE):
        while not watch.ran:
            side.check()
            await asyncio.sleep(TICK)
    watch.forget(side.claims)


async def steadily(side: Side, watch: Watch, options: argparse.Namespace) -> None:
    """Enqueue what is due by the clock, whether or not the worker keeps up; a line now and then."""
    began = shown = time.monotonic()
    until = began + options.minutes * 60
    if not options.json:
        print(HEAD)
    while shown < until:
        side.check()
        now = time.monotonic()
        due = min(MOST, int((now - began) * options.rate) - watch.enqueued)
        if due > 0:
            await side.enqueue(due)
            watch.enqueued += due
        if now >= min(shown + options.every, until):
            line = await watch.line(now - began, now - shown, side.claims)
            shown = now
            if not options.json:
                print(text_of(line), flush=True)
        await asyncio.sleep(max(0.0, TICK - (time.monotonic() - now)))


HEAD = "  time     in/s    out/s  waiting   start P50      P99   claim P50      P99   dead rows  snapshot age"


def text_of(line: dict[str, Any]) -> str:
    spans = [f"{line[name]:8.2f}" if line[name] is not None else "       –" for name in SPANS]
    age = "–" if line["snapshot_age"] is None else f"{line['snapshot_age']:,}"
    return (
        f"{line['seconds']:4d} s {line['in_per_second']:8,} {line['out_per_second']:8,} {line['waiting']:8,} "
        f"{spans[0]} ms {spans[1]} {spans[2]} ms {spans[3]} {line['dead_rows']:11,} {age:>13}"
    )


SPANS = ("start_ms_p50", "start_ms_p99", "claim_ms_p50", "claim_ms_p99")

if __name__ == "__main__":
    main()
