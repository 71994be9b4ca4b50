"""Real worker processes on a PostgreSQL that is restarted, crashes, fails over, or can't be reached for a while."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import outage_app
import pytest
from worker_support import eventually

from dibs.client.app import Dibs
from dibs.core.states import State
from dibs.core.task import NewTask, TaskRecord
from dibs.errors import StoreError, StoreUnavailable
from servers.cluster import Cluster, join_urls
from servers.proxy import Proxy

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")

PATIENCE = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.new()
    yield cluster
    cluster.remove()


class Crew:
    """Worker processes on one store, and the store seen from outside."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.app = Dibs(url)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, url: str | None = None, **settings: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, outage_app.__file__, url or self.url, str(self.folder), json.dumps(settings)]
        with self.log(len(self.processes)).open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self, number: int) -> Path:
        return self.folder / f"log.{number}"

    def logs(self, number: int = 0) -> str:
        return self.log(number).read_text()

    def enqueue(self, number: int, name: str, queue: str = "default", **args: Any) -> list[str]:
        """Tasks by name, each in a call of its own that is repeated until it is acknowledged."""
        hub = self.app.hub
        news = [NewTask(id=hub.new_id(), queue=queue, name=name, args=json.dumps(args).encode()) for _ in range(number)]
        for new in news:
            self.insist(lambda new=new: hub.runner.run(hub.engine.enqueue([new])))
        return [new.id for new in news]

    def insist(self, act: Callable[[], Any]) -> Any:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return act()
            except StoreError:
                assert time.monotonic() < until, "it never recovers"
                threading.Event().wait(0.02)

    def count(self, state: State, queue: str = "default") -> int:
        counts = self.insist(lambda: self.app.hub.runner.run(self.app.hub.engine.counts()))
        return int(counts.get(queue, {}).get(state, 0))

    def records(self, ids: list[str]) -> list[TaskRecord]:
        found = self.insist(lambda: self.app.hub.runner.run(self.app.hub.engine.get(ids)))
        assert None not in found
        return found  # type: ignore[no-any-return]

    def runs(self) -> list[tuple[str, str]]:
        """(task, process) of every run that has begun."""
        path = self.folder / "runs"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split()[0], line.split()[2]) for line in lines]

    def open_gate(self, name: str = "gate") -> None:
        (self.folder / name).touch()

    def until(self, holds: Callable[[], Any]) -> None:
        try:
            eventually(holds, PATIENCE)
        except AssertionError:
            counts = self.insist(lambda: self.app.hub.runner.run(self.app.hub.engine.counts()))
            logs = "\n\n".join(self.logs(number)[-3000:] for number in range(len(self.processes)))
            raise AssertionError(f"it did not happen: {counts}, {len(self.runs())} runs\n{logs}") from None

    def after(self, seconds: float) -> None:
        """Until so much time has gone by: leases run out by themselves."""
        at = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= at)

    def until_completed(self, number: int, queue: str = "default") -> None:
        self.until(lambda: self.count(State.COMPLETED, queue) == number)

    def ran_once(self, ids: list[str]) -> None:
        """Each was run by one process, under its first lease, and none was ever lost."""
        assert sorted(task for task, _ in self.runs()) == sorted(ids)
        assert {(each.settled_lease or each.lease, each.losses) for each in self.records(ids)} == {(1, 0)}

    def calm(self, number: int = 0, outages: int = 1) -> None:
        """The log says that the store went, and in the end that it is back; a few plain lines, no tracebacks."""
        self.until(lambda: self.logs(number).count("The store answers again") >= outages)
        log = self.logs(number)
        assert log.count("The store answers again") == outages, log
        assert log.count("The store does not answer") == outages, log
        assert "Traceback" not in log, log
        assert len(log.splitlines()) < 12 + 8 * outages, log

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.app.close()


