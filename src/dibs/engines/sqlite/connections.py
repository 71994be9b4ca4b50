"""Connections to a store's file, to write and to read; and to a database in memory."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from dibs.errors import StoreUnavailable

__all__ = ["connect", "connect_in_memory", "connect_read_only", "connect_to_read", "is_read_only", "resting_state"]

STATEMENTS = 256


def connect(path: Path, busy_timeout: float, mode: str = "mode=rwc") -> sqlite3.Connection:
    """A connection; with `mode=rw` the file must exist."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
    )


def connect_in_memory() -> sqlite3.Connection:
    """A new, empty database that ends with its connection. It rolls back like a file: its journal is in memory."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
    )
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def is_read_only(path: Path) -> bool:
    """Whether the store exists and this process may read but not write it."""
    if not path.exists() or not may(path, os.R_OK):
        return False
    if not may(path, os.W_OK):
        return True
    # A process that may write the file, but create none beside it, can work while others keep those files there.
    beside = (beside_file(path, side) for side in ("-wal", "-shm", "-presence"))
    return not may(path.parent, os.W_OK) and not all(may(each, os.W_OK) for each in beside)


def connect_to_read(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """A short-lived connection for reading, whether or not the store can be written."""
    if is_read_only(path):
        return connect_read_only(path, busy_timeout, resting_state(path) is not None)
    return connect(path, busy_timeout)


def resting_state(path: Path) -> tuple[int, int] | None:
    """Changes with each write. None while a log exists: the store is open, or was not closed cleanly."""
    log = beside_file(path, "-wal")
    if log.exists() and (log.stat().st_size > 0 or beside_file(path, "-shm").exists()):
        return None
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def connect_read_only(path: Path, busy_timeout: float, rests: bool) -> sqlite3.Connection:
    """A connection that leaves the file and its directory as they are.

    A store at rest has no log, and SQLite must be told not to make one. It then takes no locks, so the reader must
    check afterwards that the store was still at rest.
    """
    connection = connect(path, busy_timeout, "mode=ro&immutable=1" if rests else "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        connection.close()
        if not rests and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN:
            raise StoreUnavailable(
                f"{path} can't be read where it is: its newest part is in {path.name}-wal, which SQLite only reads if "
                "it may write beside it. Copy both files to a writable directory, and read them there."
            ) from error
        raise
    return connection


def beside_file(path: Path, side: str) -> Path:
    return path.with_name(path.name + side)


def may(path: Path, how: int) -> bool:
    return os.access(path, how, effective_ids=os.access in os.supports_effective_ids)
