"""A worker process that is stopped in the middle of a claim: for how long it holds up others, and whether rates hold.

Starts are logged in a table of their own, by the server's clock.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import outage_app
import psycopg
import pytest
from worker_support import eventually

from dibs.client.app import Dibs
from dibs.engines.postgres.pool import LONGEST_SILENCE
from dibs.engines.postgres.statements import quoted
from dibs.worker import Context
from servers.cluster import Cluster
from servers.proxy import Proxy

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")

PATIENCE = 60.0
LONGEST_HOLD = 20.0
"""Seconds for which a session that may be silent for long has its lock for certain: statements end it after 27."""
RATE, BURST = 20, 20
STARTS = "CREATE UNLOGGED TABLE starts (queue text, at timestamptz)"
START = "INSERT INTO starts SELECT %s::text, clock_timestamp()"
SEEN = "SELECT extract(epoch FROM at)::float8 FROM starts WHERE queue = %s ORDER BY at"
CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"
HOLDER = """
SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)
"""
LEASING = b"gate = least(t.gate, 1)"
"""In the statement that leases what was chosen from a limited queue."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.new()
    yield cluster
    cluster.remove()


class Log:
    """The starts, written and read past everything that is tested. Threads take turns on its connection."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.connection.execute(STARTS)

    def start(self, queue: str) -> None:
        self.connection.execute(START, [queue])

    def value(self, query: str, *parameters: str) -> Any:
        row = self.connection.execute(query, parameters).fetchone()
        assert row is not None
        return row[0]

    def starts(self, queue: str) -> list[float]:
        return [at for (at,) in self.connection.execute(SEEN, [queue])]


@pytest.fixture
def log(cluster: Cluster) -> Iterator[Log]:
    log = Log(cluster.dsn)
    yield log
    log.connection.close()


def most_above(starts: list[float], rate: float, burst: int) -> float:
    """By how many starts a rate was exceeded, over any span from one start to another."""
    return max(
        (later - earlier + 1) - burst - rate * (starts[later] - starts[earlier])
        for earlier in range(len(starts))
        for later in range(earlier, len(starts))
    )


@pytest.fixture
def app(cluster: Cluster) -> Iterator[Dibs]:
    app = Dibs(cluster.url())
    yield app
    app.close()


@pytest.mark.parametrize(
    "silence", [pytest.param(None, marks=pytest.mark.soak, id="in time"), pytest.param(60_000, id="killed")]
)
def test_a_worker_stopped_in_a_claim_holds_up_nobody_for_long(
    app: Dibs, cluster: Cluster, log: Log, tmp_path: Path, silence: int | None
) -> None:
    """However slow this machine is, one that may be silent for a minute is silent until it is killed."""

    @app.task(name="quick")
    def quick(ctx: Context) -> None:
        log.start(ctx.queue)

    limited = f"{quoted(dict(parse_qsl(urlsplit(app.url).query))['schema'])}.queue limited"
    # With a rate for a name, a claim is a transaction of several statements, and can be stopped between them.
    app.queues.set("limited", rate=RATE, burst=BURST, per_task={"other": {"rate": 1}})
    with Proxy(cluster.port) as proxy:
        through = app.url.replace(f":{cluster.port}/", f":{proxy.port}/")
        settings = json.dumps({"queues": ["limited"], "concurrency": 5, "silence": silence or LONGEST_SILENCE})
        with (tmp_path / "log").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, outage_app.__file__, through, str(tmp_path), settings], stdout=output, stderr=output
            )
        try:
            proxy.trap(LEASING, "stall")
            handles = [quick.using(queue="limited").enqueue() for _ in range(60)]
            assert proxy.sprung.wait(PATIENCE), (tmp_path / "log").read_text()
            process.send_signal(signal.SIGSTOP)
            holder = log.value(HOLDER, limited)
            stopped_at = log.value(CLOCK)
            # One waits in line for the limited queue; the other has something else to do until then.
            with app.worker(queues=["limited"], concurrency=30), app.worker(queues=["limited", "other"], concurrency=5):
                others = [quick.using(queue="other").enqueue() for _ in range(10)]
                eventually(lambda: len(log.starts("other")) == len(others), PATIENCE)
                if silence is not None:
                    if log.value(CLOCK) - stopped_at < LONGEST_HOLD:  # otherwise this machine stood still
                        assert log.value(HOLDER, limited) == holder, "it still has the limited queue"
                        assert log.starts("limited") == []
                    process.kill()
                    proxy.refuse()
                for handle in handles:
                    handle.result(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()
    starts = log.starts("limited")
    assert len(starts) == len(handles)
    assert silence is not None or starts[0] - stopped_at < LONGEST_SILENCE / 1000 + 2
    # A claim and the starts that follow are a moment apart.
    assert most_above(starts, RATE, BURST) < 5, starts
