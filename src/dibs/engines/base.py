"""The engine seam: the verbs that every store must know, and the values they take and give.

Rules of the seam:

- Each verb takes a batch and answers per item, in the order asked; each is one bounded step, however full the store is.
- Each is safe to repeat after a lost reply (how, is said at the verb).
- `now=None` means the store's own clock. Tests pass an instant through the same statements.
- Callers state intents; engines compute ranks and settings with `dibs.core` and add their own clock.
- Nothing here names a driver, SQL or a connection, but for `enqueue_in`, whose connection is the caller's own.
- Every write about a running task carries its lease number, compared in the statement that writes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from dibs.core.graph import Rule
from dibs.core.limits import LimitState
from dibs.core.schedules import Rhythm, ScheduleRecord
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import (
    Edit,
    HistoryEntry,
    Lease,
    LeasedTask,
    NewTask,
    Outcome,
    QueueRecord,
    QueueState,
    Settlement,
    TaskRecord,
    WorkerState,
)
from dibs.core.times import Duration, Instant

__all__ = [
    "AuditEntry",
    "Beat",
    "CancelOutcome",
    "Changed",
    "ChoreRecord",
    "ClaimRequest",
    "Claimed",
    "Counter",
    "Edit",
    "Engine",
    "EnqueueAnswer",
    "EnqueueOutcome",
    "ExtendAnswer",
    "ExtendOutcome",
    "Extension",
    "Feature",
    "Finding",
    "Fired",
    "Floor",
    "Level",
    "Minute",
    "Need",
    "NewWorkflow",
    "Outcome",
    "Page",
    "Position",
    "Query",
    "Rescued",
    "SettleOutcome",
    "Settlement",
    "Subscription",
    "TenantRecord",
    "Term",
    "WorkerRecord",
    "WorkflowRecord",
    "ended_topic",
    "work_topic",
    "worker_record",
    "worker_topic",
]

COUNT_LIMIT = 10_000
"""Filtered counts and queue positions stop here."""

VISIT_LIMIT = 10_000
"""Rows that one page of a search looks at before it answers with what it has and a cursor."""


FIRE_BATCH = 100
"""Schedules that one `fire` looks at."""


class Feature(StrEnum):
    """What an engine may or may not be able to do."""

    DURABLE = "durable"  # acknowledged tasks survive the process
    SHARED = "shared"  # several processes may use the store at once
    TRANSACTIONS = "transactions"  # enqueue_in works
    PRESENCE = "presence"  # a killed worker is noticed before its lease ends
    LEAD = "lead"  # leadership and chores happen here
    BACKUP = "backup"
    INLINE = "inline"  # enqueue_now works: the store answers without waiting for an event loop


class EnqueueOutcome(StrEnum):
    """What became of one new task."""

    ENQUEUED = "enqueued"
    EXISTS = "exists"  # a task with this id is there: same content, so this was a repeat
    TAKEN = "taken"  # a task with this id is there, with other content
    DUPLICATE = "duplicate"  # the key stands for the task given as `id`
    CONFLICT = "conflict"  # the key stands for a task with other arguments, given as `id`
    FULL = "full"
    DRAINING = "draining"
    REPLACED = "replaced"  # the waiting task given as `id` holds the key and has this one's content now
    UNKNOWN = "unknown"  # it would wait for the task given as `id`, which is not there
    LIMITED = "limited"  # its client enqueues too fast; there is room again in `retry_in`
    ABANDONED = "abandoned"  # nothing was wrong with this one, but another item of its atomic batch was refused


ACCEPTED = frozenset(
    {EnqueueOutcome.ENQUEUED, EnqueueOutcome.EXISTS, EnqueueOutcome.DUPLICATE, EnqueueOutcome.REPLACED}
)
REJECTED = frozenset({EnqueueOutcome.FULL, EnqueueOutcome.DRAINING, EnqueueOutcome.LIMITED})
"""What the counter `rejected` counts."""


class EnqueueAnswer(Struct, gc=False, frozen=True):
    """`id` is the task that now stands for the request; `state` is the state it is in."""

    outcome: EnqueueOutcome
    id: str
    state: State | None = None
    retry_in: Duration | None = None


class NewWorkflow(Struct, frozen=True):
    """A workflow that a batch of tasks begins."""

    id: str
    name: str = ""


class WorkflowRecord(Struct, frozen=True, kw_only=True):
    """A workflow as its store knows it. Members that retention has pruned are in no count."""

    id: str
    name: str
    created_at: Instant
    total: int
    counts: dict[State, int]


class Need(Struct, frozen=True):
    """One edge of a task: what it waits or waited for. `is_open`: it still does."""

    id: str
    rule: Rule
    is_open: bool


class TenantRecord(Struct, frozen=True, kw_only=True):
    """One tenant of a fair queue: its pending tasks, and its tag in the queue's virtual time."""

    tenant: str
    pending: int
    tag: int


