"""One SQLite database as one process uses it: a connection that writes, under a lock."""

from __future__ import annotations

import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from dibs.core.times import Instant
from dibs.engines.catalog import Catalog
from dibs.engines.port import at_once
from dibs.engines.sqlite.errors import translated, translation
from dibs.engines.sqlite.notifier import Notifier
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.store_transaction import TaskMoved
from dibs.engines.unreadable import UnreadableRows
from dibs.engines.verbs.steps import conclude
from dibs.engines.wake import LocalNotifier
from dibs.errors import StoreBusy

__all__ = ["Store", "clock"]

Answer = TypeVar("Answer")
WRITE_TRIES = 20
AnyNotifier = TypeVar("AnyNotifier", bound=LocalNotifier | Notifier)


def clock(now: Instant | None) -> Instant:
    return time.time_ns() // 1000 if now is None else now


class Store(ABC, Generic[AnyNotifier]):
    """What the engines of one process share on one database."""

    writer: sqlite3.Connection | None
    notifier: AnyNotifier

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.path = path
        self.busy_timeout = busy_timeout
        self.lock = threading.Lock()
        self.aside = UnreadableRows()
        self.catalog = Catalog(self.aside)

    @abstractmethod
    def take_lock(self) -> sqlite3.Connection:
        """The connection, to be used until the lock is released."""

    @abstractmethod
    def check_files(self) -> None:
        """After a commit, and after an error that this may explain: raises if nothing can read what is written."""

    def write(self, verb: Callable[..., Answer], arguments: tuple[Any, ...], now: Instant | None) -> Answer:
        """Run a verb in a transaction of its own; after the commit, notify its topics."""
        for _ in range(WRITE_TRIES):
            try:
                return self.try_write(verb, arguments, now)
            except TaskMoved:  # nothing was written: decide again about what is stored now
                continue
        raise StoreBusy(f"{self.path}: tasks change faster than this can be done. Nothing was written; try again.")

    def try_write(self, verb: Callable[..., Answer], arguments: tuple[Any, ...], now: Instant | None) -> Answer:
        connection = self.take_lock()
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(connection, self.catalog, clock(now))
            answer = verb(transaction, *arguments)
            at_once(conclude(transaction))
            connection.execute("COMMIT")
            self.check_files()
            if transaction.added_blocks:
                self.catalog.known_blocks.learn(transaction.added_blocks)
        except BaseException as error:
            self.rollback(connection)
            if isinstance(error, sqlite3.Error):
                self.check_files()  # which may be the real cause
                raise translation(error, self.path) from error
            raise
        finally:
            self.lock.release()
        if transaction.topics:
            self.notifier.notify(transaction.topics)
        return answer

    def rollback(self, connection: sqlite3.Connection) -> None:
        """After a failure: undo everything, and make the connection ready for the next transaction."""
        self.catalog.forget()  # it may have tracks that were never committed
        if self.writer is connection and connection.in_transaction:
            with translated(self.path):
                connection.execute("ROLLBACK")

    @abstractmethod
    def pause(self) -> None:
        """Under the lock, before a fork: close what a child must not inherit."""
