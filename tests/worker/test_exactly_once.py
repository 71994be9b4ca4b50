"""The effect of a task that completes in its own transaction happens exactly once, whatever becomes of its worker."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import shop_app
from worker_support import eventually

from dibs.client.app import Dibs
from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import SECOND
from dibs.testing.tasks import new_task
from dibs.worker import ExitCode
from servers.postgres import new_url, server_url
from servers.user_connections import is_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")

PATIENCE = 60.0
PAYMENTS = f"payments_{os.getpid()}"
STEPS = ("began", "inserted", "completed", "committed", "returned")
COMMITTED = ("committed", "returned")

Spawn = Callable[..., "subprocess.Popen[bytes]"]


class Shop:
    """The store and the table of payments, seen from outside."""

    def __init__(self, file: Path | None = None) -> None:
        self.url = new_url() if file is None else f"sqlite:///{file}"
        self.dsn = server_url() if file is None else str(file)
        self.app = Dibs(self.url)
        self.app.queues.list()
        with self.connected() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {PAYMENTS}")
            connection.execute(f"CREATE TABLE {PAYMENTS} (paid int, lease int)")
            connection.commit()

    def connected(self) -> Any:
        return closing(sqlite3.connect(self.dsn) if is_file(self.dsn) else psycopg.connect(self.dsn))

    def enqueue(self, name: str, order: int, step: str, stop: signal.Signals = signal.SIGKILL) -> str:
        hub = self.app.hub
        new = new_task(
            id=hub.new_id(),
            queue="default",
            name=name,
            args=json.dumps({"order": order}).encode(),
            metadata={"step": step, "signal": stop.name},
        )
        hub.runner.run(hub.engine.enqueue([new]))
        return new.id

    def record(self, task_id: str) -> TaskRecord:
        (record,) = self.app.hub.runner.run(self.app.hub.engine.get([task_id]))
        assert record is not None
        return record

    def payments(self) -> list[tuple[int, int]]:
        with self.connected() as connection:
            return sorted(connection.execute(f"SELECT paid, lease FROM {PAYMENTS}").fetchall())


@pytest.fixture
def store() -> str:
    """Other than this where a test says so."""
    return "postgres"


@pytest.fixture
def shop(store: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path / "shop.db" if store == "sqlite" else None)
    yield shop
    shop.app.close()


@pytest.fixture
def spawn(shop: Shop) -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []

    def start(**settings: Any) -> subprocess.Popen[bytes]:
        settings = {"queues": ["default"], "concurrency": 1, "lease": 2, **settings}
        command = [sys.executable, shop_app.__file__, shop.url, shop.dsn, json.dumps(settings)]
        paths = os.pathsep.join(sys.path)
        process = subprocess.Popen(command, env={**os.environ, "SHOP_PAYMENTS": PAYMENTS, "PYTHONPATH": paths})
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
        process.wait()


def check(shop: Shop, ids: list[str]) -> None:
    """Exactly one payment for each order, by the run that completed."""
    records = [shop.record(task_id) for task_id in ids]
    assert [record.state for record in records] == [State.COMPLETED] * len(ids)
    assert shop.payments() == [(order, record.lease) for order, record in enumerate(records)]
    assert [record.result for record in records] == [str(record.lease).encode() for record in records]


@pytest.mark.parametrize(
    ("store", "task"),
    [
        ("postgres", "pay"),
        ("sqlite", "pay_in_session"),
        *(
            pytest.param(store, task, marks=pytest.mark.soak)
            for store, task in [
                ("sqlite", "pay"),
                ("sqlite", "pay_in_atomic"),
                ("sqlite", "pay_in_async_session"),
                ("postgres", "pay_async"),
                ("postgres", "pay_in_session"),
                ("postgres", "pay_in_atomic"),
                ("postgres", "pay_in_async_session"),
            ]
        ),
    ],
)
def test_the_worker_is_killed_at_every_step(shop: Shop, spawn: Spawn, task: str) -> None:
    ids = [shop.enqueue(task, order, step) for order, step in enumerate(STEPS)]
    for _ in STEPS:  # each lives until it comes to a task that was not tried before
        assert spawn().wait(timeout=PATIENCE) == -signal.SIGKILL
    last = spawn()
    eventually(lambda: all(shop.record(task_id).state is State.COMPLETED for task_id in ids), PATIENCE)
    check(shop, ids)
    losses = [shop.record(task_id).losses for task_id in ids]
    assert losses == [0 if step in COMMITTED else 1 for step in STEPS]
    assert [shop.record(task_id).attempts for task_id in ids] == [0] * len(ids)
    last.send_signal(signal.SIGTERM)
    assert last.wait(timeout=PATIENCE) == ExitCode.CLEAN


@pytest.mark.parametrize("store", ["postgres", pytest.param("sqlite", marks=pytest.mark.soak)])
def test_the_executor_process_is_killed_at_every_step(shop: Shop, spawn: Spawn) -> None:
    ids = [shop.enqueue("pay_in_process", order, step) for order, step in enumerate(STEPS)]
    worker = spawn(concurrency=2, lease=60)
    eventually(lambda: all(shop.record(task_id).state is State.COMPLETED for task_id in ids), PATIENCE)
    check(shop, ids)
    records = [shop.record(task_id) for task_id in ids]
    assert [record.attempts for record in records] == [0 if step in COMMITTED else 1 for step in STEPS]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=PATIENCE) == ExitCode.CLEAN


@pytest.mark.parametrize("task", ["pay", pytest.param("pay_async", marks=pytest.mark.soak)])
def test_a_worker_stopped_past_its_lease_commits_nothing(shop: Shop, spawn: Spawn, task: str) -> None:
    zombie = spawn(lease=1)
    held = shop.enqueue(task, 0, "inserted", signal.SIGSTOP)
    eventually(lambda: has_stopped(zombie.pid), PATIENCE)
    stopped = shop.record(held).lease
    spawn(hold_off=2)
    eventually(lambda: shop.record(held).state is State.COMPLETED, PATIENCE)
    zombie.send_signal(signal.SIGCONT)
    zombie.send_signal(signal.SIGTERM)
    assert zombie.wait(timeout=PATIENCE) == ExitCode.CLEAN
    check(shop, [held])
    assert shop.record(held).lease > stopped


def test_a_worker_stopped_before_its_commit_keeps_its_task(shop: Shop, spawn: Spawn) -> None:
    zombie = spawn(lease=1)
    held = shop.enqueue("pay", 0, "completed", signal.SIGSTOP)
    eventually(lambda: has_stopped(zombie.pid), PATIENCE)
    stopped = shop.record(held)
    expired_at = (stopped.lease_expires_at or 0) + SECOND
    assert shop.app.hub.runner.run(shop.app.hub.engine.rescue(now=expired_at)).ids == []
    spawn()
    passer_by = shop.enqueue("pay", 1, "")
    eventually(lambda: shop.record(passer_by).state is State.COMPLETED, PATIENCE)
    zombie.send_signal(signal.SIGCONT)
    eventually(lambda: shop.record(held).state is State.COMPLETED, PATIENCE)
    check(shop, [held, passer_by])
    assert shop.record(held).lease == stopped.lease


def has_stopped(pid: int) -> bool:
    """Whether every thread of a process stands still: the signal reaches them one after the other."""
    threads = Path(f"/proc/{pid}/task")
    if not threads.is_dir():
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return all((each / "stat").read_text().rpartition(")")[2].split()[0] in "Tt" for each in threads.iterdir())
