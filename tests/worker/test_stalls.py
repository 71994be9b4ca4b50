"""A stall is not a death: when the store, or the way to it, stands still, tasks of living workers run once.

Workers are real processes, the server's processes are stopped by a signal, sockets by a proxy, a file by a transaction
that is held. Which runs there were is read from a file that the tasks append to.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from outage_workers import OutageWorkers

from dibs.core.states import State
from dibs.core.task import HistoryEvent
from servers.cluster import Cluster
from servers.proxy import Proxy

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")

KINDS = ["server", "sockets", "file"]
LENGTHS = [0.5, 0.9, 1.1, 1.5, 3.0]
"""Of a stall, in leases."""

AGES = [0.0, 0.3, 0.6]
"""Of the leases when it begins, in leases since they were claimed."""

LEASE = 2.0
ROUNDS = 10
pause = threading.Event()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.new()
    yield cluster
    cluster.remove()


class Stalls:
    """Workers, and how their store is made to stand still."""

    def __init__(self, workers: OutageWorkers, url: str, stalled: Callable[[], AbstractContextManager[None]]) -> None:
        self.workers = workers
        self.url = url
        self.stalled = stalled
        self.ids: list[str] = []

    def start(self, **leases: float | None) -> None:
        """A worker for each queue."""
        for name, lease in leases.items():
            self.workers.start(self.url, queues=[name], name=name, lease=lease, concurrency=4 * ROUNDS, is_known=True)
        self.workers.until(lambda: {worker.id for worker in self.workers.app.workers.list()} == {*leases})

    def hold(self, queue: str, number: int = 2) -> None:
        """Tasks that run until the gate is opened: some on the loop, as many in threads."""
        before = self.workers.count(State.RUNNING, queue)
        for name in ("hold", "hold_thread"):
            self.ids += self.workers.enqueue(number, name, queue, gate="gate")
        self.workers.until(lambda: self.workers.count(State.RUNNING, queue) == before + 2 * number)

    def stall(self, seconds: float) -> None:
        with self.stalled():
            pause.wait(seconds)

    def all_is_well(self) -> None:
        """Nobody lost a task, nobody left, and everything completes in its first run."""
        workers = self.workers
        assert [process.poll() for process in workers.processes] == [None] * len(workers.processes), workers.all_logs()
        assert {(each.lease, each.losses) for each in workers.records(self.ids)} == {(1, 0)}, workers.all_logs()
        assert "was lost" not in workers.all_logs()
        workers.open_gate()
        workers.until(lambda: {each.state for each in workers.records(self.ids)} == {State.COMPLETED})
        workers.ran_once(self.ids)
        events = {entry.event for each in self.ids for entry in workers.app.handle(each).history()}
        assert not events & {HistoryEvent.LOST, HistoryEvent.REFUSED}

    def lose_one(self, queue: str) -> str:
        """A lease that really is lost: its holder never speaks again."""
        [lost] = self.workers.enqueue(1, "quick", queue)
        assert [claim.id for claim in self.workers.app.claim([queue], lease=LEASE)] == [lost]
        return lost

    def until_rescued(self, task: str) -> None:
        self.workers.until(lambda: self.workers.records([task])[0].losses == 1)


@pytest.fixture
def stalls(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Stalls]:
    kind = request.param
    if kind == "file":
        url = f"sqlite:///{tmp_path}/tasks.db"
        workers, stalled = OutageWorkers(url, tmp_path), lambda: locked(tmp_path / "tasks.db")
    else:
        url = cluster.url(connect_timeout="5")
        workers, stalled = OutageWorkers(url, tmp_path), cluster.frozen
    with Proxy(cluster.port) as proxy:
        if kind == "sockets":
            url, stalled = url.replace(f":{cluster.port}/", f":{proxy.port}/"), lambda: silent(proxy)
        yield Stalls(workers, url, stalled)
        workers.close()


@contextmanager
def silent(proxy: Proxy) -> Iterator[None]:
    proxy.stall()
    try:
        yield
    finally:
        proxy.heal()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """What a process does to all others that is stopped in the middle of a transaction."""
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@pytest.mark.parametrize(("stalls", "seconds"), [("server", 6.5), ("sockets", 5.5), ("file", 3.5)], indirect=["stalls"])
def test_a_stall_costs_nobody_who_lives_a_task(stalls: Stalls, seconds: float) -> None:
    """Longer than their leases; of the server, also longer than heartbeats wait for an answer and then try again.

    Each worker could rescue what the others hold.
    """
    leases = {"a": 1.0, "b": 2.5}
    stalls.start(**leases)
    for name in leases:
        stalls.hold(name)
    stalls.stall(seconds)
    thawed = time.monotonic()
    stalls.workers.until(lambda: time.monotonic() > thawed + 1.5)  # all have looked for lost tasks, if they do
    stalls.all_is_well()


@pytest.mark.soak
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("stalls", KINDS, indirect=True)
def test_stalls_of_all_lengths_at_all_ages_of_the_leases(stalls: Stalls, length: float) -> None:
    """And after each, what is really lost is found."""
    stalls.start(a=LEASE, b=LEASE, c=LEASE)
    for number in range(ROUNDS):
        lost = stalls.lose_one(f"lost-{number}")
        began = time.monotonic()
        for age, name in zip(reversed(AGES), ("a", "b", "c"), strict=True):
            at = began + (AGES[-1] - age) * LEASE
            stalls.workers.until(lambda at=at: time.monotonic() >= at)
            stalls.hold(name)
        stalls.stall(length * LEASE)
        stalls.until_rescued(lost)
    stalls.all_is_well()


@pytest.mark.soak
@pytest.mark.parametrize("stalls", ["server", "sockets"], indirect=True)
def test_a_stall_of_almost_the_default_lease(stalls: Stalls) -> None:
    stalls.start(a=None, b=None, c=None)
    for name in ("a", "b", "c"):
        stalls.hold(name, 4)
    claimed = time.monotonic()
    lost = stalls.lose_one("lost")
    stalls.workers.until(lambda: time.monotonic() > claimed + 8)
    stalls.stall(27)
    stalls.until_rescued(lost)
    stalls.all_is_well()
