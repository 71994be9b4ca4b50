"""Notices when the worker's event loop no longer turns, and names the task that blocks it in the log."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

from dibs.worker.run_log import extra_of
from dibs.worker.slots import Slots

__all__ = ["LoopWatchdog"]

log = logging.getLogger("dibs.worker")

LOOK_INTERVAL = 1.0
"""Seconds between two looks at the worker's loop, while something runs on it."""

BLOCKED_AFTER = 2.0
"""A loop that has not turned for this many seconds is blocked."""


class LoopWatchdog:
    """Watches the loop on which it is made. `look` is called from another thread, the heartbeat's."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ticked = time.monotonic()
        self._asked = 0.0

    @property
    def interval(self) -> float | None:
        """Seconds until the next look; None while nothing runs."""
        return LOOK_INTERVAL if self._slots.busy else None

    def look(self, now: float) -> None:
        """Ask the loop for a tick; if it has owed one for too long, name the task that blocks it."""
        if not self._slots.busy:
            self._asked = 0.0
            return
        if self._asked and self._ticked < self._asked:
            if now - self._asked > BLOCKED_AFTER:
                self._name_blocker(now - self._asked)
            return
        self._asked = now
        self._loop.call_soon_threadsafe(self._tick)

    def _tick(self) -> None:
        self._ticked = time.monotonic()

    def _name_blocker(self, seconds: float) -> None:
        run = self._slots.current(self._loop)
        if run is None or run.named_in_log:
            return
        run.named_in_log = True
        frame = sys._current_frames().get(self._thread)
        stack = "".join(traceback.format_stack(frame)[-8:]) if frame is not None else "(no stack)"
        log.warning(
            "%s %s has blocked the event loop for %.1f s: nothing else can start. Make it a plain function "
            "(it then runs in a thread) or await something. It is here:\n%s",
            run.task.name,
            run.task.id,
            seconds,
            stack,
            extra=extra_of(run.task),
        )
