"""What the log says about sessions that should last: those that listen, and those by which a killed worker is noticed.

An outage ends all of them at once. An engine and its siblings share one log, which says once that the first is gone and
once that all are back; a session that is gone alone says so as well.
"""

from __future__ import annotations

import logging
import threading

__all__ = ["SessionLog"]

log = logging.getLogger("dibs.engines.postgres")


class SessionLog:
    """Which sessions are missing; used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._missing: set[object] = set()
        self._when_back = ""

    def missing(self, session: object, line: str, when_back: str) -> None:
        """This session can't be had for now. `when_back` is said once none is missing any more."""
        with self._lock:
            is_first = not self._missing
            self._missing.add(session)
            if is_first:
                self._when_back = when_back
        log.log(logging.WARNING if is_first else logging.DEBUG, "%s", line)

    def back(self, session: object) -> None:
        """It is there again."""
        if self.forget(session):
            log.info("%s", self._when_back)

    def forget(self, session: object) -> bool:
        """It is not wanted any more. Whether it was the last one that was missing."""
        with self._lock:
            was_missing = session in self._missing
            self._missing.discard(session)
            return was_missing and not self._missing
