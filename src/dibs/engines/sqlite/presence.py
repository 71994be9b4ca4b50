"""Which workers are alive: each worker's process holds one byte of a file locked until it dies.

POSIX locks belong to the process, not to the descriptor: closing any descriptor of the file drops all of them, and
testing a byte that this process holds would release it. So there is one descriptor per process and file, it stays open,
and own bytes are never tested.

Every process that has the store open holds a shared lock on byte 0: a process that can lock it exclusively is alone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from dibs.core.policy import ABSENT_SECONDS

if sys.platform != "win32":
    import fcntl

__all__ = ["AVAILABLE", "Presence", "share_rights"]

AVAILABLE = sys.platform != "win32"  # where not, there are only leases
OPEN_BYTE = 0


class Presence:
    """The presence file of one store, as this process uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + "-presence")
        self.lock = threading.Lock()
        self.descriptor: int | None = None
        self.held: dict[str, int] = {}
        self.first_absent: dict[str, float] = {}

    def open(self, mode: int) -> bool:
        """Hold the file; True if no other process has the store open."""
        if not AVAILABLE:
            return False
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        share_rights(self.path, mode)
        alone = self.try_lock(OPEN_BYTE, shared=False)
        # Downgrading to a shared lock can't fail: no other process holds it exclusively for longer than this line.
        fcntl.lockf(self.descriptor, fcntl.LOCK_SH, 1, OPEN_BYTE)
        return alone

    def close(self) -> None:
        """Drop all locks of this process."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        self.held.clear()

    def try_lock(self, offset: int, *, shared: bool) -> bool:
        assert self.descriptor is not None
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.lockf(self.descriptor, how | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def take(self, worker: str, offset: int) -> None:
        """Hold a byte for a worker of this process, for as long as the process lives or until `drop`."""
        with self.lock:
            if self.descriptor is not None and self.try_lock(offset, shared=False):
                self.held[worker] = offset

    def drop(self, worker: str) -> None:
        with self.lock:
            offset = self.held.pop(worker, None)
            if offset is not None and self.descriptor is not None:
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, offset)

    def absent(self, workers: dict[str, int]) -> set[str]:
        """Those of these workers (id → byte) that were absent in two checks at least a second apart."""
        with self.lock:
            if self.descriptor is None:
                return set()
            now = time.monotonic()
            looked = {worker for worker, offset in workers.items() if self.is_absent(offset)}
            self.first_absent = {worker: self.first_absent.get(worker, now) for worker in looked}
            return {worker for worker, since in self.first_absent.items() if now - since >= ABSENT_SECONDS}

    def is_absent(self, offset: int) -> bool:
        """Whether no process holds a byte, tested by taking a shared lock for a moment."""
        assert self.descriptor is not None
        if offset in self.held.values() or not self.try_lock(offset, shared=True):
            return False
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, offset)
        return True


def share_rights(path: Path, mode: int) -> None:
    """Let every user of the store use what lies beside it, whatever the umask says."""
    try:
        path.chmod(mode)
    except PermissionError:
        return  # another user made it, and has set the mode
