"""A wall clock that can be moved under all processes of a run at once: an offset in a small shared file.

Only `time.time` and `time.time_ns` see it, which is how Dibs tells the time where the store has no clock of its own.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

__all__ = ["Clocks"]

OFFSET = struct.Struct("<q")


class Clocks:
    """The shared offset, in nanoseconds."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(OFFSET.pack(0))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), OFFSET.size)
        self._true_ns = time.time_ns

    def install(self) -> None:
        """From now on this process lives by the shared clock."""
        true_ns = self._true_ns
        time.time_ns = lambda: true_ns() + self.offset_ns
        time.time = lambda: time.time_ns() / 1e9

    @property
    def offset_ns(self) -> int:
        (offset,) = OFFSET.unpack_from(self._shared)
        return int(offset)

    def now(self) -> float:
        """The time by the shared clock."""
        return (self._true_ns() + self.offset_ns) / 1e9

    def move(self, seconds: float) -> None:
        OFFSET.pack_into(self._shared, 0, self.offset_ns + round(seconds * 1e9))
