"""New task ids, in time order and monotonic within a process."""

from __future__ import annotations

import os
import threading
import time

from dibs.core.ids import uuid7

__all__ = ["IdMaker"]


class IdMaker:
    """Makes UUIDv7s whose (millisecond, counter) part never goes back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._milliseconds = 0
        self._counter = 0

    def __call__(self) -> str:
        random = int.from_bytes(os.urandom(8))
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._milliseconds:
                self._milliseconds, self._counter = now, random & 0x3FF
            else:
                self._counter += 1
                if self._counter > 0xFFF:
                    self._milliseconds, self._counter = self._milliseconds + 1, 0
            return uuid7(self._milliseconds, self._counter, random >> 2)
