"""join: enqueue and complete on the user's own connection, as part of their transaction.

A verb runs as a whole on the thread that the connection is used on: the caller's, or the one that aiosqlite keeps for
each of its connections.
"""

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
from dibs.engines.sqlite.errors import translation
from dibs.engines.sqlite.files import StoreFiles
from dibs.engines.sqlite.settling import settle
from dibs.engines.sqlite.store import clock
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.user_connections import UserConnection, packages_of, unwrap
from dibs.engines.values import EnqueueAnswer, SettleOutcome
from dibs.engines.verbs.steps import conclude
from dibs.errors import DibsError, StoreBusy, UsageError

__all__ = ["Joined"]

Answer = TypeVar("Answer")

SUITABLE = (
    "sqlite3 (Connection), aiosqlite (Connection), SQLAlchemy 2 (Connection, Session, AsyncConnection, AsyncSession "
    "on pysqlite or aiosqlite), or Django's connection (on SQLite)"
)

NO_TRANSACTION = (
    "the connection has no open transaction, so nothing would hold your writes and this one together. Open one first: "
    "execute BEGIN IMMEDIATE (sqlite3, aiosqlite), leave AUTOCOMMIT (SQLAlchemy), enter transaction.atomic() (Django)."
)

TAKE_LOCK = "UPDATE dibs_store SET layout = layout WHERE 0"
"""Writes nothing. A verb begins with a read, after which SQLite no longer waits for others that write."""


class NotCurrent(Exception):
    """The lease is not the current one: what was written under it is rolled back."""


class GivenUp(Exception):
    """The caller no longer waits for the answer: what was written is rolled back."""


class Joined:
    """A transaction of the user's own, which they commit or roll back."""

    def __init__(self, connection: Any, path: Path, files: StoreFiles) -> None:
        self.connection = user_connection(connection)
        self.path = path
        self.files = files
        self.given_up = False

    @property
    def waits(self) -> bool | None:
        return self.connection.waits

    async def enqueue(self, tasks: Sequence[NewTask], *, now: Instant | None = None) -> list[EnqueueAnswer]:
        return await self.do(now, lambda transaction: enqueue(transaction, tasks, atomic=True))

    async def complete(self, settlement: Settlement, *, now: Instant | None = None) -> SettleOutcome:
        try:
            return await self.do(now, lambda transaction: complete(transaction, settlement))
        except NotCurrent:
            return SettleOutcome.REFUSED

    async def prepare(self) -> None:
        """Nothing to prepare: a transaction creates what it needs, because no other process can while it is open."""

    async def do(self, now: Instant | None, verb: Callable[[Transaction], Answer]) -> Answer:
        """Run a verb as part of the open transaction, as a whole or not at all."""
        driver = await self.connection.open()
        if not self.waits and isinstance(driver, sqlite3.Connection):
            return self.do_on(driver, now, verb)
        if self.waits and is_aiosqlite(driver):
            return await self.do_on_its_thread(driver, now, verb)
        raise unsuitable(driver, "the driver of this connection")

    async def do_on_its_thread(self, driver: Any, now: Instant | None, verb: Callable[[Transaction], Answer]) -> Answer:
        """aiosqlite has no public way to do several statements in one step."""
        try:
            connection = driver._conn
        except ValueError as error:
            raise unusable(error) from error
        try:
            answer: Answer = await driver._execute(self.do_on, connection, now, verb)
        except BaseException:
            self.given_up = True
            raise
        return answer

    def do_on(
        self, connection: sqlite3.Connection, now: Instant | None, verb: Callable[[Transaction], Answer]
    ) -> Answer:
        with complaints(self.path), plain(connection):
            check_connection(connection, self.path)
            with savepoint(connection):
                connection.execute(TAKE_LOCK)
                transaction = Transaction(connection, Catalog(), clock(now))
                answer = verb(transaction)
                at_once(conclude(transaction))
                self.files.check()  # the commit is the user's, and nothing checks after it
                if self.given_up:
                    raise GivenUp
            return answer


def user_connection(connection: Any) -> UserConnection[Any]:
    """The `UserConnection` of an object, whose `open` gives the driver's; raises `UsageError` for anything else."""

    async def opened() -> Any:
        return connection

    if isinstance(connection, sqlite3.Connection):
        return UserConnection(None, opened)
    if is_aiosqlite(connection):
        return UserConnection(True, opened)
    if (unwrapped := unwrap(connection, unsuitable)) is None:
        raise unsuitable(connection)
    return unwrapped


def is_aiosqlite(connection: object) -> bool:
    return "aiosqlite" in packages_of(connection) and hasattr(connection, "_execute")


def unsuitable(thing: object, why: str = "") -> UsageError:
    """The error for an object that can't be used."""
    kind = type(thing)
    told = f" ({why})" if why else ""
    return UsageError(f"connection= can't be a {kind.__module__}.{kind.__qualname__}{told}. It may be of {SUITABLE}.")


def unusable(error: Exception) -> UsageError:
    """It is closed, or belongs to another thread."""
    return UsageError(f"the connection can't be used: {error}")


@contextmanager
def complaints(path: Path) -> Iterator[None]:
    """Raise driver errors of the block as Dibs errors that say what to do with the transaction."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise unusable(error) from error
    except sqlite3.Error as error:
        raise complaint(error, path) from error


def complaint(error: sqlite3.Error, path: Path) -> DibsError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreBusy(
            f"others have written to {path} since your transaction read it. Roll it back, and start over: begin with a "
            "write, or with BEGIN IMMEDIATE."
        )
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"{path} was locked by others for longer than your connection waits (its timeout). Roll your transaction "
            "back, and try again."
        )
    if code & 0xFF == sqlite3.SQLITE_READONLY:
        return UsageError(f"the connection can't write to {path} ({error}): give one that can.")
    return translation(error, path)


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
            raise UsageError(NO_TRANSACTION)
        # The driver begins transactions by itself, but only for statements that it recognises as writes. SQLAlchemy
        # leaves that to it, and commits or rolls back what was begun.
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