@pytest.fixture
def crew(cluster: Cluster, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(cluster.url(connect_timeout="5"), tmp_path)
    yield crew
    crew.close()


@pytest.mark.parametrize("mode", [pytest.param("fast", marks=pytest.mark.soak), "immediate"])
def test_a_server_that_is_down_for_a_while(cluster: Cluster, crew: Crew, mode: str) -> None:
    crew.start(concurrency=20)
    results: list[Any] = []
    ids = crew.enqueue(20, "hold", gate="gate")
    crew.until(lambda: crew.count(State.RUNNING) == 20)
    handle = crew.app.handle(ids[0])
    waiting = threading.Thread(target=lambda: results.append(handle.result(timeout=PATIENCE)))
    waiting.start()
    cluster.stop(mode)
    try:
        crew.until(lambda: "The store does not answer" in crew.logs())
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            crew.app.hub.runner.run(crew.app.hub.engine.counts())
        crew.open_gate()  # what ends now can't be settled
        crew.after(3)
    finally:
        cluster.start()
    ids += crew.enqueue(20, "quick")
    crew.until_completed(40)
    crew.ran_once(ids)
    crew.calm()
    waiting.join(PATIENCE)
    assert results == ["marked"], "who waits for a result waits through it"
    assert {each.result for each in crew.records(ids[:20])} == {b'"marked"'}
    crew.processes[0].send_signal(signal.SIGTERM)
    assert crew.processes[0].wait(PATIENCE) == 0


def test_an_outage_longer_than_the_leases_costs_nobody_who_lives_a_task(cluster: Cluster, crew: Crew) -> None:
    """Not even who comes back last, or if somebody looks who knows nothing of the outage. Who died in it is noticed."""
    with Proxy(cluster.port) as proxy:
        crew.start(crew.url.replace(f":{cluster.port}/", f":{proxy.port}/"), concurrency=100, lease=3.0, prefetch=False)
        crew.start(concurrency=100, lease=3.0, prefetch=False)
        dying = crew.start(queues=["dying"], concurrency=5, lease=3.0)
        ids = crew.enqueue(200, "hold", gate="gate")
        lost = crew.enqueue(5, "hold", queue="dying", gate="gate")
        crew.until(lambda: crew.count(State.RUNNING) == 200 and crew.count(State.RUNNING, "dying") == 5)
        proxy.refuse()
        cluster.stop()
        try:
            dying.kill()
            dying.wait()
            crew.start(queues=["other"], lease=3.0)  # leaves at once: there is no store
            crew.after(4)
        finally:
            cluster.start()
        crew.start(queues=["other"], lease=3.0)
        crew.until(lambda: "The store answers again" in crew.logs(1))
        crew.after(1.5)
        proxy.heal()
        crew.until(lambda: crew.count(State.RUNNING, "dying") == 0)
        assert {each.losses for each in crew.records(lost)} == {1}
        assert {(each.lease, each.losses) for each in crew.records(ids)} == {(1, 0)}
        crew.open_gate()
        crew.until_completed(200)
        assert len(crew.runs()) == 205
        for number in (0, 1):
            crew.calm(number)


def test_sessions_that_are_ended_again_and_again(cluster: Cluster, crew: Crew) -> None:
    for _ in range(2):
        crew.start(concurrency=10)
    crew.until(lambda: len(crew.app.workers.list()) == 2)
    chance = random.Random(3)
    over = threading.Event()

    def end_sessions() -> None:
        """All of ours, at random moments."""
        while not over.wait(chance.uniform(0.05, 0.5)):
            asyncio.run(terminate(cluster))

    thread = threading.Thread(target=end_sessions)
    thread.start()
    try:
        ids = crew.enqueue(300, "quick")
        crew.until_completed(300)
    finally:
        over.set()
        thread.join()
    crew.ran_once(ids)
    for number in (0, 1):
        assert "Traceback" not in crew.logs(number), crew.logs(number)


async def terminate(cluster: Cluster) -> None:
    own = await asyncpg.connect(cluster.dsn, timeout=PATIENCE)
    try:
        await own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dibs'")
    finally:
        await own.close(timeout=PATIENCE)


def test_work_goes_on_after_a_failover(tmp_path: Path) -> None:
    primary = Cluster.new()
    standby = primary.standby()
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    crew = Crew(join_urls(primary.url(timeout="10", connect_timeout="5"), standby.url()), tmp_path)
    try:
        crew.start(concurrency=20)
        ids = crew.enqueue(10, "hold", gate="gate")
        crew.until(lambda: crew.count(State.RUNNING) == 10)
        primary.stop("immediate")
        crew.until(lambda: "The store does not answer" in crew.logs())
        crew.open_gate()
        standby.promote()
        ids += crew.enqueue(10, "quick")
        crew.until_completed(20)
        crew.ran_once(ids)
        crew.calm()
    finally:
        crew.close()
        standby.remove()
        primary.remove()


def test_a_settlement_that_stalls_does_not_cost_the_lease(cluster: Cluster, crew: Crew) -> None:
    """Heartbeats have a connection of their own."""
    with Proxy(cluster.port) as proxy:
        through = crew.url.replace(f":{cluster.port}/", f":{proxy.port}/")
        crew.start(through + "&timeout=6", lease=3.0, queues=["default"])
        crew.start(queues=["other"], lease=3.0)  # would take what is lost
        ids = crew.enqueue(1, "hold", gate="gate")
        crew.until(lambda: crew.count(State.RUNNING) == 1)
        proxy.trap(b'"marked"', "stall")
        crew.open_gate()
        assert proxy.sprung.wait(PATIENCE)
        crew.until_completed(1)
        crew.ran_once(ids)
        crew.calm()


def test_connections_that_all_stall_are_made_anew_before_leases_end(cluster: Cluster, crew: Crew) -> None:
    with Proxy(cluster.port) as proxy:
        through = crew.url.replace(f":{cluster.port}/", f":{proxy.port}/")
        crew.start(through + "&timeout=2", lease=9.0, concurrency=5)
        crew.start(queues=["other"], lease=9.0)
        ids = crew.enqueue(5, "hold", gate="gate")
        crew.until(lambda: crew.count(State.RUNNING) == 5)
        before = {each.id: each.lease_expires_at or 0 for each in crew.records(ids)}
        assert proxy.stall(new=False) > 0
        crew.until(lambda: all((each.lease_expires_at or 0) > before[each.id] for each in crew.records(ids)))
        crew.open_gate()
        crew.until_completed(5)
        crew.ran_once(ids)
        assert "Traceback" not in crew.logs()
