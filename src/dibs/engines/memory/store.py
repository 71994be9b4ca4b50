"""The tasks of a memory engine and the indexes over them.

Heaps have lazy deletion: an entry counts only while it is true of its task. A change pushes a new entry; the old one is
dropped when it reaches the top.
"""

from __future__ import annotations

import threading
from collections import Counter as Totals
from collections import defaultdict, deque
from copy import deepcopy
from heapq import heappop, heappush
from uuid import uuid4

from msgspec import Struct

from dibs.core.limits import Bucket, Scope
from dibs.core.schedules import ScheduleRecord
from dibs.core.settings import QueueSettings
from dibs.core.states import WAITING, State
from dibs.core.task import HISTORY_LIMIT, HistoryEntry, QueueRecord, QueueState, TaskRecord, with_spec
from dibs.core.times import Instant
from dibs.engines.memory.edges import Edges
from dibs.engines.memory.pending_index import Entry, PendingIndex
from dibs.engines.values import AuditEntry, ChoreRecord, Counter, Minute, NewWorkflow, Term, WorkerRecord

__all__ = ["HeldKey", "Queue", "Store", "Workflow", "detached"]


class Queue(Struct):
    """One queue: its settings, its pending tasks, and what a change of settings left to be ranked again."""

    name: str
    pending_index: PendingIndex
    state: QueueState = QueueState.ACTIVE
    settings: QueueSettings = QueueSettings()
    stale: deque[str] = deque()

    def record(self) -> QueueRecord:
        return QueueRecord(name=self.name, state=self.state, settings=self.settings, stale=len(self.stale))


def detached(record: TaskRecord) -> TaskRecord:
    """A copy that shares nothing mutable with the original."""
    metadata = deepcopy(record.spec.metadata) if record.spec.metadata else {}
    return with_spec(record, metadata=metadata, headers=dict(record.spec.headers))


class HeldKey(Struct, frozen=True):
    """What an idempotency key stands for."""

    task_id: str
    fingerprint: str
    until: Instant


class Workflow(Struct):
    """A workflow and the ids of its tasks, including pruned ones."""

    new: NewWorkflow
    created_at: Instant
    members: list[str]


