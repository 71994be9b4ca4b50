"""Real worker processes on a PostgreSQL that is restarted, crashes, fails over, or can't be reached for a while."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from outage_workers import PATIENCE, OutageWorkers

from dibs.core.states import State
from dibs.errors import StoreUnavailable
from servers.cluster import Cluster, join_urls
from servers.proxy import Proxy

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.new()
    yield cluster
    cluster.remove()


@pytest.fixture
def workers(cluster: Cluster, tmp_path: Path) -> Iterator[OutageWorkers]:
    workers = OutageWorkers(cluster.url(connect_timeout="5"), tmp_path)
    yield workers
    workers.close()


@pytest.mark.parametrize("mode", [pytest.param("fast", marks=pytest.mark.soak), "immediate"])
def test_a_server_that_is_down_for_a_while(cluster: Cluster, workers: OutageWorkers, mode: str) -> None:
    workers.start(concurrency=20)
    results: list[Any] = []
    ids = workers.enqueue(20, "hold", gate="gate")
    workers.until(lambda: workers.count(State.RUNNING) == 20)
    handle = workers.app.handle(ids[0])
    waiting = threading.Thread(target=lambda: results.append(handle.result(timeout=PATIENCE)))
    waiting.start()
    cluster.stop(mode)
    try:
        workers.until(lambda: "The store does not answer" in workers.logs())
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            workers.app.hub.runner.run(workers.app.hub.engine.counts())
        workers.open_gate()  # what ends now can't be settled
        workers.after(3)
    finally:
        cluster.start()
    ids += workers.enqueue(20, "quick")
    workers.until_completed(40)
    workers.ran_once(ids)
    workers.calm()
    waiting.join(PATIENCE)
    assert results == ["marked"], "who waits for a result waits through it"
    check_log_of_one_outage(workers.logs())
    assert {each.result for each in workers.records(ids[:20])} == {b'"marked"'}
    workers.processes[0].send_signal(signal.SIGTERM)
    assert workers.processes[0].wait(PATIENCE) == 0


def check_log_of_one_outage(text: str) -> None:
    """One line when the store goes, one when it is back, and at most as many about listening."""
    said = [line for line in text.splitlines() if line.startswith(("INFO dibs", "WARNING dibs", "ERROR dibs"))]
    expected = {"The store does not answer": 1, "The store answers again": 1}
    listening = ("Can't listen", "no session with", "Listening to", "a session with")
    assert {words: sum(words in line for line in said) for words in expected} == expected, text
    assert sum(any(words in line for words in listening) for line in said) <= 2, text
    others = [line for line in said if not any(words in line for words in (*expected, *listening, " serves ", "leads"))]
    assert others == [], text


def test_an_outage_longer_than_the_leases_costs_nobody_who_lives_a_task(
    cluster: Cluster, workers: OutageWorkers
) -> None:
    """Not even the last one to return, or if a newcomer looks. A worker that died in the outage is noticed."""
    with Proxy(cluster.port) as proxy:
        through = workers.url.replace(f":{cluster.port}/", f":{proxy.port}/")
        workers.start(through, concurrency=100, lease=3.0, prefetch=False)
        workers.start(concurrency=100, lease=3.0, prefetch=False)
        dying = workers.start(queues=["dying"], concurrency=5, lease=3.0)
        ids = workers.enqueue(200, "hold", gate="gate")
        lost = workers.enqueue(5, "hold", queue="dying", gate="gate")
        workers.until(lambda: workers.count(State.RUNNING) == 200 and workers.count(State.RUNNING, "dying") == 5)
        proxy.refuse()
        cluster.stop()
        try:
            dying.kill()
            dying.wait()
            workers.start(queues=["other"], lease=3.0)  # leaves at once: there is no store
            workers.after(4)
        finally:
            cluster.start()
        workers.start(queues=["other"], lease=3.0)
        workers.until(lambda: "The store answers again" in workers.logs(1))
        workers.after(1.5)
        proxy.heal()
        workers.until(lambda: workers.count(State.RUNNING, "dying") == 0)
        assert {each.losses for each in workers.records(lost)} == {1}
        assert {(each.lease, each.losses) for each in workers.records(ids)} == {(1, 0)}
        workers.open_gate()
        workers.until_completed(200)
        assert len(workers.runs()) == 205
        for number in (0, 1):
            workers.calm(number)


def test_sessions_that_are_ended_again_and_again(cluster: Cluster, workers: OutageWorkers) -> None:
    for _ in range(2):
        workers.start(concurrency=10)
    workers.until(lambda: len(workers.app.workers.list()) == 2)
    chance = random.Random(3)
    over = threading.Event()

    def end_sessions() -> None:
        """All of ours, at random moments."""
        while not over.wait(chance.uniform(0.05, 0.5)):
            asyncio.run(terminate(cluster))

    thread = threading.Thread(target=end_sessions)
    thread.start()
    try:
        ids = workers.enqueue(300, "quick")
        workers.until_completed(300)
    finally:
        over.set()
        thread.join()
    workers.ran_once(ids)
    for number in (0, 1):
        assert "Traceback" not in workers.logs(number), workers.logs(number)


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
    workers = OutageWorkers(join_urls(primary.url(timeout="10", connect_timeout="5"), standby.url()), tmp_path)
    try:
        workers.start(concurrency=20)
        ids = workers.enqueue(10, "hold", gate="gate")
        workers.until(lambda: workers.count(State.RUNNING) == 10)
        primary.stop("immediate")
        workers.until(lambda: "The store does not answer" in workers.logs())
        workers.open_gate()
        standby.promote()
        ids += workers.enqueue(10, "quick")
        workers.until_completed(20)
        workers.ran_once(ids)
        workers.calm()
    finally:
        workers.close()
        standby.remove()
        primary.remove()


def test_a_settlement_that_stalls_does_not_cost_the_lease(cluster: Cluster, workers: OutageWorkers) -> None:
    """Heartbeats have a connection of their own."""
    with Proxy(cluster.port) as proxy:
        through = workers.url.replace(f":{cluster.port}/", f":{proxy.port}/")
        workers.start(through + "&timeout=6", lease=3.0, queues=["default"])
        workers.start(queues=["other"], lease=3.0)  # would take what is lost
        ids = workers.enqueue(1, "hold", gate="gate")
        workers.until(lambda: workers.count(State.RUNNING) == 1)
        proxy.trap(b'"marked"', "stall")
        workers.open_gate()
        assert proxy.sprung.wait(PATIENCE)
        workers.until_completed(1)
        workers.ran_once(ids)
        workers.calm()


def test_connections_that_all_stall_are_made_anew_before_leases_end(cluster: Cluster, workers: OutageWorkers) -> None:
    with Proxy(cluster.port) as proxy:
        through = workers.url.replace(f":{cluster.port}/", f":{proxy.port}/")
        workers.start(through + "&timeout=2", lease=9.0, concurrency=5)
        workers.start(queues=["other"], lease=9.0)
        ids = workers.enqueue(5, "hold", gate="gate")
        workers.until(lambda: workers.count(State.RUNNING) == 5)
        before = {each.id: each.lease_expires_at or 0 for each in workers.records(ids)}
        assert proxy.stall(new=False) > 0
        workers.until(lambda: all((each.lease_expires_at or 0) > before[each.id] for each in workers.records(ids)))
        workers.open_gate()
        workers.until_completed(5)
        workers.ran_once(ids)
        assert "Traceback" not in workers.logs()
