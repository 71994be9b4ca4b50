"""The async verbs of the Redis engine."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from dibs.core.task import NewTask, Settlement
from dibs.core.times import Instant
from dibs.engines.base import Engine, Joined, MayBlock, Subscription, never
from dibs.engines.redis import chores, claiming, doctor, enqueueing, settling
from dibs.engines.redis.client import Client
from dibs.engines.redis.connecting import Address
from dibs.engines.redis.keys import Keys
from dibs.engines.redis.layout import pending_migrations, read_info
from dibs.engines.redis.store import Store
from dibs.engines.unreadable import UnreadableRows
from dibs.engines.values import (
    About,
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
)
from dibs.engines.verbs import chores as verbs
from dibs.engines.verbs.engine import Reach, Verb, VerbEngine
from dibs.engines.wake import LocalNotifier
from dibs.errors import Closed, UsageError

__all__ = ["FEATURES", "RedisEngine", "forgotten"]

Answer = TypeVar("Answer")

FEATURES = frozenset({Feature.DURABLE, Feature.SHARED, Feature.LEAD, Feature.PRESENCE, Feature.CROSS_QUEUE})

WHEN_FULL: frozenset[Verb[Any]] = frozenset({verbs.lead, verbs.do_chore, verbs.record_chore})
"""What must go on for a server that has no memory left to have some again."""

forgotten: list[object] = []
"""Stores and listeners of the parent process, kept because dropping them would close the parent's connections."""


class RedisEngine(VerbEngine):
    """Tasks in a Redis or Valkey server, under a prefix."""

    _chores = chores.CHORES

    def __init__(
        self, address: Address, aside: UnreadableRows | None = None, local: LocalNotifier | None = None
    ) -> None:
        """`local`: whom to wake, if that is shared with other engines."""
        self.address = address
        self._aside = aside or UnreadableRows()
        self._local = local
        self._store: Store | None = None

    @property
    def features(self) -> frozenset[Feature]:
        return FEATURES

    @property
    def _durability(self) -> str:  # type: ignore[override]
        return doctor.durability_of(self._opened().server, self.address.replicas)[1]

    def _opened(self) -> Store:
        if self._store is None:
            raise Closed(f"the engine on {self.address} is not open.")
        return self._store

    # How verbs run.

    async def _change(
        self, verb: Verb[Answer], *arguments: Any, now: Instant | None = None, reach: Reach = Reach.TASKS
    ) -> Answer:
        return await self._opened().write(verb, now, *arguments, when_full=verb in WHEN_FULL)

    async def _view(
        self, verb: Verb[Answer], *arguments: Any, now: Instant | None = None, behind: bool = False
    ) -> Answer:
        return await self._opened().read(verb, now, *arguments)

    # Lifecycle.

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        if self._store is None:
            store = Store(self.address, self._aside, may_block, self._local)
            try:
                await store.open(create)
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
        return RedisEngine(self.address, self._aside)

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
        raise UsageError(
            "a Redis store has no transactions to join: leave connection= out, or enqueue after the commit."
        )

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

    async def about(self) -> About:
        found, info = await super().about(), await read_info(self._opened().client, "stats")
        return structs.replace(found, evicted=int(info.get("evicted_keys", 0)))

    # Presence and waking.

    async def _presence(self, beat: Beat) -> str | None:
        store = self._opened()
        return await store.client.persist(lambda: store.presence.show(beat))

    async def _end_presence(self, worker: str) -> None:
        self._opened().presence.leave(worker)

    def subscribe(self, topics: Collection[str]) -> Subscription:
        return self._opened().notifier.subscribe(topics, asyncio.get_running_loop())

    # The store itself.

    async def check(self, *, full: bool = False) -> list[Finding]:
        return await doctor.check(self._opened(), full)

    async def backup(self, target: Path) -> None:
        raise UsageError("a Redis store is backed up with its server: copy its RDB or append-only file.")

    async def migrations(self, *, sql: bool = False) -> list[str]:
        """Works on a store that is not open, too, and changes nothing."""
        keys = Keys(self.address.prefix)
        client = Client(self.address, keys.tag)
        try:
            return await client.persist(lambda: pending_migrations(client, keys))
        finally:
            client.close()
