"""enqueue_in: the same enqueue on the user's own connection, as part of their transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dibs.core.task import NewTask
from dibs.core.times import Instant
from dibs.engines.base import EnqueueAnswer
from dibs.engines.sqlite.aftermath import conclude
from dibs.engines.sqlite.catalog import Catalog
from dibs.engines.sqlite.enqueueing import enqueue
from dibs.engines.sqlite.faults import translated
from dibs.engines.sqlite.transaction import Transaction
from dibs.errors import UsageError

__all__ = ["enqueue_in"]


def enqueue_in(connection: Any, tasks: Sequence[NewTask], path: Path, now: Instant) -> list[EnqueueAnswer]:
    """All of the tasks or none become part of the open transaction; its owner commits it, or not."""
    if not isinstance(connection, sqlite3.Connection):
        kind = type(connection).__qualname__
        raise UsageError(f"connection= must be a sqlite3.Connection to {path}, not a {kind}.")
    row_factory, text_factory = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        with translated(path):
            check_connection(connection, path)
            return enqueue_at_savepoint(connection, tasks, now)
    finally:
        connection.row_factory, connection.text_factory = row_factory, text_factory


def check_connection(connection: sqlite3.Connection, path: Path) -> None:
    files = {name: file for _, name, file in connection.execute("PRAGMA database_list").fetchall()}
    main = files.get("main", "")
    if not main or Path(main).resolve() != path:
        raise UsageError(f"the connection is to {main or 'memory'}, but this app keeps its tasks in {path}.")
    if not connection.in_transaction:
        if connection.isolation_level is None:
            raise UsageError(
                "the connection has no open transaction: execute BEGIN IMMEDIATE first, and COMMIT when all is done."
            )
        # The driver begins transactions by itself, but only for statements that it recognises as writes.
        connection.execute("BEGIN IMMEDIATE")


def enqueue_at_savepoint(connection: sqlite3.Connection, tasks: Sequence[NewTask], now: Instant) -> list[EnqueueAnswer]:
    """A failure half-way takes back what was written here and leaves the rest of the transaction alone."""
    connection.execute("SAVEPOINT dibs_enqueue")
    try:
        transaction = Transaction(connection, Catalog(), now)
        answers = enqueue(transaction, tasks, atomic=True)
        conclude(transaction)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO dibs_enqueue")
            connection.execute("RELEASE dibs_enqueue")
        raise
    connection.execute("RELEASE dibs_enqueue")
    return answers
