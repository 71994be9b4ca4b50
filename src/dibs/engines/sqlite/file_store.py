"""What the engines of one process share on one file: the writer connection, its lock, presence and notifier."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar
from weakref import WeakSet

from dibs.core.times import Instant
from dibs.engines.catalog import Catalog
from dibs.engines.sqlite.connections import connect, connect_read_only, connect_to_read, is_read_only, resting_state
from dibs.engines.sqlite.errors import kept_busy, read_only, translated
from dibs.engines.sqlite.files import PIN, StoreFiles
from dibs.engines.sqlite.layout import check_readable, missing, prepare
from dibs.engines.sqlite.notifier import Notifier
from dibs.engines.sqlite.presence import Presence
from dibs.engines.sqlite.snapshot import Snapshot
from dibs.engines.sqlite.store import Store, clock
from dibs.errors import StoreBusy, StoreCorrupt, StoreUnavailable

__all__ = ["FileStore", "Reader", "Synchronous", "registry"]

Answer = TypeVar("Answer")
Synchronous = Literal["full", "normal"]

CACHE_KIBIBYTES = 16_384
AUTOCHECKPOINT_PAGES = 1000
LARGE_LOG = 64 * 1024 * 1024
READ_TRIES = 5


class FileStore(Store[Notifier]):
    """One file in one process."""

    def __init__(self, path: Path, synchronous: Synchronous, busy_timeout: float, adopt: bool) -> None:
        super().__init__(path, busy_timeout)
        self.synchronous = synchronous
        self.adopt = adopt
        self.presence = Presence(path)
        self.notifier = Notifier(path, self.data_version)
        self.users = 0
        self.writer = None
        self.readers: list[Reader] = []
        self.files = StoreFiles(path)
        self.read_only = False

    def open(self, create: bool) -> None:
        if not create and not self.path.exists():
            raise missing(self.path)
        if is_read_only(self.path):
            self.open_read_only()
        else:
            self.open_to_write(create)

    def open_read_only(self) -> None:
        """Create nothing beside the file. A later write tries again whether it can be written."""
        with translated(self.path), closing(connect_to_read(self.path, self.busy_timeout)) as connection:
            check_readable(connection, self.path)
        self.files.remember_file()
        self.read_only = True

    def open_to_write(self, create: bool = True) -> None:
        log = self.path.with_name(self.path.name + "-wal")
        left_behind = log.exists() and log.stat().st_size > 0
        with translated(self.path):
            writer = connect(self.path, self.busy_timeout)
        try:
            prepare(writer, self.path, self.busy_timeout, self.adopt, create)
            self.notifier.mode = stat.S_IMODE(self.path.stat().st_mode)
            alone = self.presence.open(self.notifier.mode)
            with translated(self.path):
                if alone and left_behind:
                    quick_check(writer, self.path)
                self.begin(writer)
        except BaseException as error:
            self.presence.close()
            writer.close()
            self.files.forget_log()
            if not self.read_only:  # otherwise that is already known
                self.files.unpin()
            if isinstance(error, OSError):
                what = f"what lies beside {self.path} can't be used: {error.strerror} ({error.filename})."
                raise StoreUnavailable(what) from error
            raise
        self.writer = writer

    def begin(self, writer: sqlite3.Connection) -> None:
        """Check that the files of a new connection are ours, before it is used."""
        self.tune(writer)
        writer.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log
        self.files.remember()

    def tune(self, writer: sqlite3.Connection) -> None:
        writer.execute(f"PRAGMA synchronous = {self.synchronous.upper()}")
        writer.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
        # Or a statement that changes more than 16 pages copies them to a file first, to undo it if it fails.
        writer.execute("PRAGMA temp_store = MEMORY")
        writer.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
        writer.execute(f"PRAGMA journal_size_limit = {LARGE_LOG}")

    def demand(self, synchronous: Synchronous, busy_timeout: float) -> None:
        """Another engine of this process opens the file: the stricter setting applies to both."""
        self.busy_timeout = max(self.busy_timeout, busy_timeout)
        if synchronous == "full" and self.synchronous != "full":
            with self.lock:
                self.synchronous = "full"
                if self.writer is not None:
                    self.tune(self.writer)

    def close(self) -> None:
        self.notifier.close()
        with self.lock, translated(self.path):
            self.disconnect()
        self.presence.close()
        self.files.unpin()

    def take_lock(self) -> sqlite3.Connection:
        if self.read_only and is_read_only(self.path):
            raise read_only(self.path)
        if not self.lock.acquire(timeout=max(self.busy_timeout, 0.001)):
            raise kept_busy(self.path)
        try:
            if self.read_only:
                self.files.check_each()  # a missing file must not be created again
                self.open_to_write()
                self.read_only = False
            if self.files.is_due:
                self.check_files()
            if self.writer is None:  # closed for a fork, or because its files were gone
                self.writer = self.reconnected()
            return self.writer
        except BaseException:
            self.lock.release()
            raise

    def reconnected(self) -> sqlite3.Connection:
        self.files.check_each()  # a missing file must not be created again
        with translated(self.path):
            writer = connect(self.path, self.busy_timeout, "mode=rw")
            try:
                self.begin(writer)
            except BaseException:
                writer.close()
                self.files.forget_log()
                raise
        return writer

    def disconnect(self) -> None:
        """Under the lock; the next write connects again."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def pause(self) -> None:
        self.disconnect()
        self.files.forget_log()

    def check_files(self) -> None:
        """Under the lock. If the files are no longer ours, close them, because we would block others.

        SQLite then writes the log back only if the file is in place and no other process has it open.
        """
        try:
            self.files.check()
        except StoreUnavailable:
            self.let_go()
            raise

    def let_go(self) -> None:
        if PIN is None:
            self.files.give_up()
        for reader in [*self.readers]:
            reader.let_go()
        with suppress(sqlite3.Error):
            self.disconnect()

    def abandon(self) -> bool:
        """Whether the files are lost for the processes that have them open, so that a new store must be opened."""
        try:
            self.files.check_each()
        except StoreUnavailable:
            with self.lock:
                self.files.give_up()
                self.let_go()
                self.presence.close()  # a process has one descriptor of it
            return True
        return False

    def data_version(self) -> int | None:
        """Changes when another connection commits; None if the writer is busy."""
        if not self.lock.acquire(timeout=0.01):
            return None
        try:
            if self.writer is None:
                return None
            version: int = self.writer.execute("PRAGMA data_version").fetchone()[0]
            return version
        except sqlite3.Error:  # the next verb will report it
            return None
        finally:
            self.lock.release()

    def checkpoint(self) -> int:
        """Copy the write-ahead log into the file, and truncate it when it is large. Returns the pages copied."""
        connection = self.take_lock()
        try:
            self.check_files()  # or it could overwrite what other processes have written to the file
            with translated(self.path):
                log = self.path.with_name(self.path.name + "-wal")
                large = log.exists() and log.stat().st_size > LARGE_LOG
                connection.execute("PRAGMA busy_timeout = 0")  # don't wait for readers
                how = "TRUNCATE" if large else "PASSIVE"
                copied: int = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()[2]
                return max(0, copied)
        finally:
            if self.writer is connection:
                connection.execute(f"PRAGMA busy_timeout = {round(self.busy_timeout * 1000)}")
            self.lock.release()


