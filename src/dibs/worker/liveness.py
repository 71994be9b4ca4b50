"""Whether a worker lives, and whether it can work, for orchestrators. The store is not asked.

*Not live* means that only a new process helps: the event loop is blocked for good, or the heartbeat has stopped. *Not
ready* means that it can't take work now: the store is away, the loop is blocked, or the worker starts or stops. A
restart would not bring the store back, so a worker without one stays live.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from dibs.worker.health import StoreHealth
from dibs.worker.heartbeat import Heartbeat

__all__ = ["Liveness"]

ANSWER_SECONDS = 0.5
"""How long a probe waits for the loop to turn."""

BLOCKED_FOR_GOOD = 60.0
"""A loop that has not turned for so many seconds, or a heartbeat that has not, will not do so again."""


class Liveness:
    """Made on the worker's loop; asked from any other thread."""

    def __init__(self, heartbeat: Heartbeat, health: StoreHealth, unready: Callable[[], str | None]) -> None:
        """`unready`: why the worker takes no work though all is well, such as because it is stopping."""
        self._loop = asyncio.get_running_loop()
        self._heartbeat = heartbeat
        self._health = health
        self._unready = unready
        self._lock = threading.Lock()
        self._owed_since: float | None = None

    def not_live(self) -> str | None:
        """Why only a new process would help; None if it lives."""
        blocked = self._blocked_for()
        if blocked is not None and blocked > BLOCKED_FOR_GOOD:
            return f"the event loop has been blocked for {blocked:.0f} s"
        return self._heartbeat.trouble(BLOCKED_FOR_GOOD)

    def not_ready(self) -> str | None:
        """Why it can't take work now; None if it can."""
        problem = self._unready() or self.not_live()
        if problem is not None:
            return problem
        if self._owed_since is not None:
            return "the event loop is blocked"
        return "the store is away" if self._health.down else None

    def _blocked_for(self) -> float | None:
        """For how long the loop has owed an answer; None if it answers."""
        turned = threading.Event()
        with self._lock:
            began = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # it is closed: the worker has left
                return None
            if turned.wait(ANSWER_SECONDS):
                self._owed_since = None
                return None
            if self._owed_since is None:
                self._owed_since = began
            return time.monotonic() - self._owed_since
