"""Checks that the files at a store's paths are still the ones that this process has open.

SQLite continues in a file that was removed, renamed or replaced, and commits what nothing will ever read. It also does
so when only the write-ahead log or its index is gone: then two processes may write to different logs. So each commit is
followed by a check, and a verb answers only if the files were in place after its commit.

While a connection is open, no process removes the log: only the last one to close does. So a missing log was removed by
mistake.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from dibs.errors import StoreUnavailable

__all__ = ["PIN", "StoreFiles"]

SIDES = ("", "-wal", "-shm")
FRESH_NANOSECONDS = 2_000_000_000
"""On some file systems, a directory that changed so recently may change again with the same time stamp."""
CLOSER_LOOK_SECONDS = 1.0
"""Maximum age of the last check of each file: some changes don't show in the directory."""

PIN = getattr(os, "O_PATH", None)
"""How to hold a file without opening it: closing an opened file would drop SQLite's locks on it."""

Identity = tuple[int, int]  # device and number
NOWHERE: Identity = (-1, -1)


class StoreFiles:
    """The file of a store, its log and the log's index, as they were when it was opened.

    A check costs one `stat` of their directory: if its time stamp is unchanged, no file in it was added or removed. The
    files are pinned, because the number of a deleted file may be reused. Without pins, no file is ever ours again.
    """

    def __init__(self, path: Path) -> None:
        self.folder = str(path.parent)
        self.names = tuple(str(path) + side for side in SIDES)
        self.known: list[Identity | None] = [None, None, None]
        self.pins: dict[str, int] = {}
        self.quiet_since = -1
        self.look_again_at = 0.0

    def remember(self) -> None:
        """Take the files at the paths for ours, unless they already differ from ours."""
        for place, name in enumerate(self.names):
            if self.known[place] is None:
                self.known[place] = self.pin(name)
        self.check_each()

    def remember_file(self) -> None:
        """Without the log, which others may create and remove."""
        self.known[0] = self.pin(self.names[0])

    def pin(self, name: str) -> Identity | None:
        if PIN is None:
            return identity(look(name))
        try:
            self.pins[name] = os.open(name, PIN | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"{name} can't be watched: {error.strerror}. Nothing was written.") from error
        return identity(os.fstat(self.pins[name]))

    def unpin(self, *names: str) -> None:
        for name in names or self.names:
            if name in self.pins:
                os.close(self.pins.pop(name))

    def forget_log(self) -> None:
        """We close our connections, and the last one to do so removes the log."""
        self.unpin(*self.names[1:])
        self.known[1:] = [None, None]
        self.look_again_at = 0.0

    def give_up(self) -> None:
        """Never use these files again, whatever comes back: a process that had the store open must not write."""
        self.known[0] = NOWHERE
        self.look_again_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last check is so old that a write must not begin without one."""
        return time.monotonic() > self.look_again_at

    def check(self) -> None:
        """`StoreUnavailable` if one of the paths has another file, or none."""
        found = look(self.folder)
        if found is None or found.st_mtime_ns != self.quiet_since or time.monotonic() > self.look_again_at:
            self.check_each()

    def check_each(self) -> None:
        folder, now = look(self.folder), time.time_ns()
        self.look_again_at = 0.0
        for name, known in zip(self.names, self.known, strict=True):
            found = look(name)
            if known is not None and identity(found) != known:
                raise StoreUnavailable(self.what_happened(name, found))
            if name == self.names[0] and found is not None and found.st_size == 0:
                raise StoreUnavailable(f"{name} was emptied while it was open. Stop what uses it and restore a backup.")
        changed_at = now if folder is None else folder.st_mtime_ns
        self.quiet_since = changed_at if now - changed_at > FRESH_NANOSECONDS else -1
        self.look_again_at = time.monotonic() + CLOSER_LOOK_SECONDS

    def what_happened(self, name: str, found: os.stat_result | None) -> str:
        how = "was removed or renamed" if found is None else "was replaced by another file"
        if name != self.names[0]:
            return (
                f"{name} {how} while the store was open: nothing more is written. Stop everything that uses the store "
                "(what is not in the file yet is written back by the last one to close), then start it again."
            )
        stop = "stop everything that uses it, restore a backup, and start again."
        remedy = f"S{stop[1:]}" if PIN is None else f"Put that very file back; or {stop}"
        return f"{name} {how} while it was open: nothing more is written, because nothing could read it. {remedy}"


def look(name: str) -> os.stat_result | None:
    try:
        return os.stat(name)  # noqa: PTH116  # after every commit: 2 µs, not 10
    except OSError:
        return None


def identity(found: os.stat_result | None) -> Identity | None:
    """What distinguishes a file from all others; None if there is none, or this file system has no such number."""
    return (found.st_dev, found.st_ino) if found is not None and found.st_ino else None
