"""The async verbs of the memory engine: each is one step under the store's lock, then its notifications."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

from dibs.core.policy import CHORE_BATCH, TERM
from dibs.core.schedules import Recurrence, ScheduleRecord, ScheduleState
from dibs.core.settings import QueueSettings
from dibs.core.task import (
    HistoryEntry,
    NewTask,
    QueueRecord,
    QueueState,
    Settlement,
    TaskRecord,
    WorkerState,
)
from dibs.core.times import Instant
from dibs.engines.base import Engine, Joined, MayBlock, Subscription, never
from dibs.engines.memory import admin, claiming, reporting, schedules, workflows
from dibs.engines.memory.enqueueing import enqueue
from dibs.engines.memory.follow_ups import run_follow_ups
from dibs.engines.memory.store import Store, detached
from dibs.engines.values import (
    About,
    Act,
    AuditEntry,
    Beat,
    Changed,
    ChoreRecord,
    Claimed,
    ClaimRequest,
    Counts,
    Edges,
    EnqueueAnswer,
    ExtendAnswer,
    Extension,
    Feature,
    Finding,
    Fired,
    Level,
    Minute,
    NewWorkflow,
    Page,
    Peeked,
    Query,
    Rescued,
    SettleAnswer,
    Standing,
    Term,
    UnreadableTask,
    WorkerRecord,
    WorkflowRecord,
)
from dibs.engines.wake import LocalNotifier
from dibs.errors import UsageError

__all__ = ["MemoryEngine"]

Answer = TypeVar("Answer")
DURABILITY = "Acknowledged tasks live in this process's memory and are gone when it ends."


class MemoryEngine:
    """Tasks in this process, lost when it ends. Siblings share one store."""

    features = frozenset({Feature.LEAD, Feature.INLINE})

    def __init__(self, store: Store | None = None, local_notifier: LocalNotifier | None = None) -> None:
        self._store = store or Store()
        self._local_notifier = local_notifier or LocalNotifier()

    async def open(self, may_block: MayBlock = never) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to release: the store ends with its last engine."""

    def forget(self) -> None:
        """A forked child starts empty."""
        self._store = Store()
        self._local_notifier = LocalNotifier()

    def sibling(self) -> Engine:
        return MemoryEngine(self._store, self._local_notifier)

    async def about(self) -> About:
        with self._store.lock:
            chores = [copy(self._store.chores.get(name, ChoreRecord(name=name))) for name in admin.CHORES]
        return About(features=self.features, durability=DURABILITY, identity=self._store.identity, chores=chores)

    def _do(self, verb: Callable[..., Answer], *arguments: Any, now: Instant | None = None) -> Answer:
        """Run one verb with the store's clock, then notify its topics."""
        store = self._store
        with store.lock:
            at = time.time_ns() // 1000 if now is None else now
            answer = verb(store, *arguments, at)
            if store.edges.follow_ups and verb is not claiming.claim:  # a claim has done its part of them
                run_follow_ups(store, at)
            topics, store.topics = store.topics, set()
        self._local_notifier.notify(topics)
        return answer

    async def enqueue(
        self,
        tasks: Sequence[NewTask],
        *,
        atomic: bool = False,
        workflow: NewWorkflow | None = None,
        now: Instant | None = None,
    ) -> list[EnqueueAnswer]:
        return self._do(enqueue, tasks, atomic, workflow, now=now)

    def join(self, connection: Any) -> Joined:
        raise UsageError("the memory engine has no transactions to join: leave connection= out.")

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        return self._do(claiming.claim, request, now=now)

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        return self._do(reporting.extend, extensions, now=now)

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleAnswer]:
        return self._do(reporting.settle, settlements, now=now)

    async def rescue(
        self, *, ended_by: Instant | None = None, not_after: Instant | None = None, now: Instant | None = None
    ) -> Rescued:
        return self._do(reporting.rescue, ended_by, not_after, now=now)

    async def act(self, acts: Sequence[Act], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        return self._do(admin.act, acts, actor, now=now)

    async def workflows(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[WorkflowRecord]:
        with self._store.lock:
            return workflows.workflows(self._store, ids, limit, before)

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[Edges]:
        with self._store.lock:
            return [admin.edges_of(self._store, task_id, followers) for task_id in ids]

    async def schedules(self) -> list[ScheduleRecord]:
        with self._store.lock:
            return [record for _, record in sorted(self._store.schedules.items())]

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
        return self._do(schedules.set_schedule, name, recurrence, task, declared, actor, now=now)

    async def set_schedule_state(
        self, name: str, state: ScheduleState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return self._do(schedules.set_schedule_state, name, state, actor, now=now)

    async def fire(self, *, now: Instant | None = None) -> Fired:
        return self._do(schedules.fire, now=now)

    async def standing(
        self, queue: str, tasks: Sequence[str] = (), *, tenants: int = 0, now: Instant | None = None
    ) -> Standing:
        return self._do(admin.standing, queue, tasks, tenants, now=now)

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]:
        with self._store.lock:
            tasks = self._store.tasks
            return [detached(tasks[task_id]) if task_id in tasks else None for task_id in ids]

    async def history(self, task_id: str) -> list[HistoryEntry]:
        with self._store.lock:
            return list(self._store.histories.get(task_id, ()))

    async def search(self, query: Query) -> Page:
        with self._store.lock:
            return admin.search(self._store, query)

    async def peek(self, queue: str, limit: int, *, until: str | None = None, now: Instant | None = None) -> Peeked:
        return self._do(admin.peek, queue, limit, until, now=now)

    async def counts(self) -> Counts:
        with self._store.lock:
            return admin.counts(self._store)

    async def stats(self, queue: str | None, since: int, until: int) -> list[Minute]:
        with self._store.lock:
            chosen = [m for m in self._store.minutes.values() if since <= m.minute <= until]
        return sorted(
            (copy(m) for m in chosen if queue is None or m.queue == queue),
            key=lambda m: (m.minute, m.worker, m.queue, m.tier),
        )

    async def queues(self) -> list[QueueRecord]:
        with self._store.lock:
            return [queue.record() for _, queue in sorted(self._store.queues.items())]

    async def set_queue(
        self, name: str, settings: QueueSettings, *, expected: int, actor: str = "", now: Instant | None = None
    ) -> QueueRecord | None:
        return self._do(admin.set_queue, name, settings, expected, actor, now=now)

    async def set_queue_state(
        self, name: str, state: QueueState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return self._do(admin.set_queue_state, name, state, actor, now=now)

    async def delete_queue(
        self, name: str, *, force: bool = False, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return self._do(admin.delete_queue, name, force, actor, now=now)

    async def beat(self, beat: Beat, *, now: Instant | None = None) -> WorkerState:
        return self._do(admin.beat, beat, now=now)

    async def leave(self, worker: str, *, now: Instant | None = None) -> None:
        with self._store.lock:
            self._store.workers.pop(worker, None)

    async def workers(self) -> list[WorkerRecord]:
        with self._store.lock:
            return [copy(worker) for _, worker in sorted(self._store.workers.items())]

    async def set_worker_state(
        self, worker: str, state: WorkerState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return self._do(admin.set_worker_state, worker, state, actor, now=now)

    async def lead(self, worker: str, *, now: Instant | None = None) -> Term | None:
        return self._do(take_term, worker, now=now)

    async def resign(self, term: Term) -> None:
        with self._store.lock:
            current = self._store.term
            if current is not None and current.number == term.number:
                self._store.term = Term(current.number, "", 0)

    async def chore(self, name: str, term: Term, *, now: Instant | None = None) -> ChoreRecord:
        return self._do(do_chore, name, term, now=now)

    async def audit(self, limit: int = 100) -> list[AuditEntry]:
        with self._store.lock:
            return list(self._store.audit)[: -limit - 1 : -1]

    def subscribe(self, topics: Collection[str]) -> Subscription:
        return self._local_notifier.subscribe(topics, asyncio.get_running_loop())

    async def check(self, *, full: bool = False) -> list[Finding]:
        return [Finding(Level.WARNING, "memory", DURABILITY)]

    async def backup(self, target: Path) -> None:
        raise UsageError("the memory engine can't be backed up: use a SQLite file if tasks must survive.")

    async def migrations(self, *, sql: bool = False) -> list[str]:
        return []


def take_term(store: Store, worker: str, now: Instant) -> Term | None:
    current = store.term
    if current is not None and current.worker != worker and current.expires_at > now:
        return None
    renews = current is not None and current.worker == worker and current.expires_at > now
    number = (current.number if current else 0) + (0 if renews else 1)
    store.term = Term(number, worker, now + TERM)
    return store.term


def do_chore(store: Store, name: str, term: Term, now: Instant) -> ChoreRecord:
    if store.term is None or store.term.number != term.number or store.term.worker != term.worker:
        return ChoreRecord(name=name, refused=True)
    began = time.perf_counter_ns()
    count = admin.CHORES[name](store, now)
    record = ChoreRecord(
        name=name,
        at=now,
        took=(time.perf_counter_ns() - began) // 1000,
        done=count,
        more=count >= CHORE_BATCH,
        total=count + (store.chores[name].total if name in store.chores else 0),
    )
    store.chores[name] = record
    return copy(record)