class Reader:
    """A connection for short reads, under a lock of its own."""

    def __init__(self, store: FileStore) -> None:
        self.store = store
        self.path = store.path
        self.busy_timeout = store.busy_timeout
        self.lock = threading.Lock()
        self.catalog = Catalog(store.aside)
        self.connection: sqlite3.Connection | None = None
        self.resting: tuple[int, int] | None = None
        store.readers.append(self)

    def connected(self) -> sqlite3.Connection:
        if self.connection is None:
            self.store.files.check_each()
            self.resting = None
            if self.store.read_only:
                self.resting = resting_state(self.path)
                self.connection = connect_read_only(self.path, self.busy_timeout, self.resting is not None)
            else:
                self.connection = connect(self.path, self.busy_timeout, "mode=rw")
                self.connection.execute("PRAGMA query_only = 1")
        return self.connection

    def read(self, verb: Callable[..., Answer], arguments: tuple[Any, ...], now: Instant | None = None) -> Answer:
        """Run a verb on one consistent state of the store."""
        with self.lock, translated(self.path):
            for _ in range(READ_TRIES):
                try:
                    answer = self.try_read(verb, arguments, now)
                except sqlite3.Error:
                    if self.was_consistent():
                        raise
                else:
                    if self.was_consistent():
                        return answer
                self.disconnect()
            raise StoreBusy(f"{self.path} is being written to by others all the time: try again.")

    def try_read(self, verb: Callable[..., Answer], arguments: tuple[Any, ...], now: Instant | None) -> Answer:
        connection = self.connected()
        connection.execute("BEGIN")
        try:
            return verb(Snapshot(connection, self.catalog, clock(now)), *arguments)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def was_consistent(self) -> bool:
        """Whether one state was read, of the file that is at the path."""
        try:
            self.store.files.check()
        except StoreUnavailable:
            self.disconnect()
            raise
        return self.resting is None or self.resting == resting_state(self.path)

    def close(self) -> None:
        with self.lock, translated(self.path):
            self.disconnect()
        self.store.readers.remove(self)

    def let_go(self) -> None:
        """The files are lost: close, unless a read is under way, which will notice by itself."""
        if self.lock.acquire(blocking=False):
            try:
                with suppress(sqlite3.Error):
                    self.disconnect()
            finally:
                self.lock.release()

    def disconnect(self) -> None:
        """Under the lock; the next read connects again."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    pause = disconnect


def quick_check(connection: sqlite3.Connection, path: Path) -> None:
    """Check the file after a process stopped without closing the store."""
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreCorrupt(f"{path} is damaged ({found}). Restore a backup, or salvage it with 'sqlite3 … .recover'.")


class Registry:
    """The stores of this process.

    A process must not have two writers on one file: SQLite's locks and ours belong to the process.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stores: dict[tuple[int, Path], FileStore] = {}
        self.without_file: WeakSet[Store[Any]] = WeakSet()
        self.inherited: list[object] = []
        self.held: list[Store[Any] | Reader] = []

    def acquire(
        self, path: Path, synchronous: Synchronous, busy_timeout: float, adopt: bool, create: bool = True
    ) -> FileStore:
        """The store of this file in this process; the first engine opens it."""
        with self.lock:
            store = self.stores.get((os.getpid(), path))
            if store is None or store.abandon():
                store = FileStore(path, synchronous, busy_timeout, adopt)
                store.open(create)
                self.stores[os.getpid(), path] = store
            else:
                store.demand(synchronous, busy_timeout)
            store.users += 1
            return store

    def add(self, store: Store[Any]) -> None:
        """A store without a file, for as long as it is used."""
        with self.lock:
            self.without_file.add(store)

    def release(self, store: FileStore) -> None:
        """The last engine closes it."""
        with self.lock:
            store.users -= 1
            if store.users == 0:
                if self.stores.get((os.getpid(), store.path)) is store:
                    del self.stores[os.getpid(), store.path]
                store.close()

    def forget(self, *inherited: object) -> None:
        """In a forked child: keep the parent's objects alive without ever using or closing them."""
        self.inherited.extend(inherited)

    def hold(self) -> None:
        """Before a fork: wait for what is under way, and close all connections to files, until they are used again.

        SQLite keeps in memory which locks this process has on a file. A child inherits that memory but not the locks:
        it would wait for a write that never ends, or lose the log when the parent closes the file. A statement that is
        under way holds locks of SQLite's own, which no thread of the child would release.
        """
        self.lock.acquire()
        mine = [store for (pid, _), store in self.stores.items() if pid == os.getpid()]
        # Also those not connected: they may be about to connect.
        readers = (reader for store in mine for reader in store.readers)
        users: list[Store[Any] | Reader] = [*mine, *readers, *self.without_file]
        for each in users:
            if each.lock.acquire(timeout=each.busy_timeout):
                self.held.append(each)
                each.pause()

    def let_go(self) -> None:
        """After a fork, in parent and child."""
        for each in self.held:
            each.lock.release()
        self.held = []
        self.lock.release()


registry = Registry()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=registry.hold, after_in_parent=registry.let_go, after_in_child=registry.let_go)
