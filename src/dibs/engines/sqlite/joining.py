"""join: enqueue and complete on the user's own connection, as part of their transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dibs.core.states import State
from dibs.core.task import NewTask, Settlement
from dibs.core.times import Instant
from dibs.engines.catalog import Catalog
from dibs.engines.port import at_once
from dibs.engines.sqlite.enqueueing import enqueue
from dibs.engines.sqlite.errors import translated
from dibs.engines.sqlite.files import StoreFiles
from dibs.engines.sqlite.settling import settle
from dibs.engines.sqlite.store import clock
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import EnqueueAnswer, SettleOutcome
from dibs.engines.verbs.steps import conclude
from dibs.errors import UsageError

__all__ = ["Joined"]

Answer = TypeVar("Answer")


class NotCurrent(Exception):
    """The lease is not the current one: what was written under it is rolled back."""


class Joined:
    """A transaction of the user's own, which they commit or roll back."""

    waits = None

    def __init__(self, connection: Any, path: Path, files: StoreFiles) -> None:
        if not isinstance(connection, sqlite3.Connection):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise UsageError(f"connection= must be a sqlite3.Connection to {path}, not a {kind}.")
        self.connection = connection
        self.path = path
        self.files = files

    async def enqueue(self, tasks: Sequence[NewTask], *, now: Instant | None = None) -> list[EnqueueAnswer]:
        return self.do(now, lambda transaction: enqueue(transaction, tasks, atomic=True))

    async def complete(self, settlement: Settlement, *, now: Instant | None = None) -> SettleOutcome:
        try:
            return self.do(now, lambda transaction: complete(transaction, settlement))
        except NotCurrent:
            return SettleOutcome.REFUSED

    async def prepare(self) -> None:
        """Nothing to prepare: a transaction creates what it needs, because no other process can while it is open."""

    def do(self, now: Instant | None, verb: Callable[[Transaction], Answer]) -> Answer:
        """Run a verb as part of the open transaction, as a whole or not at all."""
        connection = self.connection
        with plain(connection), translated(self.path):
            check_connection(connection, self.path)
            with savepoint(connection):
                transaction = Transaction(connection, Catalog(), clock(now))
                answer = verb(transaction)
                at_once(conclude(transaction))
                self.files.check()  # the commit is the user's, and nothing checks after it
            return answer


@contextmanager
def plain(connection: sqlite3.Connection) -> Iterator[None]:
    """Use the driver's own rows and texts inside the block."""
    row_factory, text_factory = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        yield
    finally:
        connection.row_factory, connection.text_factory = row_factory, text_factory


def check_connection(connection: sqlite3.Connection, path: Path) -> None:
    files = {name: file for _, name, file in connection.execute("PRAGMA database_list").fetchall()}
    main = files.get("main", "")
    if not main or Path(main).resolve() != path:
        raise UsageError(f"the connection is to {main or 'memory'}, but this app keeps its tasks in {path}.")
    if not connection.in_transaction:
        if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
            raise UsageError(
                "the connection has no open transaction: execute BEGIN IMMEDIATE first, and COMMIT when all is done."
            )
        # The driver begins transactions by itself, but only for statements that it recognises as writes.
        connection.execute("BEGIN IMMEDIATE")


@contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """A failure rolls back what was written here and leaves the rest of the transaction alone."""
    connection.execute("SAVEPOINT dibs_join")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO dibs_join")
            connection.execute("RELEASE dibs_join")
        raise
    connection.execute("RELEASE dibs_join")


def complete(transaction: Transaction, settlement: Settlement) -> SettleOutcome:
    """Complete the task if its lease is the current one; `NotCurrent` otherwise."""
    (answer,) = settle(transaction, [settlement])
    outcome = answer.outcome
    if outcome is SettleOutcome.DONE:
        return outcome
    # Settled by this lease it may be, but otherwise: a run that timed out must not do its work all the same.
    row = transaction.find_rows([settlement.lease.id]).get(settlement.lease.id)
    if outcome is SettleOutcome.REFUSED or row is None or row.state != State.COMPLETED:
        raise NotCurrent
    return outcome
