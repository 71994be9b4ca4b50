"""A clock that is set, while workers run: on SQLite the store's clock is the machine's."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from worker_support import PATIENCE, eventually

from dibs.client.app import Dibs
from dibs.core.task import HistoryEvent
from dibs.core.times import DAY, SECOND


class WallClock:
    """The machine's own, and what somebody has added to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.added = 0.0
        self._time, self._time_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: self._time() + self.added)
        monkeypatch.setattr(time, "time_ns", lambda: self._time_ns() + round(self.added * 1e9))


@pytest.mark.parametrize("days", [3, -3])
def test_a_clock_that_is_set_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Neither as timed out, for all of 24 hours have not been run, nor as lost; nor is the worker taken for dead."""
    clock = WallClock(monkeypatch)
    release = threading.Event()
    with Dibs(f"sqlite:///{tmp_path}/tasks.db") as app:

        @app.task
        def hold() -> str:
            release.wait(PATIENCE)
            return "held"

        with app.worker(concurrency=5) as worker:
            # Beats come every second, which would not keep the long lease yet.
            handles = [hold.using(lease=lease).enqueue() for lease in (60, 3, 3, 3)]
            eventually(lambda: worker.stats().running == 4)
            before = time.time()
            clock.added = days * DAY / SECOND
            # The leases are kept at once, by the clock as it is now.
            eventually(lambda: all(0 < until(app, each.id) - before - clock.added < 90 for each in handles))
            release.set()
            assert [handle.result(timeout=PATIENCE) for handle in handles] == ["held"] * 4
            assert [each.state for each in app.workers.list()] == ["active"]
        assert worker.stats().timed_out == worker.stats().lost == worker.stats().refused == 0
        events = {entry.event for handle in handles for entry in handle.history()}
        assert not events & {HistoryEvent.LOST, HistoryEvent.TIMED_OUT}


def until(app: Dibs, task: str) -> float:
    [record] = app.hub.runner.run(app.hub.engine.get([task]))
    assert record is not None
    assert record.lease_expires_at is not None
    return record.lease_expires_at / SECOND
