"""Connections to a store's file, to write and to read."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from dibs.engines.sqlite.faults import translation
from dibs.errors import StoreUnavailable

__all__ = ["connect", "connect_read_only", "file_state", "is_read_only"]

STATEMENTS = 256


def connect(path: Path, busy_timeout: float, mode: str = "mode=rwc") -> sqlite3.Connection:
    """A connection; with `mode=rw` the file has to be there."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
    )


def is_read_only(path: Path) -> bool:
    """Whether a store is there that this process may read but not write."""
    if not path.exists() or not may(path, os.R_OK):
        return False
    if not may(path, os.W_OK):
        return True
    # Who may write the file but make none beside it can work as long as others keep those there.
    beside = (beside_file(path, side) for side in ("-wal", "-shm", "-presence"))
    return not may(path.parent, os.W_OK) and not all(may(each, os.W_OK) for each in beside)


def connect_read_only(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """A connection that leaves the file and its directory as they are."""
    log, index = beside_file(path, "-wal"), beside_file(path, "-shm")
    has_log = log.exists() and (log.stat().st_size > 0 or index.exists())
    # Without a log nobody has the file open, and SQLite must be told so, for it would want to make one.
    how = "mode=ro" if has_log else "mode=ro&immutable=1"
    try:
        connection = connect(path, busy_timeout, how)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        if has_log and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN:
            raise StoreUnavailable(
                f"{path} can't be read where it is: its newest part is in {log.name}, which SQLite can only read if it "
                "may write beside it. Copy both files to a directory that may be written, and read them there."
            ) from error
        raise translation(error, path) from error
    return connection


def file_state(path: Path) -> tuple[object, ...]:
    """Changes when a store that is read without its log has been written to, or is about to be."""
    try:
        found = path.stat()
    except OSError:
        raise StoreUnavailable(f"{path} was removed or renamed while it was open.") from None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, beside_file(path, "-wal").exists()


def beside_file(path: Path, side: str) -> Path:
    return path.with_name(path.name + side)


def may(path: Path, how: int) -> bool:
    return os.access(path, how, effective_ids=os.access in os.supports_effective_ids)
