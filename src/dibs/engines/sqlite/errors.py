"""SQLite's errors, translated into those that Dibs documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dibs.errors import DibsError, StoreBusy, StoreCorrupt, StoreError, StoreMismatch, StoreUnavailable

__all__ = ["kept_busy", "read_only", "translated", "translation"]

BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
CORRUPT = {sqlite3.SQLITE_CORRUPT}
READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}


def translation(error: sqlite3.Error, path: Path) -> DibsError:
    """The Dibs error for a driver error. In every case the transaction has been rolled back."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in BUSY:
        return StoreBusy(f"{path} was locked by others for longer than busy_timeout. Nothing was written; try again.")
    if code in CORRUPT:
        return StoreCorrupt(f"{path} is damaged ({error}). Restore a backup, or salvage it with 'sqlite3 … .recover'.")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreMismatch(f"{path} is not a SQLite database. Give the path of a Dibs store or of a new file.")
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable(f"there is no space left for {path}. Nothing was written and nothing was lost.")
    if code in READ_ONLY:
        return read_only(path)
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailable(f"{path} can't be opened. Check that its directory exists and may be written.")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(f"{path} can't be read or written ({error}). Nothing was written.")
    return StoreError(f"{path}: {error}")


def read_only(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path} can't be written: it, or the directory it is in, is read-only. Nothing was written. It can be read."
    )


def kept_busy(path: Path) -> StoreBusy:
    return StoreBusy(f"{path} was kept busy by this process for longer than busy_timeout; try again.")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise driver errors of the block as Dibs errors."""
    try:
        yield
    except sqlite3.Error as error:
        raise translation(error, path) from error
