"""The verbs of the seam that every store has in common, for its engine to inherit.

A store says how a verb runs: in a transaction, or on a snapshot. Hot verbs and the lifecycle are its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, TypeVar

from dibs.core.task import HistoryEntry
from dibs.core.times import Instant
from dibs.engines.port import Stored
from dibs.engines.values import (
    Act,
    AuditEntry,
    Changed,
    Counts,
    Edges,
    Minute,
    Page,
    Peeked,
    Query,
    Standing,
    WorkflowRecord,
)
from dibs.engines.verbs import admin, dependencies, reading, searching, workflows
from dibs.engines.verbs.reading import NextIds

__all__ = ["Reach", "Verb", "VerbEngine"]

Answer = TypeVar("Answer")
Verb = Callable[..., Coroutine[Any, Any, Answer]]
"""A coroutine over a port or a view, and its arguments."""


class Reach(Enum):
    """What a verb may touch: a store that locks takes its locks by it."""

    NOTHING = "nothing"  # no tasks, or only those of queues whose tasks don't concern each other
    TASKS = "tasks"
    SETTINGS = "settings"


class VerbEngine(ABC):
    """The verbs that are written once."""

    _next_ids: NextIds
    """How the store finds the next tasks of a queue."""

    @abstractmethod
    async def _change(
        self, verb: Verb[Answer], *arguments: Any, now: Instant | None = None, reach: Reach = Reach.TASKS
    ) -> Answer:
        """Run a verb in a transaction, and notify afterwards."""

    @abstractmethod
    async def _view(
        self, verb: Verb[Answer], *arguments: Any, now: Instant | None = None, behind: bool = False
    ) -> Answer:
        """Run a verb that only reads, on one snapshot. `behind`: a copy that lags a little is good enough."""

    # Viewing.

    async def get(self, ids: Sequence[str]) -> list[Stored | None]:
        return await self._view(reading.get, ids)

    async def history(self, task_id: str) -> list[HistoryEntry]:
        return await self._view(reading.history, task_id)

    async def search(self, query: Query) -> Page:
        # The members of a workflow show how it ended: that must be current.
        return await self._view(searching.search, query, behind=query.workflow is None)

    async def peek(self, queue: str, limit: int, *, until: str | None = None, now: Instant | None = None) -> Peeked:
        asked = (queue, limit, until, self._next_ids)
        return await self._view(reading.peek, *asked, now=now, behind=until is None)

    async def counts(self) -> Counts:
        return await self._view(reading.counts)

    async def stats(self, queue: str | None, since: int, until: int) -> list[Minute]:
        return await self._view(reading.stats, queue, since, until, behind=True)

    async def standing(
        self, queue: str, tasks: Sequence[str] = (), *, tenants: int = 0, now: Instant | None = None
    ) -> Standing:
        return await self._view(reading.standing, queue, tasks, tenants, now=now, behind=not tasks)

    async def audit(self, limit: int = 100) -> list[AuditEntry]:
        return await self._view(reading.audit, limit, behind=True)

    async def workflows(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[WorkflowRecord]:
        return await self._view(workflows.workflows, ids, limit, before, behind=ids is None)

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[Edges]:
        return await self._view(dependencies.edges, ids, followers)

    # Operating.

    async def act(self, acts: Sequence[Act], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        return await self._change(admin.act, acts, actor, now=now)