class Store:
    """All the state of one memory engine and its siblings, guarded by `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.identity = uuid4().hex
        self.tasks: dict[str, TaskRecord] = {}
        self.queues: dict[str, Queue] = {}
        self.keys: dict[tuple[str, str], HeldKey] = {}
        self.histories: dict[str, deque[HistoryEntry]] = defaultdict(lambda: deque(maxlen=HISTORY_LIMIT))
        self.counts: dict[str, Totals[State]] = defaultdict(Totals)
        self.counters: dict[str, Totals[Counter]] = defaultdict(Totals)
        self.running: set[str] = set()
        self.load: Totals[tuple[State, str, Scope, str]] = Totals()
        self.buckets: dict[tuple[str, Scope, str], Bucket] = {}
        self.edges = Edges()
        self.workflows: dict[str, Workflow] = {}
        self.schedules: dict[str, ScheduleRecord] = {}
        self.minutes: dict[tuple[int, str, str, str], Minute] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.audit: deque[AuditEntry] = deque()
        self.chores: dict[str, ChoreRecord] = {}
        self.term: Term | None = None
        self.due: list[Entry] = []
        self.leases: list[Entry] = []
        self.expiries: list[Entry] = []
        self.reranks: list[Entry] = []
        self.topics: set[str] = set()

    def queue(self, name: str) -> Queue:
        """The queue of this name, created if it does not exist."""
        if name not in self.queues:
            self.queues[name] = Queue(name, PendingIndex(name, self.tasks), stale=deque())
        return self.queues[name]

    def settings(self, name: str) -> QueueSettings:
        """The settings of a queue; the defaults if it does not exist."""
        queue = self.queues.get(name)
        return QueueSettings() if queue is None else queue.settings

    def settings_if_exists(self, name: str) -> QueueSettings | None:
        """The settings of a queue that exists."""
        queue = self.queues.get(name)
        return None if queue is None else queue.settings

    def put(self, record: TaskRecord, entry: HistoryEntry | None = None) -> None:
        """Make a record the current one, and update counts, indexes, history and follow-ups."""
        old = self.tasks.get(record.id)
        self.tasks[record.id] = record
        self.count(record, +1)
        if old is not None:
            self.count(old, -1)
        if record.state is State.RUNNING:
            heappush(self.leases, (record.lease_expires_at or 0, record.id))
        elif record.state is State.PENDING:
            queue = self.queue(record.queue)
            queue.pending_index.add(record, queue.settings.per_partition is not None)
        elif record.due_at is not None and record.state is not State.BLOCKED:
            heappush(self.due, (record.due_at, record.id))
        if record.rerank_at is not None and record.state is not State.RUNNING:
            heappush(self.reranks, (record.rerank_at, record.id))
        if record.spec.expires_at is not None and record.state in WAITING:
            heappush(self.expiries, (record.spec.expires_at, record.id))
        if entry is not None:
            self.histories[record.id].append(entry)
        self.edges.moved(old, record)

    def remove(self, record: TaskRecord) -> list[str]:
        """Delete a task with its history and edges; returns the tasks that it still waited for."""
        self.count(record, -1)
        del self.tasks[record.id]
        self.histories.pop(record.id, None)
        return self.edges.forget(record.id)

    def count(self, record: TaskRecord, by: int) -> None:
        """Update every count that includes a task."""
        state, queue = record.state, record.queue
        self.counts[queue][state] += by
        if state is State.RUNNING:
            (self.running.add if by > 0 else self.forget_run)(record.id)
        elif state is not State.PENDING:
            return
        self.load[state, queue, Scope.QUEUE, ""] += by
        self.load[state, queue, Scope.TASK, record.name] += by
        if record.spec.partition is not None:
            self.load[state, queue, Scope.PARTITION, record.spec.partition] += by
        pending_index = self.queues[queue].pending_index if queue in self.queues else None
        if pending_index is not None and state is State.PENDING:
            pending_index.count(record, by)
            if by < 0:
                pending_index.leave(record)
        elif pending_index is not None and by < 0 and record.spec.partition is not None:
            pending_index.open(record.spec.partition)

    def forget_run(self, task_id: str) -> None:
        """A task no longer runs, unless a newer record says that it does."""
        record = self.tasks.get(task_id)
        if record is None or record.state is not State.RUNNING:
            self.running.discard(task_id)

    def restock(self, queue: Queue) -> None:
        """Rebuild the index of a queue's pending tasks for its new settings."""
        old, queue.pending_index = queue.pending_index, PendingIndex(queue.name, self.tasks)
        queue.pending_index.virtual_times, queue.pending_index.clock = old.virtual_times, old.clock
        queue.pending_index.without_tokens = old.without_tokens
        for record in self.tasks.values():
            if record.queue == queue.name and record.state is State.PENDING:
                queue.pending_index.count(record, +1)
                queue.pending_index.add(record, queue.settings.per_partition is not None)

    def next_due(self) -> Instant | None:
        """When the next waiting task is due."""
        while self.due:
            due_at, task_id = self.due[0]
            record = self.tasks.get(task_id)
            if record is not None and record.due_at == due_at and record.state in (State.SCHEDULED, State.RETRYING):
                return due_at
            heappop(self.due)
        return None

    def next_expiry(self) -> Instant | None:
        """When the next waiting task expires."""
        while self.expiries:
            expires_at, task_id = self.expiries[0]
            record = self.tasks.get(task_id)
            if record is not None and record.spec.expires_at == expires_at and record.state in WAITING:
                return expires_at
            heappop(self.expiries)
        return None

    def pop_late(self, now: Instant) -> TaskRecord | None:
        """A waiting task that has expired."""
        expires_at = self.next_expiry()
        if expires_at is None or expires_at > now:
            return None
        return self.tasks[heappop(self.expiries)[1]]

    def pop_due(self, now: Instant) -> TaskRecord | None:
        """A task that is due."""
        due_at = self.next_due()
        if due_at is None or due_at > now:
            return None
        return self.tasks[heappop(self.due)[1]]

    def pop_expired(self, now: Instant) -> TaskRecord | None:
        """A running task whose lease has ended."""
        while self.leases and self.leases[0][0] <= now:
            expires_at, task_id = heappop(self.leases)
            record = self.tasks.get(task_id)
            if record is not None and record.state is State.RUNNING and record.lease_expires_at == expires_at:
                return record
        return None

    def pop_rerank(self, now: Instant) -> TaskRecord | None:
        """A waiting task whose rank is due to be computed again."""
        while self.reranks and self.reranks[0][0] <= now:
            rerank_at, task_id = heappop(self.reranks)
            record = self.tasks.get(task_id)
            if record is not None and record.state is not State.RUNNING and record.rerank_at == rerank_at:
                return record
        return None

    def remember(self, actor: str, act: str, target: str, detail: str, now: Instant) -> None:
        """One line of the audit log."""
        self.audit.append(AuditEntry(at=now, actor=actor, act=act, target=target, detail=detail))
