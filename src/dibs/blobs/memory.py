"""Blobs in memory, for tests: gone with the process, and invisible to others."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from dibs.blobs.base import BlobInfo, Blobs, check_blob, check_key, check_keys, check_page
from dibs.core.options import brief
from dibs.core.times import Instant
from dibs.errors import BlobLost


class MemoryBlobs:
    """A dictionary."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blobs: dict[str, tuple[Instant, bytes]] = {}

    def __str__(self) -> str:
        return "memory://"

    def put(self, key: str, data: bytes) -> None:
        kept = check_blob(key, data)
        with self._lock:
            self._blobs[key] = (time.time_ns() // 1000, kept)

    def get(self, key: str) -> bytes:
        check_key(key)
        with self._lock:
            found = self._blobs.get(key)
        if found is None:
            raise BlobLost(f"the blob {brief(key, 200)} is not in memory: only the process that wrote it has it.")
        return found[1]

    def delete(self, keys: Sequence[str]) -> None:
        wanted = check_keys(keys)
        with self._lock:
            for key in wanted:
                self._blobs.pop(key, None)

    def list(self, after: str = "", limit: int = 1000) -> Blobs:
        check_page(after, limit)
        with self._lock:
            keys = sorted(key for key in self._blobs if key > after)[:limit]
            return [BlobInfo(key, self._blobs[key][0], len(self._blobs[key][1])) for key in keys]

    def check(self) -> str:
        return "in the memory of this process"
