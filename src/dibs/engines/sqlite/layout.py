"""Checks that a file is a Dibs store of a known layout; creates a new one, or migrates an old one.

A file is a store if it has the table `dibs_store`, which has the number of its layout. A file of Dibs alone also has
its `application_id`. A database of another application is left alone, unless the user asks Dibs to use it.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from dibs.engines.sqlite.connections import connect_to_read
from dibs.engines.sqlite.errors import translated
from dibs.engines.sqlite.statements import migration_scripts
from dibs.errors import StoreMismatch, StoreMissing, StoreUnavailable

__all__ = [
    "APPLICATION_ID",
    "OLDEST_READER",
    "check_readable",
    "known_layout",
    "migrate",
    "missing",
    "pending_migrations",
    "pending_script",
    "prepare",
    "run_script",
]

APPLICATION_ID = 0x44696273  # "Dibs"
OLDEST_READER = 1
RETRY_PAUSE = 0.01
BUSY_TIMEOUT = 5.0


def known_layout() -> int:
    return max(migration_scripts())


def stored_layout(connection: sqlite3.Connection, path: Path, adopt: bool) -> int:
    """The layout of a file, 0 if it may become a store; `StoreMismatch` if not, or if it is too new. Writes nothing."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if "dibs_store" in tables:
        return readable_layout(connection, path)
    if tables and not adopt:
        raise StoreMismatch(
            f"{path} is a SQLite database of another application. Dibs left it untouched. Give it a file of its own, "
            "or add ?adopt=yes to the URL to keep tasks beside the tables that are there."
        )
    return 0


def readable_layout(connection: sqlite3.Connection, path: Path) -> int:
    layout, oldest_reader = connection.execute("SELECT layout, oldest_reader FROM dibs_store").fetchone()
    if oldest_reader > known_layout():
        raise StoreMismatch(
            f"{path} was written by a newer Dibs (layout {layout}, this one knows {known_layout()}). Upgrade Dibs."
        )
    found: int = layout
    return found


def missing(path: Path) -> StoreMissing:
    """The error about a file that is not there, or holds no store."""
    where = "in" if path.exists() else "at"
    return StoreMissing(f"there is no store {where} {path}. A worker, an enqueue or `dibs migrate` makes one.")


def prepare(
    connection: sqlite3.Connection, path: Path, busy_timeout: float, adopt: bool = False, create: bool = True
) -> None:
    """Make the file a Dibs store of the current layout. Several processes may do so at once."""
    with translated(path):
        if stored_layout(connection, path, adopt) == 0:
            if not create:
                raise missing(path)
            # No effect on a file that has tables already: its free pages are then reused, not returned.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        use_write_ahead_log(connection, busy_timeout)
        if stored_layout(connection, path, adopt) < known_layout():
            migrate(connection, path, adopt)


def check_readable(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a file that can't be written is a store of the current layout."""
    with translated(path):
        layout = stored_layout(connection, path, adopt=False)
    if layout < known_layout():
        what = "holds no store yet" if layout == 0 else f"has layout {layout}, and this Dibs needs {known_layout()}"
        raise StoreUnavailable(f"{path} {what}, but it, or the directory it is in, is read-only.")


def use_write_ahead_log(connection: sqlite3.Connection, busy_timeout: float) -> None:
    """Retry: switching needs the file exclusively for a moment, and SQLite does not wait for that."""
    until = time.monotonic() + busy_timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(RETRY_PAUSE)
        else:
            return


def migrate(connection: sqlite3.Connection, path: Path, adopt: bool) -> None:
    """Apply the missing steps, all or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        layout = stored_layout(connection, path, adopt)  # another process may have been faster
        alone = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        for number, (_, script) in migration_scripts().items():
            if number > layout:
                run_script(connection, script)
        if layout < known_layout():
            connection.execute(mark())
        if alone:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def mark() -> str:
    """Sets the layout that the store has now."""
    return f"UPDATE dibs_store SET layout = {known_layout()}, oldest_reader = {OLDEST_READER};"  # noqa: S608  # our own numbers


def run_script(connection: sqlite3.Connection, script: str) -> None:
    """Like `executescript`, which would commit first."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def pending_migrations(path: Path, adopt: bool) -> list[str]:
    """What `prepare` would do to a file, which may not exist yet."""
    layout = layout_of_file(path, adopt)
    return [f"{number:04d} {title}" for number, (title, _) in migration_scripts().items() if number > layout]


def pending_script(path: Path, adopt: bool) -> list[str]:
    """What `prepare` would do, for SQLite's own shell; nothing if there is nothing to do."""
    layout = layout_of_file(path, adopt)
    scripts = [f"-- {number:04d} {title}\n{script}" for number, (title, script) in migration_scripts().items()]
    if layout >= known_layout():
        return []
    alone = not (path.exists() and path.stat().st_size)
    first = ["PRAGMA auto_vacuum = INCREMENTAL;"] if alone else []
    last = [f"PRAGMA application_id = {APPLICATION_ID};"] if alone else []
    return [*first, "PRAGMA journal_mode = WAL;", "BEGIN IMMEDIATE;", *scripts[layout:], mark(), *last, "COMMIT;"]


def layout_of_file(path: Path, adopt: bool) -> int:
    layout = 0
    if path.exists():
        with translated(path):
            connection = connect_to_read(path, BUSY_TIMEOUT)
            try:
                layout = stored_layout(connection, path, adopt)
            finally:
                connection.close()
    return layout
