"""Is this file ours, and is it of a layout that we know? If new, make it; if old, migrate it.

`application_id` says that a file is a Dibs store. `user_version` carries two numbers, 1000 · layout + oldest reader:
code that knows at least layout `oldest reader` may use the store, however new it is.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from dibs.engines.sqlite.faults import translated
from dibs.engines.sqlite.statements import migration_scripts
from dibs.errors import StoreMismatch

__all__ = ["APPLICATION_ID", "pending_migrations", "prepare"]

APPLICATION_ID = 0x44696273  # "Dibs"
OLDEST_READER = 1
RETRY_PAUSE = 0.01


def pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def known_layout() -> int:
    return max(migration_scripts())


def stored_layout(connection: sqlite3.Connection, path: Path) -> int:
    """The layout of a file, 0 if it is empty; `StoreMismatch` for what is not ours or too new. Writes nothing."""
    owner, version = pragma(connection, "application_id"), pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner == 0 and version == 0 and tables == 0:
        return 0
    if owner != APPLICATION_ID:
        raise StoreMismatch(
            f"{path} is a SQLite database of another application. Dibs left it untouched; give it a file of its own, "
            "and add your tables to that if you want both in one."
        )
    layout, oldest_reader = divmod(version, 1000)
    if oldest_reader > known_layout() or layout == 0:
        raise StoreMismatch(
            f"{path} was written by a newer Dibs (layout {layout}, this one knows {known_layout()}). Upgrade Dibs."
        )
    return layout


def prepare(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> None:
    """Make the file a Dibs store of the current layout. Several processes may do so at once."""
    with translated(path):
        if stored_layout(connection, path) == 0:
            # Both only work before the first table is written.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        use_write_ahead_log(connection, busy_timeout)
        if stored_layout(connection, path) < known_layout():
            migrate(connection, path)


def use_write_ahead_log(connection: sqlite3.Connection, busy_timeout: float) -> None:
    """Switching needs the file for a moment, and SQLite does not wait for it by itself."""
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


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply the steps that are missing, all or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        layout = stored_layout(connection, path)  # somebody else may have been faster
        for number, (_, script) in migration_scripts().items():
            if number > layout:
                run_script(connection, script)
        if layout < known_layout():
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {1000 * known_layout() + OLDEST_READER}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def run_script(connection: sqlite3.Connection, script: str) -> None:
    """Like `executescript`, which would commit first."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def pending_migrations(path: Path) -> list[str]:
    """What `prepare` would do to a file, which may not exist yet."""
    layout = 0
    if path.exists():
        with translated(path):
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                layout = stored_layout(connection, path)
            finally:
                connection.close()
    return [f"{number:04d} {title}" for number, (title, _) in migration_scripts().items() if number > layout]
