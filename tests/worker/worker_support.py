"""What the tests of the worker share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from dibs.client.app import Dibs
from dibs.worker import ExitCode, Worker, WorkerSettings

PATIENCE = 20.0
"""Seconds after which something that should happen has not."""


def drain(app: Dibs, **settings: Any) -> Worker:
    """Run until nothing is left to do."""
    worker = Worker(app.hub, WorkerSettings(until_idle=True, **settings))
    worker.start()
    report = worker.wait(PATIENCE)
    assert report is not None
    assert report.code is ExitCode.CLEAN
    return worker


def record_of(app: Dibs, task_id: str) -> Any:
    return app.hub.runner.run(app.hub.engine.get([task_id]))[0]


def eventually(holds: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Until something that another thread does has happened: looked at often, no longer than it takes."""
    pause = threading.Event()
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until, "it did not happen"
        pause.wait(0.002)
