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
from outage_crew import PATIENCE, Crew

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