class Fired(Struct, frozen=True):
    """What `fire` did: the tasks it enqueued, how many fires were skipped, and when the next one is due.

    `broken` names schedules that can't be worked out here, such as those in a zone that this machine does not know.
    """

    tasks: list[str] = []
    skipped: int = 0
    next_due_in: Duration | None = None
    broken: list[str] = []


class Floor(Struct, frozen=True):
    """At most `below` of the claimed tasks may have an effective priority under `effective` (reserved slots)."""

    effective: int
    below: int


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """What a worker can take. `names=None`: it runs whatever there is.

    `prefetch` more than `limit` may be given, but none of these from a queue with a limit on starts or concurrency.
    `repeat` says that an earlier call with this (worker, sequence) had no answer: if it took effect, the leases that
    it gave and that are still running are returned again.
    """

    worker: str
    sequence: int
    queues: tuple[str, ...]
    limit: int
    prefetch: int = 0
    names: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()
    lease: Duration | None = None
    in_order: bool = False
    floors: tuple[Floor, ...] = ()
    repeat: bool = False


class Claimed(Struct, frozen=True):
    """The leases given, most urgent first, and in how long the next waiting task or start token falls due."""

    tasks: list[LeasedTask]
    next_due_in: Duration | None = None


class Extension(Struct, frozen=True):
    """Keep a lease for `by` from now; `progress` is 0…1."""

    lease: Lease
    by: Duration
    progress: float | None = None
    message: str = ""


class ExtendOutcome(StrEnum):
    HELD = "held"
    CANCEL = "cancel"  # held, but the task has been asked to stop
    EXHAUSTED = "exhausted"  # held, but no longer extended: the run has lasted 24 hours
    LOST = "lost"


class ExtendAnswer(Struct, frozen=True):
    outcome: ExtendOutcome
    expires_at: Instant | None = None
    reason: str = ""


class SettleOutcome(StrEnum):
    DONE = "done"
    ALREADY = "already"  # this lease has been settled before: a repeat
    REFUSED = "refused"  # this lease is not the current one


class Rescued(Struct, frozen=True):
    """What `rescue` did: tasks whose leases had ended (retried, dead or cancelled), and workers found dead."""

    lost: list[str] = []
    workers: list[str] = []
    more: bool = False


class CancelOutcome(StrEnum):
    CANCELLED = "cancelled"
    REQUESTED = "requested"  # it is running; its worker has been told
    ENDED = "ended"  # too late
    UNKNOWN = "unknown"


class Changed(StrEnum):
    """The answer of an admin verb about one thing."""

    DONE = "done"
    UNCHANGED = "unchanged"  # it already was so: a repeat
    WRONG_STATE = "wrong state"
    DRAINING = "draining"
    UNKNOWN = "unknown"


