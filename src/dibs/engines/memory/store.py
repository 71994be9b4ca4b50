"""The tasks of a memory engine and the indexes over them.

Every index is a heap with lazy deletion: an entry counts only while it still describes its task, so a change pushes a
new entry and leaves the old one to be dropped when it surfaces.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections import defaultdict, deque
from collections.abc import Iterator
from copy import deepcopy
from heapq import heappop, heappush

from msgspec import Struct, structs

from dibs.core.limits import Bucket
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import HISTORY_LIMIT, HistoryEntry, Kind, QueueRecord, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import AuditEntry, ChoreRecord, Counter, Minute, Term, WorkerRecord

__all__ = ["HeldKey", "Queue", "Store", "detached"]

Entry = tuple[int, str]


class Queue(Struct):
    """One queue: its settings, its start tokens, and what a change of settings left to be ranked again."""

    name: str
    state: QueueState = QueueState.ACTIVE
    settings: QueueSettings = QueueSettings()
    bucket: Bucket | None = None
    stale: deque[str] = deque()

    def record(self) -> QueueRecord:
        return QueueRecord(name=self.name, state=self.state, settings=self.settings, stale=len(self.stale))

    @property
    def limited(self) -> bool:
        return self.settings.max_concurrent is not None or self.settings.rate is not None


def detached(record: TaskRecord) -> TaskRecord:
    """A copy that shares nothing with the original that could be changed."""
    metadata = deepcopy(record.metadata) if record.metadata else {}
    return structs.replace(record, metadata=metadata, headers=dict(record.headers))


class HeldKey(Struct, frozen=True):
    """What an idempotency key stands for."""

    task_id: str
    fingerprint: str
    until: Instant


class Store:
    """All the state of one memory engine and its siblings, guarded by `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tasks: dict[str, TaskRecord] = {}
        self.queues: dict[str, Queue] = {}
        self.keys: dict[tuple[str, str], HeldKey] = {}
        self.histories: dict[str, deque[HistoryEntry]] = defaultdict(lambda: deque(maxlen=HISTORY_LIMIT))
        self.counts: dict[str, Tally[State]] = defaultdict(Tally)
        self.counters: dict[str, Tally[Counter]] = defaultdict(Tally)
        self.running: dict[str, set[str]] = defaultdict(set)
        self.minutes: dict[tuple[int, str, str, str], Minute] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.audit: deque[AuditEntry] = deque()
        self.chores: dict[str, ChoreRecord] = {}
        self.term: Term | None = None
        self.pending: dict[str, dict[int, dict[Kind, list[Entry]]]] = defaultdict(lambda: defaultdict(dict))
        self.due: list[Entry] = []
        self.leases: list[Entry] = []
        self.reranks: list[Entry] = []
        self.topics: set[str] = set()

    def queue(self, name: str) -> Queue:
        """The queue of this name, made now if there was none."""
        if name not in self.queues:
            self.queues[name] = Queue(name, stale=deque())
        return self.queues[name]

    def settings(self, name: str) -> QueueSettings:
        """The settings of a queue; a queue that does not exist (any more) has the default ones."""
        queue = self.queues.get(name)
        return QueueSettings() if queue is None else queue.settings

    def standing(self, name: str) -> QueueSettings | None:
        """The settings of a queue that exists."""
        queue = self.queues.get(name)
        return None if queue is None else queue.settings

    def put(self, record: TaskRecord, entry: HistoryEntry | None = None) -> None:
        """Make a record the current one: counts, indexes and history follow."""
        old = self.tasks.get(record.id)
        if old is not None:
            self.uncount(old)
        self.tasks[record.id] = record
        self.counts[record.queue][record.state] += 1
        if record.state is State.RUNNING:
            self.running[record.queue].add(record.id)
            heappush(self.leases, (record.lease_expires_at or 0, record.id))
        elif record.state is State.PENDING:
            heap = self.pending[record.queue][record.lane].setdefault(record.kind, [])
            heappush(heap, (record.rank, record.id))
        elif record.due_at is not None:
            heappush(self.due, (record.due_at, record.id))
        if record.rerank_at is not None and record.state is not State.RUNNING:
            heappush(self.reranks, (record.rerank_at, record.id))
        if entry is not None:
            self.histories[record.id].append(entry)

    def remove(self, record: TaskRecord) -> None:
        """Forget a task and its history."""
        self.uncount(record)
        del self.tasks[record.id]
        self.histories.pop(record.id, None)

    def uncount(self, record: TaskRecord) -> None:
        self.counts[record.queue][record.state] -= 1
        self.running[record.queue].discard(record.id)

    def lane_order(self, queue: str, lane: int, kind: Kind) -> Iterator[TaskRecord]:
        """Pending tasks of one kind in claim order; those still pending go back on the heap when iteration ends."""
        heap = self.pending[queue][lane].get(kind, [])
        taken: dict[Entry, None] = {}
        try:
            while heap:
                entry = heappop(heap)
                record = self.tasks.get(entry[1])
                if entry in taken or record is None or not self.is_current(record, entry, queue, lane):
                    continue
                taken[entry] = None
                yield record
        finally:
            for entry in taken:
                record = self.tasks.get(entry[1])
                if record is not None and self.is_current(record, entry, queue, lane):
                    heappush(heap, entry)

    @staticmethod
    def is_current(record: TaskRecord, entry: Entry, queue: str, lane: int) -> bool:
        where = (record.state, record.queue, record.lane, record.rank)
        return where == (State.PENDING, queue, lane, entry[0])

    def next_due(self) -> Instant | None:
        """When the next waiting task falls due."""
        while self.due:
            due_at, task_id = self.due[0]
            record = self.tasks.get(task_id)
            if record is not None and record.due_at == due_at and record.state in (State.SCHEDULED, State.RETRYING):
                return due_at
            heappop(self.due)
        return None

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
        """A waiting task whose rank has to be computed anew."""
        while self.reranks and self.reranks[0][0] <= now:
            rerank_at, task_id = heappop(self.reranks)
            record = self.tasks.get(task_id)
            if record is not None and record.state is not State.RUNNING and record.rerank_at == rerank_at:
                return record
        return None

    def live_leases(self, queue: str, now: Instant) -> int:
        """Running tasks of a queue whose lease has not ended."""
        return sum((self.tasks[task_id].lease_expires_at or 0) > now for task_id in self.running[queue])

    def remember(self, actor: str, act: str, target: str, detail: str, now: Instant) -> None:
        """One line of the audit log."""
        self.audit.append(AuditEntry(at=now, actor=actor, act=act, target=target, detail=detail))
