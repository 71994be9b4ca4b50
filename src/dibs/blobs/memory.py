"""Blobs in memory, for tests: gone with the process, and known to no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from dibs.blobs.base import BlobInfo, Blobs
from dibs.core.times import Instant
from dibs.errors import BlobLost

__all__ = ["MemoryBlobs"]


class MemoryBlobs:
    """A dictionary."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blobs: dict[str, tuple[Instant, bytes]] = {}

    def __str__(self) -> str:
        return "memory://"

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._blobs[key] = (time.time_ns() // 1000, bytes(data))

    def get(self, key: str) -> bytes:
        with self._lock:
            found = self._blobs.get(key)
        if found is None:
            raise BlobLost(f"the blob {key} is not in memory: only the process that wrote it has it.")
        return found[1]

    def delete(self, keys: Sequence[str]) -> None:
        with self._lock:
            for key in keys:
                self._blobs.pop(key, None)

    def list(self, after: str = "", limit: int = 1000) -> Blobs:
        with self._lock:
            keys = sorted(key for key in self._blobs if key > after)[:limit]
            return [BlobInfo(key, self._blobs[key][0], len(self._blobs[key][1])) for key in keys]

    def check(self) -> str:
        return "in the memory of this process"
