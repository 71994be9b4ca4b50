"""A worker as the main program of its process: signals in, exit code out."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType

from dibs.errors import NotAllowed
from dibs.runtime.hub import Hub
from dibs.worker.settings import WorkerSettings
from dibs.worker.status import ExitCode
from dibs.worker.supervisor import handling_signals
from dibs.worker.worker import Worker

__all__ = ["PATIENCE", "run"]

log = logging.getLogger("dibs.worker")

SWITCH_INTERVAL = 0.0005
"""The heartbeat, thread tasks and the store's own thread share one interpreter with the event loop. With Python's 5 ms,
a busy thread delays each of their steps more (a hop to a thread and back takes 0.21 ms instead of 0.09 ms); throughput
is the same."""

GARBAGE = (20_000, 20, 20)
"""When Python looks for reference cycles, which Dibs's own objects never form. With its default of 700 new objects, a
worker that holds a thousand tasks spends a fifth of its time on that."""

PATIENCE = 15.0
"""Seconds beyond the shutdown timeout, ten of them for signing off, after which the process ends without waiting for a
blocked loop."""


def run(
    hub: Hub,
    settings: WorkerSettings,
    app: str | None = None,
    around: Callable[[Worker], AbstractContextManager[object]] = nullcontext,
) -> int:
    """Work until a signal, a drain or the end of all work; the exit code is one of `ExitCode`.

    `around` is entered while the worker works: what serves its metrics.

    The first SIGTERM or SIGINT stops claiming and gives running tasks `shutdown_timeout` seconds; the second hands
    them back at once.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(*GARBAGE)
    gc.freeze()  # what has been imported stays
    worker = Worker(hub, settings, app)
    signals = Signals(worker, settings)
    with around(worker), handling_signals(signals.received):
        try:
            return hub.runner.main(worker.run()).code
        except NotAllowed as error:
            log.error("The worker could not work: %s", error)
            return ExitCode.FAILED
        except Exception:
            log.exception("The worker could not work.")
            return ExitCode.FAILED
        finally:
            signals.over()


class Signals:
    """Turns signals into requests to stop, and ends the process if a blocked loop never acts on them."""

    def __init__(self, worker: Worker, settings: WorkerSettings) -> None:
        self._worker = worker
        self._settings = settings
        self._count = 0
        self._watchdog: threading.Timer | None = None

    def received(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        timeout = self._settings.shutdown_timeout if self._count == 1 else 0.0
        hint = " A second one hands running tasks back at once." if self._count == 1 else ""
        log.info("Got %s.%s", signal.Signals(number).name, hint)
        self._worker.request_stop(timeout)
        self.over()
        self._watchdog = threading.Timer(timeout + PATIENCE, self._force)
        self._watchdog.daemon = True
        self._watchdog.start()

    def over(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()

    def _force(self) -> None:
        log.critical("The event loop is blocked and the time is up: leaving without it. Leases end by themselves.")
        logging.shutdown()
        os._exit(ExitCode.FORCED)
