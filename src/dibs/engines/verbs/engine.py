"""The verbs of the seam that every store has in common, for its engine to inherit.

A store says how a verb runs: in a transaction, or on a snapshot. Hot verbs and the lifecycle are its own.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from dibs.core.ids import uuid7
from dibs.core.recurrence import Recurrence
from dibs.core.schedules import ScheduleRecord, ScheduleState
from dibs.core.settings import QueueSettings
from dibs.core.task import HistoryEntry, NewTask, QueueRecord, QueueState, WorkerState
from dibs.core.times import Instant
from dibs.engines.events import EventPage, EventRequest
from dibs.engines.figures import Backlog, Counts, Minute, PoolUse
from dibs.engines.port import Stored
from dibs.engines.steps import ActOnAll, StepRecord
from dibs.engines.values import (
    About,
    Act,
    AuditEntry,
    Beat,
    Changed,
    ChoreRecord,
    Edges,
    Feature,
    Fired,
    Page,
    Peeked,
    Query,
    Standing,
    Term,
    WorkerRecord,
    WorkflowRecord,
)
from dibs.engines.verbs import (
    act_on,
    admin,
    background,
    chores,
    dependencies,
    events,
    figures,
    peeking,
    queues,
    reading,
    schedules,
    searching,
    steps,
    workers,
    workflows,
)
from dibs.engines.verbs.chores import Chore
from dibs.engines.verbs.steps import Part

__all__ = ["Reach", "Verb", "VerbEngine"]

Answer = TypeVar("Answer")
Verb = Callable[..., Coroutine[Any, Any, Answer]]
"""A coroutine over a port or a view, and its arguments."""


def new_id() -> str:
    return uuid7(time.time_ns() // 1_000_000, 0, random.getrandbits(62))


class Reach(Enum):
    """What a verb may touch: a store that locks takes its locks by it."""

    NOTHING = "nothing"  # no tasks, or only those of queues whose tasks don't concern each other
    TASKS = "tasks"
    SETTINGS = "settings"


def reach_of(part: Part | None) -> Reach:
    return Reach.SETTINGS if part is not None and part.exclusive else Reach.TASKS


class VerbEngine(ABC):
    """The verbs that are written once."""

    _durability: str
    _chores: Mapping[str, Chore]

    @property
    @abstractmethod
    def features(self) -> frozenset[Feature]: ...

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

    # Schedules.

    async def schedules(self) -> list[ScheduleRecord]:
        return await self._view(schedules.schedules)

    async def set_schedule(
        self,
        name: str,
        recurrence: Recurrence,
        task: NewTask,
        *,
        declared: bool,
        actor: str = "",
        now: Instant | None = None,
    ) -> Changed:
        asked = (name, recurrence, task, declared, actor)
        return await self._change(schedules.set_schedule, *asked, now=now, reach=Reach.NOTHING)

    async def set_schedule_state(
        self, name: str, state: ScheduleState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return await self._change(schedules.set_schedule_state, name, state, actor, now=now, reach=Reach.NOTHING)

    async def fire(self, *, now: Instant | None = None) -> Fired:
        return await self._change(schedules.fire, now=now)

    # Queues.

    async def queues(self) -> list[QueueRecord]:
        return await self._view(queues.queues)

    async def set_queue(
        self, name: str, settings: QueueSettings, *, expected: int, actor: str = "", now: Instant | None = None
    ) -> QueueRecord | None:
        asked = (name, settings, expected, actor)
        return await self._change(queues.set_queue, *asked, now=now, reach=Reach.SETTINGS)

    async def set_queue_state(
        self, name: str, state: QueueState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return await self._change(queues.set_queue_state, name, state, actor, now=now, reach=Reach.SETTINGS)

    async def delete_queue(
        self, name: str, *, force: bool = False, actor: str = "", now: Instant | None = None
    ) -> Changed:
        asked = (name, force, actor, new_id())
        answer = await self._change(queues.delete_queue, *asked, now=now, reach=Reach.SETTINGS)
        while isinstance(answer, StepRecord):
            record = await self.advance(answer.id, now=now)
            answer = Changed.UNKNOWN if record is None else record.outcome or record
        return answer

    # Workers.

    @abstractmethod
    async def _presence(self, beat: Beat) -> object:
        """Let a worker's process show that it lives, as far as this store can; what the worker's row says of that."""

    @abstractmethod
    async def _end_presence(self, worker: str) -> None:
        """A worker has left."""

    async def beat(self, beat: Beat, *, now: Instant | None = None) -> WorkerState:
        return await self._change(workers.beat, beat, await self._presence(beat), now=now, reach=Reach.NOTHING)

    async def leave(self, worker: str, *, now: Instant | None = None) -> None:
        await self._change(workers.leave, worker, now=now, reach=Reach.NOTHING)
        await self._end_presence(worker)

    async def workers(self) -> list[WorkerRecord]:
        return await self._view(workers.workers)

    async def set_worker_state(
        self, worker: str, state: WorkerState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return await self._change(workers.set_worker_state, worker, state, actor, now=now, reach=Reach.NOTHING)

    # Maintenance.

    def pool_use(self) -> PoolUse | None:
        return None

    async def about(self) -> About:
        identity, records = await self._view(chores.identity_and_chores, self._chores)
        return About(features=self.features, durability=self._durability, identity=identity, chores=records)

    async def lead(self, worker: str, *, now: Instant | None = None) -> Term | None:
        return await self._change(chores.lead, worker, now=now, reach=Reach.NOTHING)

    async def resign(self, term: Term) -> None:
        await self._change(chores.resign, term, reach=Reach.NOTHING)

    async def chore(self, name: str, term: Term, *, now: Instant | None = None) -> ChoreRecord:
        if name != chores.GO_ON:
            return await self._change(chores.do_chore, name, term, self._chores, now=now)
        part = await self._view(steps.next_part, None)
        go_on = {name: partial(steps.go_on, part)}
        return await self._change(chores.do_chore, name, term, go_on, now=now, reach=reach_of(part))

    # Viewing.

    async def get(self, ids: Sequence[str]) -> list[Stored | None]:
        return await self._view(reading.get, ids)

    async def history(self, task_id: str) -> list[HistoryEntry]:
        return await self._view(reading.history, task_id)

    async def search(self, query: Query) -> Page:
        # The members of a workflow show how it ended: that must be current.
        return await self._view(searching.search, query, behind=query.workflow is None)

    async def peek(self, queue: str, limit: int, *, until: str | None = None, now: Instant | None = None) -> Peeked:
        return await self._view(peeking.peek, queue, limit, until, now=now, behind=until is None)

    async def counts(self) -> Counts:
        return await self._view(figures.counts)

    async def backlog(self, *, now: Instant | None = None) -> list[Backlog]:
        return await self._view(figures.backlog, now=now)

    async def stats(self, queue: str | None, since: int, until: int) -> list[Minute]:
        return await self._view(reading.stats, queue, since, until, behind=True)

    async def standing(
        self, queue: str, tasks: Sequence[str] = (), *, tenants: int = 0, now: Instant | None = None
    ) -> Standing:
        return await self._view(reading.standing, queue, tasks, tenants, now=now, behind=not tasks)

    async def audit(self, limit: int = 100, *, before: int | None = None) -> list[AuditEntry]:
        return await self._view(reading.audit, limit, before, behind=True)

    async def workflows(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[WorkflowRecord]:
        return await self._view(workflows.workflows, ids, limit, before, behind=ids is None)

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[Edges]:
        return await self._view(dependencies.edges, ids, followers)

    async def steps(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[StepRecord]:
        return await self._view(background.steps, ids, limit, before)

    # Events.

    async def _horizon(self) -> int:
        """Up to which number no event can appear any more."""
        return await self._view(events.horizon)

    async def events(self, request: EventRequest, *, now: Instant | None = None) -> EventPage:
        page, must_renew = await self._view(events.read_events, request, await self._horizon(), now=now)
        if must_renew:
            await self._change(events.watch, request, now=now, reach=Reach.NOTHING)
        return page

    # Operating.

    async def act(self, acts: Sequence[Act], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        return await self._change(admin.act, acts, actor, now=now)

    async def act_on(
        self, step: str, query: Query, act: ActOnAll, *, actor: str = "", now: Instant | None = None
    ) -> StepRecord:
        counted = await self._view(act_on.count_matching, query, act, now=now)
        return await self._change(act_on.act_on, step, query, act, actor, counted, now=now, reach=Reach.NOTHING)

    async def advance(self, step: str, *, now: Instant | None = None) -> StepRecord | None:
        part = await self._view(steps.next_part, step)
        return await self._change(steps.advance, part, now=now, reach=reach_of(part))
