"""The async verbs of the PostgreSQL engine."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from dibs.core.task import (
    NewTask,
    Settlement,
    TaskRecord,
)
from dibs.core.times import Instant
from dibs.engines.accelerator import MakeAccelerator
from dibs.engines.base import Engine, Joined, MayBlock, Subscription, never
from dibs.engines.figures import Counts, PoolUse
from dibs.engines.postgres import (
    chores,
    claiming,
    doctor,
    enqueueing,
    pgbouncer,
    settling,
)
from dibs.engines.postgres.errors import DRIVER_ERRORS, translation
from dibs.engines.postgres.joining import Joiner
from dibs.engines.postgres.layout import pending_migrations, pending_script
from dibs.engines.postgres.pool import Address, Pool
from dibs.engines.postgres.session_log import SessionLog
from dibs.engines.postgres.store import NOTHING, SETTINGS, TASKS, Store
from dibs.engines.unreadable import UnreadableRows
from dibs.engines.values import (
    Beat,
    Claimed,
    ClaimRequest,
    EnqueueAnswer,
    ExtendAnswer,
    Extension,
    Feature,
    Finding,
    NewWorkflow,
    Rescued,
    SettleAnswer,
    UnreadableTask,
)
from dibs.engines.verbs.engine import Reach, Verb, VerbEngine
from dibs.errors import Closed, StoreError, UsageError

__all__ = ["PostgresEngine"]

Answer = TypeVar("Answer")
LONG_TAIL = 10_000
"""So many count changes that wait to be folded take long to add up."""
REACHES = {Reach.NOTHING: NOTHING, Reach.TASKS: TASKS, Reach.SETTINGS: SETTINGS}

FEATURES = frozenset(
    {Feature.DURABLE, Feature.SHARED, Feature.LEAD, Feature.TRANSACTIONS, Feature.PRESENCE, Feature.CROSS_QUEUE}
)

forgotten: list[Store] = []
"""Stores of the parent process, kept because dropping them would close the parent's connections."""


class PostgresEngine(VerbEngine):
    """Tasks in a schema of a PostgreSQL database."""

    _durability = doctor.DURABILITY
    _chores = chores.CHORES

    def __init__(
        self, address: Address, aside: UnreadableRows | None = None, session_log: SessionLog | None = None
    ) -> None:
        self.address = address
        self._session_log = session_log or SessionLog()
        self._aside = aside or UnreadableRows()
        self._store: Store | None = None
        self._joiner: Joiner | None = None
        self.accelerate: MakeAccelerator | None = None
        """Makes what is beside the store, if there is something."""

    @property
    def features(self) -> frozenset[Feature]:
        return FEATURES - ({Feature.PRESENCE} if self.address.direct() is None else set())

    def _joining(self) -> Joiner:
        store = self._opened()
        if self._joiner is None or self._joiner.store is not store:
            self._joiner = Joiner(store)
        return self._joiner

    def _opened(self) -> Store:
        if self._store is None:
            raise Closed(f"the engine on {self.address} is not open.")
        return self._store

    # How verbs run.

    async def _change(
        self, verb: Verb[Answer], *arguments: Any, now: Instant | None = None, reach: Reach = Reach.TASKS
    ) -> Answer:
        return await self._opened().write(verb, now, REACHES[reach], *arguments)

    async def _view(
        self, verb: Verb[Answer], *arguments: Any, now: Instant | None = None, behind: bool = False
    ) -> Answer:
        store = self._opened()
        return await (store.consult if behind else store.read)(verb, now, *arguments)

    # Lifecycle.

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        if self._store is None:
            store = Store(self.address, self._aside, may_block, self._session_log)
            try:
                await store.open(create, self.accelerate)
            except BaseException:
                await store.close()
                raise
            self._store = store

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    def forget(self) -> None:
        if self._store is not None:
            forgotten.append(self._store)
            self._store = None

    def sibling(self) -> Engine:
        sibling = PostgresEngine(self.address.impatient(), self._aside, self._session_log)
        sibling.accelerate = self.accelerate
        return sibling

    # Tasks: the hot verbs.

    async def enqueue(
        self,
        tasks: Sequence[NewTask],
        *,
        atomic: bool = False,
        workflow: NewWorkflow | None = None,
        now: Instant | None = None,
    ) -> list[EnqueueAnswer]:
        return await enqueueing.enqueue(self._opened(), tasks, atomic, workflow, now)

    def join(self, connection: Any) -> Joined:
        return self._joining().join(connection)

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        return await claiming.claim(self._opened(), request, now)

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        return await settling.extend(self._opened(), extensions, now)

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleAnswer]:
        return await settling.settle(self._opened(), settlements, now)

    async def rescue(
        self, *, ended_by: Instant | None = None, not_after: Instant | None = None, now: Instant | None = None
    ) -> Rescued:
        return await settling.rescue(self._opened(), ended_by, not_after, now)

    # Reading.

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]:
        return await self._opened().get(ids)

    async def counts(self) -> Counts:
        found, store = await super().counts(), self._opened()
        ((tail,),) = await store.rows("tail", LONG_TAIL)
        if tail == LONG_TAIL:  # there seems to be no leader
            with suppress(StoreError):  # such as a read-only server: the answer is the same
                await store.write(chores.fold_counts, None, NOTHING, [], 0)
        return found

    async def _horizon(self) -> int:
        """Read before the snapshot of the events: a transaction that has ended by then is visible in that."""
        ((settled,),) = await self._opened().rows("events_horizon")
        return int(settled)

    # Presence.

    async def _presence(self, beat: Beat) -> datetime | None:
        return await self._opened().presence.show(beat)

    async def _end_presence(self, worker: str) -> None:
        await self._opened().presence.leave(worker)

    def pool_use(self) -> PoolUse | None:
        return None if self._store is None else self._store.pool.use()

    # Waking.

    def subscribe(self, topics: Collection[str]) -> Subscription:
        return self._opened().notifier.subscribe(topics, asyncio.get_running_loop())

    # The store itself.

    async def check(self, *, full: bool = False) -> list[Finding]:
        store = self._opened()
        found = await store.read(doctor.check, None, full)
        accelerator = store.notifier.accelerator
        beside = [] if accelerator is None else [await accelerator.check()]
        return [*found, *pgbouncer.findings(self.address), *await store.look_at_reader(), *beside]

    async def backup(self, target: Path) -> None:
        raise UsageError("a PostgreSQL store is backed up with its database: use pg_dump or your provider's backups.")

    async def migrations(self, *, sql: bool = False) -> list[str]:
        """Works on a store that is not open, too, and changes nothing."""
        pool = Pool(self.address)
        try:
            async with pool.lend() as connection:
                return await (pending_script if sql else pending_migrations)(connection, self.address)
        except DRIVER_ERRORS as error:
            raise translation(error, str(self.address)) from error
        finally:
            await pool.close()
