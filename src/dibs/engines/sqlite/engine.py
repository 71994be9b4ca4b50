"""The engine on a SQLite file: where verbs run, and what only a file has."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from dibs.core.options import shown
from dibs.core.times import Instant
from dibs.engines.base import Engine, Joined, MayBlock, never
from dibs.engines.decisions.steps import Done
from dibs.engines.sqlite import doctor, joining, presence
from dibs.engines.sqlite.chores import CHORES
from dibs.engines.sqlite.file_store import FileStore, Reader, Synchronous, registry
from dibs.engines.sqlite.layout import pending_migrations, pending_script
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.sqlite.verb_engine import SqliteVerbEngine
from dibs.engines.values import Beat, ChoreRecord, Feature, Finding, Term
from dibs.engines.verbs import chores
from dibs.errors import Closed, InvalidOption

__all__ = ["SqliteEngine"]

Answer = TypeVar("Answer")

DURABILITY = {
    "full": "Acknowledged tasks survive a crash of the process, of the system, and the loss of power.",
    "normal": "Acknowledged tasks survive a crash of the process; a power loss may take the last moments with it.",
}


class SqliteEngine(SqliteVerbEngine):
    """Tasks in a SQLite file. Siblings and other engines of this process share one writer connection."""

    _chores = CHORES

    def __init__(
        self, path: Path, synchronous: Synchronous = "full", busy_timeout: float = 5.0, adopt: bool = False
    ) -> None:
        if synchronous not in DURABILITY:
            raise InvalidOption(f"synchronous must be full or normal, not {shown(synchronous)}.")
        if str(path) == ":memory:":
            raise InvalidOption("a SQLite store is a file. Use memory:// for tasks that may be lost with the process.")
        self.path = Path(path).resolve()
        self.synchronous: Synchronous = synchronous
        self._durability = DURABILITY[synchronous]
        self.busy_timeout = busy_timeout
        self.adopt = adopt
        self._store: FileStore | None = None
        self._reader: Reader | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._may_block: MayBlock = never

    @property
    def features(self) -> frozenset[Feature]:
        everywhere = {*Feature} - {Feature.PRESENCE}
        return frozenset(everywhere | {Feature.PRESENCE} if presence.AVAILABLE else everywhere)

    # Where verbs run.

    async def _run(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """Inline if only a blocked caller drives this loop; else on a thread."""
        if self._may_block():
            return function(*arguments)
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="dibs-sqlite")
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    async def _write(self, verb: Callable[..., Answer], *arguments: Any, now: Instant | None = None) -> Answer:
        store = self._opened()
        if self._may_block():  # as `_run` does, one call sooner: this is the way of a lone enqueue
            return store.write(verb, arguments, now)
        return await self._run(store.write, verb, arguments, now)

    async def _read(self, verb: Callable[..., Answer], *arguments: Any, now: Instant | None = None) -> Answer:
        self._opened()
        reader = self._reader
        assert reader is not None
        return await self._run(reader.read, verb, arguments, now)

    def _opened(self) -> FileStore:
        if self._store is None:
            raise Closed(f"the engine on {self.path} is not open.")
        return self._store

    # Lifecycle.

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        self._may_block = may_block
        if self._store is None:
            await self._run(self._open, create)

    def _open(self, create: bool) -> None:
        store = registry.acquire(self.path, self.synchronous, self.busy_timeout, self.adopt, create)
        try:
            self._reader = Reader(store)
        except BaseException:
            registry.release(store)
            raise
        self._store = store

    async def close(self) -> None:
        if self._store is not None:
            await self._run(self._close)
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    def _close(self) -> None:
        store, self._store = self._store, None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        if store is not None:
            registry.release(store)

    def forget(self) -> None:
        registry.forget(self._store, self._reader, self._executor)
        self._store = self._reader = self._executor = None

    def sibling(self) -> Engine:
        return SqliteEngine(self.path, self.synchronous, self.busy_timeout, self.adopt)

    # Presence.

    async def _presence(self, beat: Beat) -> int | None:
        """The byte that a worker's process holds, taken at its first beat. Beats for other processes hold none."""
        presence = self._opened().presence
        if beat.id not in presence.held and beat.pid == os.getpid():
            presence.take(beat.id, await self._write(Transaction.value, "new_presence"))
        return presence.held.get(beat.id)

    def _absent(self, held: dict[str, int]) -> set[str]:
        return self._opened().presence.absent(held)

    async def _end_presence(self, worker: str) -> None:
        self._opened().presence.drop(worker)

    # The user's own transactions.

    def join(self, connection: Any) -> Joined:
        return joining.Joined(connection, self.path, self._opened().files)

    # Maintenance.

    async def chore(self, name: str, term: Term, *, now: Instant | None = None) -> ChoreRecord:
        return await (self._checkpoint(term, now) if name == "checkpoint" else super().chore(name, term, now=now))

    async def _checkpoint(self, term: Term, now: Instant | None) -> ChoreRecord:
        """The one chore that can't be done inside a transaction. It does no harm under an old term."""
        if not await self._view(chores.is_current, term):
            return ChoreRecord(name="checkpoint", refused=True)
        began = time.perf_counter_ns()
        done: Done = (await self._run(self._opened().checkpoint), [])
        took = time.perf_counter_ns() - began
        return await self._change(chores.record_chore, "checkpoint", done, took, now=now)

    # The store itself.

    async def check(self, *, full: bool = False) -> list[Finding]:
        findings = await self._read(doctor.check, self.path, self._opened().synchronous, self._durability, full)
        return [*findings, *doctor.writable(self._opened().read_only)]

    async def backup(self, target: Path) -> None:
        self._opened()
        await self._run(doctor.backup, self.path, target, self.busy_timeout)

    async def migrations(self, *, sql: bool = False) -> list[str]:
        return await self._run(pending_script if sql else pending_migrations, self.path, self.adopt)
