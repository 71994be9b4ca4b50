"""Real worker processes on a SQLite file and on PostgreSQL: killed, stopped, asked to leave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
import sqlite_app
from worker_support import eventually

from dibs.client.app import Dibs
from dibs.core.settings import Defaults
from dibs.core.states import Reason, State
from dibs.core.task import HistoryEvent, NewTask, TaskRecord
from dibs.core.times import SECOND
from dibs.testing.tasks import changed
from dibs.worker import ExitCode
from servers.postgres import new_url, server_url

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")

Spawn = Callable[..., "subprocess.Popen[bytes]"]


class Store:
    """The store under test, seen from outside."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.url = f"sqlite:///{folder / 'tasks.db'}" if kind == "sqlite" else new_url()
        self.app = Dibs(self.url)

    def enqueue(self, name: str, **args: Any) -> str:
        """A task, by name: the functions are the worker process's own."""
        return self.enqueue_all([(name, args)])[0]

    def enqueue_all(self, calls: list[tuple[str, dict[str, Any]]], options: Defaults = Defaults()) -> list[str]:
        hub = self.app.hub
        plain = [NewTask(id=hub.new_id(), queue="default", name=n, args=json.dumps(a).encode()) for n, a in calls]
        news = [changed(new, options=options) for new in plain]
        hub.runner.run(hub.engine.enqueue(news))
        return [new.id for new in news]

    def record(self, task_id: str) -> TaskRecord:
        record = self.app.hub.runner.run(self.app.hub.engine.get([task_id]))[0]
        assert record is not None
        return record

    def ended(self, ids: list[str]) -> bool:
        counts = (self.app.hub.runner.run(self.app.hub.engine.counts())).tasks["default"]
        return counts[State.COMPLETED] + counts[State.DEAD] + counts[State.CANCELLED] == len(ids)

    def file(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture(params=["sqlite", "postgres"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    store = Store(tmp_path, request.param)
    yield store
    store.app.close()


@pytest.fixture
def spawn(store: Store) -> Iterator[Spawn]:
    """Starts worker processes, and ends those that are left."""
    started: list[subprocess.Popen[bytes]] = []

    def start(processes: int | None = None, **settings: Any) -> subprocess.Popen[bytes]:
        settings = {"queues": ["default"], **settings}
        command = [sys.executable, sqlite_app.__file__, store.url, json.dumps(settings)]
        process = subprocess.Popen(command + ([] if processes is None else [str(processes)]))
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.wait()


def leads(store: Store, name: str) -> bool:
    """Whether this worker is the leader, as far as another can see."""
    chores = (store.app.hub.runner.run(store.app.hub.engine.about())).chores
    return any(chore.at for chore in chores) and bool(workers_named(store, name))


def workers_named(store: Store, name: str) -> list[Any]:
    return [each for each in store.app.hub.runner.run(store.app.hub.engine.workers()) if each.id == name]


def has_stopped(pid: int) -> bool:
    """Whether every thread of a process stands still: the signal reaches them one after the other."""
    threads = Path(f"/proc/{pid}/task")
    if not threads.is_dir():
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return all((each / "stat").read_text().rpartition(")")[2].split()[0] in "Tt" for each in threads.iterdir())


async def has_open_transactions() -> bool:
    """Whether any session of Dibs's is in a transaction, at this server of ours."""
    own = await asyncpg.connect(server_url())
    try:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dibs' AND xact_start IS NOT NULL"
        return bool(await own.fetchval(sessions))
    finally:
        await own.close()


def stopped_outside_a_transaction(process: subprocess.Popen[bytes], store: Store) -> bool:
    """Stop a process; on if it was inside a transaction: others would wait for that, whatever a queue does."""
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: has_stopped(process.pid))
    if store.kind != "sqlite":
        if asyncio.run(has_open_transactions()):
            process.send_signal(signal.SIGCONT)
            return False
        return True
    with closing(sqlite3.connect(store.folder / "tasks.db", timeout=0.1, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            return False
        connection.execute("ROLLBACK")
    return True


@pytest.mark.parametrize("task", ["hold", "hold_in_thread"])
def test_the_tasks_of_a_killed_worker_run_again_long_before_their_leases_end(
    store: Store, spawn: Spawn, task: str
) -> None:
    first = spawn(name="first")
    held = store.enqueue(task, file=str(store.file("a")))
    eventually(store.file("a.1").exists)
    eventually(lambda: leads(store, "first"))
    spawn(name="second")
    eventually(lambda: workers_named(store, "second"))
    killed_at = time.monotonic()
    first.send_signal(signal.SIGKILL)
    eventually(store.file("a.2").exists)
    # On an idle machine it takes 2 to 3 s, on a busy one more. Without presence it would be the 30 s of the lease.
    assert time.monotonic() - killed_at < 15
    eventually(lambda: store.record(held).state is State.COMPLETED)
    record = store.record(held)
    assert (record.result, record.losses, record.attempts) == (b'"by run 2"', 1, 0)
    assert [entry.event for entry in store.app.handle(held).history()] == [HistoryEvent.LOST]


def test_a_worker_stopped_past_its_lease_settles_nothing(store: Store, spawn: Spawn) -> None:
    first = spawn(name="first", lease=1)
    held = store.enqueue("hold", file=str(store.file("a")))
    eventually(store.file("a.1").exists)
    eventually(lambda: leads(store, "first"))
    eventually(lambda: stopped_outside_a_transaction(first, store))
    spawn(name="second", hold_off=2)
    eventually(lambda: store.record(held).state is State.COMPLETED)
    store.file("a.go").touch()
    first.send_signal(signal.SIGCONT)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=20) == ExitCode.CLEAN
    record = store.record(held)
    assert (record.worker, record.result, record.losses) == ("second", b'"by run 2"', 1)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)
def test_one_killer_among_a_hundred_ends_dead_and_the_others_complete(store: Store, spawn: Spawn) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("neighbour", {"number": number}) for number in range(99)]
    calls.insert(50, ("kill", {}))
    ids = store.enqueue_all(calls, Defaults(retry_base=SECOND))
    supervisor = spawn(processes=2, concurrency=100)
    eventually(lambda: store.ended(ids), patience=120)
    killer = store.record(ids[50])
    assert (killer.state, killer.reason, killer.losses, killer.attempts) == (State.DEAD, Reason.LOST, 6, 0)
    others = [store.record(task_id) for task_id in ids if task_id != killer.id]
    assert {record.state for record in others} == {State.COMPLETED}
    assert {record.attempts for record in others} == {0}
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(timeout=20) == 0


def test_sigterm_finishes_what_runs(store: Store, spawn: Spawn) -> None:
    worker = spawn()
    held = store.enqueue("hold", file=str(store.file("a")))
    eventually(store.file("a.1").exists)
    worker.send_signal(signal.SIGTERM)
    waiting = store.enqueue("neighbour", number=1)
    store.file("a.go").touch()
    assert worker.wait(timeout=20) == ExitCode.CLEAN
    assert store.record(held).state is State.COMPLETED
    assert store.record(waiting).losses == 0
    assert store.app.hub.runner.run(store.app.hub.engine.workers()) == []


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_hands_back_when_the_time_is_up_and_a_second_one_at_once(
    store: Store, spawn: Spawn, signals: int
) -> None:
    worker = spawn(shutdown_timeout=0.3 if signals == 1 else 3600)
    held = store.enqueue("hold", file=str(store.file("a")))
    eventually(store.file("a.1").exists)
    for number in (signal.SIGTERM, signal.SIGINT)[:signals]:
        worker.send_signal(number)
    assert worker.wait(timeout=20) == ExitCode.HANDED_BACK
    record = store.record(held)
    assert (record.state, record.attempts, record.losses) == (State.PENDING, 0, 0)
    assert store.app.handle(held).history()[-1].event is HistoryEvent.RELEASED


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)  # the store has no part in it
def test_a_process_whose_loop_is_blocked_for_good_still_leaves(store: Store, spawn: Spawn) -> None:
    worker = spawn(shutdown_timeout=0, patience=2)
    held = store.enqueue("block", file=str(store.file("a")))
    eventually(store.file("a.1").exists)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=40) == ExitCode.FORCED
    assert store.record(held).state is State.RUNNING  # until somebody looks: its process is gone
    spawn()
    eventually(store.file("a.2").exists)


def test_a_supervisor_restarts_what_dies_and_passes_signals_on(store: Store, spawn: Spawn) -> None:
    supervisor = spawn(processes=2)
    workers = lambda: store.app.hub.runner.run(store.app.hub.engine.workers())  # noqa: E731
    active = lambda: {each.pid for each in workers() if each.state == "active"}  # noqa: E731
    eventually(lambda: len(active()) == 2)
    victim = min(active())
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(active() - {victim}) == 2)
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(timeout=20) == 0
    assert not active() - {victim}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells orphans on Linux only")
def test_workers_leave_when_their_supervisor_is_killed(store: Store, spawn: Spawn) -> None:
    supervisor = spawn(processes=1)
    eventually(lambda: psutil.Process(supervisor.pid).children())
    child = psutil.Process(supervisor.pid).children()[0]
    eventually(lambda: store.app.hub.runner.run(store.app.hub.engine.workers()))
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    eventually(lambda: not store.app.hub.runner.run(store.app.hub.engine.workers()))
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