class Query(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A search, newest first. All that is given must hold; `text` is looked for in arguments, errors and notes."""

    states: tuple[State, ...] = ()
    queues: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    priority_min: int = 0
    priority_max: int = 100
    created_after: Instant | None = None
    created_before: Instant | None = None
    metadata: dict[str, Any] = {}
    key: str | None = None
    worker: str | None = None
    workflow: str | None = None
    tenant: str | None = None
    text: str = ""
    limit: int = 50
    cursor: str | None = None


class Page(Struct, frozen=True):
    """One page of a search; `cursor` goes on from here, None: that was all."""

    tasks: list[TaskRecord]
    cursor: str | None = None


class Position(Struct, frozen=True):
    """How many pending tasks of its queue go before this one; `more`: counting stopped at the limit."""

    ahead: int
    more: bool = False


class Minute(Struct, kw_only=True, omit_defaults=True):
    """What one worker did in one minute for one queue and tier. Written whole, so a repeat changes nothing.

    Histograms are bucket → count (`dibs.core.histogram`), `wait` from ready to claim, `run` from claim to settle.
    """

    minute: int
    worker: str
    queue: str
    tier: str
    completed: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    wait: dict[int, int] = {}
    run: dict[int, int] = {}


class Beat(Struct, frozen=True, kw_only=True):
    """A worker's sign of life."""

    id: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    names: tuple[str, ...] | None
    capabilities: tuple[str, ...] = ()
    concurrency: int = 1
    running: int = 0
    lives_for: Duration = 30_000_000
    minutes: list[Minute] = []


class WorkerRecord(Struct, kw_only=True, omit_defaults=True):
    """A worker as its store knows it. `wanted` is the state it was told to take."""

    id: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    names: tuple[str, ...] | None
    capabilities: tuple[str, ...]
    concurrency: int
    running: int
    state: WorkerState
    started_at: Instant
    seen_at: Instant
    expires_at: Instant


def worker_record(beat: Beat, old: WorkerState | None, started_at: Instant, now: Instant) -> WorkerRecord:
    """A worker after a sign of life; `old` is the state it was in. One that was taken for dead is active again."""
    return WorkerRecord(
        id=beat.id,
        host=beat.host,
        pid=beat.pid,
        version=beat.version,
        queues=beat.queues,
        names=beat.names,
        capabilities=beat.capabilities,
        concurrency=beat.concurrency,
        running=beat.running,
        state=WorkerState.ACTIVE if old is None or old is WorkerState.DEAD else old,
        started_at=started_at,
        seen_at=now,
        expires_at=now + beat.lives_for,
    )


class Term(Struct, frozen=True):
    """Leadership until `expires_at`. The number grows with each new leader and fences chores."""

    number: int
    worker: str
    expires_at: Instant


class ChoreRecord(Struct, kw_only=True, omit_defaults=True):
    """The last run of one chore; `more` says it stopped at its bound with work left."""

    name: str
    at: Instant = 0
    took: Duration = 0
    done: int = 0
    more: bool = False
    total: int = 0
    refused: bool = False


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did what."""

    at: Instant
    actor: str
    act: str
    target: str
    detail: str = ""


class Counter(StrEnum):
    """What engines count besides tasks, per queue, for ever."""

    ENQUEUED = "enqueued"
    DUPLICATES = "duplicates"
    REJECTED = "rejected"  # refused because full, draining or too fast
    CLAIMED = "claimed"
    REFUSED = "refused_writes"  # by the fence
    LOSSES = "losses"
    RETRIES = "retries"
    REPLAYED = "replayed"


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One line of a health check."""

    level: Level
    title: str
    detail: str = ""


def work_topic(queue: str) -> str:
    """Rung when a queue may have work."""
    return f"work:{queue}"


SCHEDULES = "schedules"
"""The topic that is rung when a schedule has changed."""


def ended_topic(queue: str) -> str:
    """Rung when tasks of a queue have ended."""
    return f"ended:{queue}"


def worker_topic(worker: str) -> str:
    """Rung when a worker should look up: a cancel request or another state."""
    return f"worker:{worker}"


class Subscription(Protocol):
    """Hears the topics it was made for. A ring between two waits is remembered; rings may be spurious."""

    async def wait(self, timeout: float) -> bool:
        """Until rung, at most `timeout` seconds; True if rung."""
        ...

    def close(self) -> None: ...


class Engine(Protocol):
    """A store of tasks."""

    @property
    def features(self) -> frozenset[Feature]: ...

    @property
    def durability(self) -> str:
        """One sentence: what an acknowledged task survives."""
        ...

    async def open(self) -> None:
        """Connect, check the layout's version, create or migrate it. Twice is once."""
        ...

    async def close(self) -> None:
        """Let go of everything. Twice is once; a closed engine may be opened again."""
        ...

    def forget(self) -> None:
        """In a forked child: drop connections and locks without closing them; the next `open` makes new ones."""
        ...

    def sibling(self) -> Engine:
        """Another engine on the same store, for another thread and loop (heartbeats)."""
        ...

    async def identity(self) -> str:
        """What tells this store from all others: made at random with it, and the same for all who use it."""
        ...

    # Tasks: the hot verbs.

    async def enqueue(
        self,
        tasks: Sequence[NewTask],
        *,
        atomic: bool = False,
        workflow: NewWorkflow | None = None,
        now: Instant | None = None,
    ) -> list[EnqueueAnswer]:
        """Store tasks durably. `atomic`: all or none. Repeat: the same id is stored once and answers `exists`.

        A task may wait for others that are stored or come before it in the batch. `workflow` is recorded with the
        batch, which must then be atomic; its members name it themselves.
        """
        ...

    def enqueue_now(self, task: NewTask, *, now: Instant | None = None) -> EnqueueAnswer:
        """`enqueue` of one task on the calling thread, while nothing else uses this engine. Only with `INLINE`."""
        ...

    def enqueue_in(
        self, connection: Any, tasks: Sequence[NewTask], *, now: Instant | None = None
    ) -> list[EnqueueAnswer]:
        """Store tasks in the caller's own open transaction: there if it commits, never if it rolls back."""
        ...

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        """End what has expired, promote what is due, go on with errands; then lease the most urgent tasks that can run.

        Each of these steps is bounded; `next_due_in` is 0 when one of them has more to do.
        """
        ...

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        """Keep leases, record progress, learn of cancellation and loss. An expired but unsuperseded lease is kept."""
        ...

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleOutcome]:
        """Record outcomes, each only under its current lease. Ended tasks leave the hot place in the same statement.

        A retry, release or snooze of a task that was asked to cancel ends it as cancelled.
        """
        ...

    async def rescue(self, *, now: Instant | None = None) -> Rescued:
        """Take back tasks whose lease has ended or whose worker is dead: a bounded step that anyone may do."""
        ...

    # Tasks: the admin verbs.

    async def cancel(
        self, ids: Sequence[str], *, note: str = "", actor: str = "", now: Instant | None = None
    ) -> list[CancelOutcome]:
        """End waiting tasks; ask running ones to stop. Repeat: `ended` or `requested`."""
        ...

    async def edit(self, edits: Sequence[Edit], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        """Change waiting tasks. Repeat: `unchanged`."""
        ...

    async def replay(
        self,
        ids: Sequence[str],
        *,
        queue: str | None = None,
        reset: bool = True,
        actor: str = "",
        now: Instant | None = None,
    ) -> list[Changed]:
        """Make dead tasks pending again, in another queue if asked; `reset` forgets attempts and losses."""
        ...

    async def purge(self, ids: Sequence[str], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        """Delete ended tasks with their history."""
        ...

    # Workflows. What one call doesn't finish is an errand that claims go on with.

    async def workflows(self, limit: int = 50, before: str | None = None) -> list[WorkflowRecord]:
        """Newest first by id, from below `before` on."""
        ...

    async def workflow(self, workflow_id: str) -> WorkflowRecord | None: ...

    async def cancel_workflow(
        self, workflow_id: str, *, note: str = "", actor: str = "", now: Instant | None = None
    ) -> Changed:
        """Cancel all its unfinished tasks. Repeat: `unchanged` when none is left."""
        ...

    async def replay_workflow(self, workflow_id: str, *, actor: str = "", now: Instant | None = None) -> Changed:
        """Run its dead tasks again; those that ended because of a dependency wait again. `unchanged`: none has."""
        ...

    async def needs(self, ids: Sequence[str]) -> list[list[Need]]:
        """What each task waits or waited for, in the order given at its enqueue."""
        ...

    async def followers(self, task_id: str, limit: int = 100) -> list[str]:
        """Some tasks that wait for this one, by id."""
        ...

    # Schedules.

    async def schedules(self) -> list[ScheduleRecord]:
        """By name."""
        ...

    async def set_schedule(
        self, name: str, rhythm: Rhythm, task: NewTask, *, declared: bool, actor: str = "", now: Instant | None = None
    ) -> Changed:
        """Create or replace a schedule. With the same rhythm it keeps its next fire; with another it starts anew.

        `declared`: it is written in code, and this call says that it still is. Repeat: `unchanged`.
        """
        ...

    async def pause_schedule(self, name: str, paused: bool, *, actor: str = "", now: Instant | None = None) -> Changed:
        """A paused schedule does not fire; what it misses meanwhile is not caught up."""
        ...

    async def delete_schedule(self, name: str, *, actor: str = "", now: Instant | None = None) -> Changed: ...

    async def fire(self, *, now: Instant | None = None) -> Fired:
        """Enqueue what schedules have due, a bounded number; each fire is a compare-and-set of `next_fire_at`."""
        ...

    # Limits and shares.

    async def limits(self, task_id: str, *, now: Instant | None = None) -> list[LimitState]:
        """The limits that the start of a task stands under, as they are now."""
        ...

    async def tenants(self, queue: str, limit: int = 100) -> list[TenantRecord]:
        """Tenants of a fair queue that have pending tasks, those that are served next first."""
        ...

    # Reading. Results are values: changing them changes nothing.

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | None]: ...

    async def history(self, task_id: str) -> list[HistoryEntry]:
        """Oldest first, the newest 100."""
        ...

    async def search(self, query: Query) -> Page:
        """A page, newest first by id. A page may be short or empty and still have a cursor."""
        ...

    async def peek(self, queue: str, limit: int, *, now: Instant | None = None) -> list[TaskRecord]:
        """The next tasks of one queue in claim order, whoever could run them, whatever state the queue is in."""
        ...

    async def position(self, task_id: str, *, now: Instant | None = None) -> Position | None:
        """None unless the task is pending."""
        ...

    async def counts(self) -> dict[str, dict[State, int]]:
        """Exact number of tasks by queue and state, zeros included; never a scan."""
        ...

    async def counters(self) -> dict[str, dict[Counter, int]]: ...

    async def stats(self, queue: str | None, since: int, until: int) -> list[Minute]:
        """Minutes from `since` to `until` (inclusive), oldest first."""
        ...

    # Queues.

    async def queues(self) -> list[QueueRecord]:
        """By name. A queue exists from its first task or setting on."""
        ...

    async def set_queue(
        self, name: str, settings: QueueSettings, *, expected: int, actor: str = "", now: Instant | None = None
    ) -> QueueRecord | None:
        """Replace the settings if their version is `expected` (0: no such queue yet), else answer None.

        The stored version is `expected + 1`. Repeat: equal settings at that version answer the record.
        """
        ...

    async def set_queue_state(
        self, name: str, state: QueueState, *, actor: str = "", now: Instant | None = None
    ) -> Changed: ...

    async def delete_queue(
        self, name: str, *, force: bool = False, actor: str = "", now: Instant | None = None
    ) -> Changed:
        """`wrong state` when it has unfinished tasks and force was not given.

        Force makes waiting tasks dead (reason queue) and lets running ones end; the settings are gone.
        """
        ...

    # Workers.

    async def beat(self, beat: Beat, *, now: Instant | None = None) -> WorkerState:
        """Upsert a worker and its minutes; the answer is the state to obey."""
        ...

    async def leave(self, worker: str, *, now: Instant | None = None) -> None:
        """The worker is gone in good order."""
        ...

    async def workers(self) -> list[WorkerRecord]: ...

    async def set_worker_state(
        self, worker: str, state: WorkerState, *, actor: str = "", now: Instant | None = None
    ) -> Changed: ...

    # Maintenance.

    async def lead(self, worker: str, *, now: Instant | None = None) -> Term | None:
        """Take or renew leadership; None: somebody else has it."""
        ...

    async def resign(self, term: Term) -> None: ...

    @property
    def chore_names(self) -> tuple[str, ...]: ...

    async def chore(self, name: str, term: Term, *, now: Instant | None = None) -> ChoreRecord:
        """Do one bounded step; `refused` if a later term has begun."""
        ...

    async def chores(self) -> list[ChoreRecord]: ...

    async def audit(self, limit: int = 100) -> list[AuditEntry]:
        """Newest first."""
        ...

    # Waking.

    def subscribe(self, topics: Collection[str]) -> Subscription:
        """Listen from now on."""
        ...

    async def ring(self, topics: Collection[str]) -> None:
        """Wake waiters, here and in other processes. Verbs that make work or end tasks ring by themselves."""
        ...

    # Care.

    async def check(self, *, full: bool = False) -> list[Finding]:
        """How the store is; `full` may take long."""
        ...

    async def backup(self, target: Path) -> None:
        """A consistent copy while others go on."""
        ...

    async def migrations(self) -> list[str]:
        """Steps that `open` would apply, as text."""
        ...
