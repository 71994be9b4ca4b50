"""The memory engine: the SQLite engine on a database in memory, for tests and for work that may be lost.

`docs/design/memory.md` has the figures. Invariants:

- One connection per store, under a lock, for reads and writes alike. Siblings share the store.
- A verb runs where it is called and never suspends: nothing here waits for a disk.
- A forked child starts empty.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dibs.core.times import Instant
from dibs.engines.base import Engine, Joined, MayBlock, never
from dibs.engines.sqlite.chores import CHORES
from dibs.engines.sqlite.connections import connect_in_memory
from dibs.engines.sqlite.errors import kept_busy, translated
from dibs.engines.sqlite.file_store import registry
from dibs.engines.sqlite.layout import migrate
from dibs.engines.sqlite.snapshot import Snapshot
from dibs.engines.sqlite.store import Store, clock
from dibs.engines.sqlite.verb_engine import SqliteVerbEngine
from dibs.engines.values import Beat, Feature, Finding, Level
from dibs.engines.wake import LocalNotifier
from dibs.errors import UsageError

__all__ = ["MemoryEngine", "MemoryStore"]

Answer = TypeVar("Answer")

DURABILITY = "Acknowledged tasks live in this process's memory and are gone when it ends."
NOWHERE = Path(":memory:")
BUSY_TIMEOUT = 5.0
WITHOUT_FILE = {name: chore for name, chore in CHORES.items() if name not in ("checkpoint", "vacuum")}


class MemoryStore(Store[LocalNotifier]):
    """A database that ends with its last engine."""

    def __init__(self) -> None:
        super().__init__(NOWHERE, BUSY_TIMEOUT)
        self.notifier = LocalNotifier()
        self.writer = self.connection = connect_in_memory()
        migrate(self.connection, self.path, adopt=False)
        registry.add(self)

    def __del__(self) -> None:
        self.connection.close()

    def take_lock(self) -> sqlite3.Connection:
        if not self.lock.acquire(timeout=self.busy_timeout):
            raise kept_busy(self.path)
        return self.connection

    def check_files(self) -> None:
        """There are none."""

    def pause(self) -> None:
        """The connection stays open: nothing outside this process knows of it."""

    def read(self, verb: Callable[..., Answer], arguments: tuple[Any, ...], now: Instant | None) -> Answer:
        """Run a verb that only reads. Nothing else changes the store under the lock."""
        connection = self.take_lock()
        try:
            with translated(self.path):
                return verb(Snapshot(connection, self.catalog, clock(now)), *arguments)
        finally:
            self.lock.release()


class MemoryEngine(SqliteVerbEngine):
    """Tasks in this process, lost when it ends. Siblings share one store."""

    _features = frozenset({Feature.LEAD, Feature.INLINE, Feature.CROSS_QUEUE})
    _durability = DURABILITY
    _chores = WITHOUT_FILE

    def __init__(self, store: MemoryStore | None = None) -> None:
        self._store = store or MemoryStore()

    @property
    def features(self) -> frozenset[Feature]:
        return self._features

    def _opened(self) -> MemoryStore:
        return self._store

    async def _write(self, verb: Callable[..., Answer], *arguments: Any, now: Instant | None = None) -> Answer:
        return self._store.write(verb, arguments, now)

    async def _read(self, verb: Callable[..., Answer], *arguments: Any, now: Instant | None = None) -> Answer:
        return self._store.read(verb, arguments, now)

    # Lifecycle.

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        """Nothing to connect to, or to create: the store came with the engine."""

    async def close(self) -> None:
        """Nothing to release: the store ends with its last engine."""

    def forget(self) -> None:
        registry.forget(self._store)
        self._store = MemoryStore()

    def sibling(self) -> Engine:
        return MemoryEngine(self._store)

    def join(self, connection: Any) -> Joined:
        raise UsageError("the memory engine has no transactions to join: leave connection= out.")

    # Presence: a process that is gone has taken the store with it.

    async def _presence(self, beat: Beat) -> None:
        return None

    async def _end_presence(self, worker: str) -> None:
        pass

    def _absent(self, held: dict[str, int]) -> set[str]:
        return set()

    # The store itself.

    async def check(self, *, full: bool = False) -> list[Finding]:
        return [Finding(Level.WARNING, "memory", DURABILITY)]

    async def backup(self, target: Path) -> None:
        raise UsageError("the memory engine can't be backed up: use a SQLite file if tasks must survive.")

    async def migrations(self, *, sql: bool = False) -> list[str]:
        return []
