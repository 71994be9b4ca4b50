"""The verbs of the seam that every store has in common, for its engine to inherit.

A store says how a verb runs: in a transaction, or on a snapshot. Hot verbs and the lifecycle are its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, TypeVar

from dibs.core.times import Instant
from dibs.engines.values import Act, Changed, Edges, WorkflowRecord
from dibs.engines.verbs import admin, dependencies, workflows

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

    async def workflows(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[WorkflowRecord]:
        return await self._view(workflows.workflows, ids, limit, before, behind=ids is None)

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[Edges]:
        return await self._view(dependencies.edges, ids, followers)

    # Operating.

    async def act(self, acts: Sequence[Act], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        return await self._change(admin.act, acts, actor, now=now)
