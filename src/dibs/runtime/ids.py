"""New task ids, in time order and monotonic within a process."""

from __future__ import annotations

import os
import threading
import time

from dibs.core.ids import uuid7

__all__ = ["IdMaker"]

BATCH = 256
"""Random numbers fetched from the system at once: a call for each id would double its cost."""


class IdMaker:
    """Makes UUIDv7s whose (millisecond, counter) part never goes back."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._milliseconds = 0
        self._counter = 0
        self._random: list[int] = []

    def __call__(self) -> str:
        if self._pid != os.getpid():  # a forked child must not continue its parent's numbers, nor wait for its lock
            self._begin()
        now = time.time_ns() // 1_000_000
        with self._lock:
            if not self._random:
                self._random = list(memoryview(os.urandom(8 * BATCH)).cast("Q"))
            random = self._random.pop()
            if now > self._milliseconds:
                self._milliseconds, self._counter = now, random & 0x3FF
            else:
                self._counter += 1
                if self._counter > 0xFFF:
                    self._milliseconds, self._counter = self._milliseconds + 1, 0
            milliseconds, counter = self._milliseconds, self._counter
        return uuid7(milliseconds, counter, random >> 2)
