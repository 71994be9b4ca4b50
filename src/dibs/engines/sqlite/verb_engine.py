"""The verbs of an engine on SQLite, whether its database is a file or in memory."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from dibs.core.task import NewTask, Settlement
from dibs.core.times import Instant
from dibs.engines.base import Subscription
from dibs.engines.port import at_once
from dibs.engines.sqlite import claiming, enqueueing, rescue, settling
from dibs.engines.sqlite.snapshot import Snapshot
from dibs.engines.sqlite.store import Store
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import (
    Claimed,
    ClaimRequest,
    EnqueueAnswer,
    ExtendAnswer,
    Extension,
    NewWorkflow,
    Rescued,
    SettleAnswer,
)
from dibs.engines.verbs.engine import Reach, Verb, VerbEngine

__all__ = ["SqliteVerbEngine"]

Answer = TypeVar("Answer")


def inline(verb: Verb[Answer]) -> Callable[..., Answer]:
    """A verb as a function: the port never suspends."""

    def run(snapshot: Snapshot, *arguments: Any) -> Answer:
        snapshot.refresh()
        return at_once(verb(snapshot, *arguments))

    return run


def claim(transaction: Transaction, request: ClaimRequest) -> Claimed:
    return at_once(claiming.claim(transaction, request))


class SqliteVerbEngine(VerbEngine):
    """What an engine can do on a store, once it says where verbs run."""

    @abstractmethod
    def _opened(self) -> Store[Any]: ...

    @abstractmethod
    async def _write(self, verb: Callable[..., Answer], *arguments: Any, now: Instant | None = None) -> Answer:
        """Run a plain function on a transaction."""

    @abstractmethod
    async def _read(self, verb: Callable[..., Answer], *arguments: Any, now: Instant | None = None) -> Answer:
        """Run a plain function on a snapshot."""

    async def _change(
        self, verb: Verb[Answer], *arguments: Any, now: Instant | None = None, reach: Reach = Reach.TASKS
    ) -> Answer:
        return await self._write(inline(verb), *arguments, now=now)

    async def _view(
        self, verb: Verb[Answer], *arguments: Any, now: Instant | None = None, behind: bool = False
    ) -> Answer:
        return await self._read(inline(verb), *arguments, now=now)

    # Hot verbs.

    async def enqueue(
        self,
        tasks: Sequence[NewTask],
        *,
        atomic: bool = False,
        workflow: NewWorkflow | None = None,
        now: Instant | None = None,
    ) -> list[EnqueueAnswer]:
        return await self._write(enqueueing.enqueue, tasks, atomic, workflow, now=now)

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        return await self._write(claim, request, now=now)

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        return await self._write(settling.extend, extensions, now=now)

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleAnswer]:
        return await self._write(settling.settle, settlements, now=now)

    # Rescue and waking.

    @abstractmethod
    def _absent(self, held: dict[str, int]) -> set[str]:
        """Those of these workers whose process is gone, as far as this store can tell; with what their rows say."""

    async def rescue(
        self, *, ended_by: Instant | None = None, not_after: Instant | None = None, now: Instant | None = None
    ) -> Rescued:
        return await self._write(rescue.rescue, self._absent, ended_by, not_after, now=now)

    def subscribe(self, topics: Collection[str]) -> Subscription:
        subscription: Subscription = self._opened().notifier.subscribe(topics, asyncio.get_running_loop())
        return subscription
