"""The values that engines take and return, besides those of `dibs.core`: answers, requests, records."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from dibs.core.graph import Rule
from dibs.core.limits import LimitState
from dibs.core.options import check_fraction, shown
from dibs.core.states import State
from dibs.core.task import Edit, Lease, LeasedTask, TaskRecord, WorkerState
from dibs.core.times import Duration, Instant
from dibs.engines.figures import Minute
from dibs.errors import InvalidOption, StoreError, StoreUnavailable

COUNT_LIMIT = 10_000
"""Filtered counts and queue positions stop here."""

VISIT_LIMIT = 100_000
"""Rows that one page of a search compares before it answers with what it has and a cursor."""

READ_LIMIT = 10_000
"""Tasks that one page of a search, or one count, reads as a whole."""


FIRE_BATCH = 100
"""Schedules that one `fire` reads."""


class Feature(StrEnum):
    """What an engine may or may not be able to do."""

    DURABLE = "durable"  # acknowledged tasks survive the process
    SHARED = "shared"  # several processes may use the store at once
    TRANSACTIONS = "transactions"  # join works
    PRESENCE = "presence"  # a killed worker is noticed before its lease ends
    LEAD = "lead"  # leadership and chores happen here
    BACKUP = "backup"
    INLINE = "inline"  # verbs never suspend while the engine may block: they can be driven without an event loop
    CROSS_QUEUE = "cross_queue"  # one step may concern tasks of several queues


class Unready(Exception):  # not an error: the caller runs `Joined.prepare` and repeats the verb
    """A verb of a joined transaction needs something from the engine first. Nothing was written."""


class PartlyAnswered(StoreUnavailable):
    """Some items of a batch were answered, and the store failed for the others, whose answers are None here."""

    def __init__(self, error: StoreError, answers: Sequence[Any]) -> None:
        super().__init__(str(error))
        self.answers = answers


class EnqueueOutcome(StrEnum):
    """What became of one new task."""

    ENQUEUED = "enqueued"
    EXISTS = "exists"  # a task with this id exists with the same content: a repeat
    TAKEN = "taken"  # a task with this id exists with other content
    DUPLICATE = "duplicate"  # the task `id` holds the key
    CONFLICT = "conflict"  # the task `id` holds the key, with other arguments
    FULL = "full"
    DRAINING = "draining"
    REPLACED = "replaced"  # the waiting task `id` holds the key and now has this one's content
    UNKNOWN = "unknown"  # it would wait for the task `id`, which does not exist
    LIMITED = "limited"  # its client enqueues too fast; try again after `retry_in`
    ABANDONED = "abandoned"  # valid, but another item of its atomic batch was refused


ACCEPTED = frozenset(
    {EnqueueOutcome.ENQUEUED, EnqueueOutcome.EXISTS, EnqueueOutcome.DUPLICATE, EnqueueOutcome.REPLACED}
)
REJECTED = frozenset({EnqueueOutcome.FULL, EnqueueOutcome.DRAINING, EnqueueOutcome.LIMITED})
"""Refused by the queue for now."""


class EnqueueAnswer(Struct, gc=False, frozen=True):
    """`id` is the task that now stands for the request; `state` is its state."""

    outcome: EnqueueOutcome
    id: str
    state: State | None = None
    retry_in: Duration | None = None


class NewWorkflow(Struct, frozen=True):
    """A workflow that starts with a batch of tasks."""

    id: str
    name: str = ""


class WorkflowRecord(Struct, frozen=True, kw_only=True):
    """A workflow as stored. Members deleted by retention are in no count."""

    id: str
    name: str
    created_at: Instant
    total: int
    counts: dict[State, int]


class Need(Struct, frozen=True):
    """One edge of a task: what it waits or waited for. `is_open`: it still waits."""

    id: str
    rule: Rule
    is_open: bool


class Edges(Struct, frozen=True):
    """What a task waits or waited for, in the order given at its enqueue; and ids of some tasks that wait for it."""

    needs: list[Need]
    followers: list[str] = []


class TenantRecord(Struct, frozen=True, kw_only=True):
    """One tenant of a fair queue: its pending tasks, and its virtual time."""

    tenant: str
    pending: int
    virtual_time: int


class Standing(Struct, frozen=True):
    """What decides about starts in a queue: the limits on each task asked about, and the tenants that have pending
    tasks, in the order of their turns.
    """

    limits: list[list[LimitState]]
    tenants: list[TenantRecord]


class Fired(Struct, frozen=True):
    """What `fire` did: the tasks it enqueued, how many fires were skipped, and when the next one is due.

    `broken` names schedules that can't be computed here, such as those in a zone that this machine does not know.
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
    """What a worker can take. `names=None`: it runs any task.

    Up to `prefetch` more than `limit` may be given, but not from a queue that limits starts or concurrency.
    `repeat` says that an earlier call with this (worker, sequence) had no answer: if it took effect, its leases that
    are still running are returned again.
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
    """The leases given, most urgent first, and in how long the next waiting task or start token is due."""

    tasks: list[LeasedTask]
    next_due_in: Duration | None = None


class Extension(Struct, frozen=True):
    """Extend a lease to `by` from now; `progress` is 0…1; `ran` is the run's duration by its holder's clock."""

    lease: Lease
    by: Duration
    progress: float | None = None
    message: str = ""
    ran: Duration = 0

    def __post_init__(self) -> None:
        """Reject what could be stored but not read again."""
        if self.progress is not None:
            check_fraction(self.progress, "progress")
        if not isinstance(self.message, str):
            raise InvalidOption(f"the message must be a text, not {shown(self.message)}.")


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


class SettleAnswer(Struct, frozen=True):
    """What became of the task: its state, and in how long it is due if it runs again."""

    outcome: SettleOutcome
    state: State | None = None
    due_in: Duration | None = None


def settle_answer(outcome: SettleOutcome, record: TaskRecord, now: Instant) -> SettleAnswer:
    """The answer about a task in its state after its settlement."""
    return SettleAnswer(outcome, record.state, None if record.due_at is None else max(0, record.due_at - now))


COMPLETED = SettleAnswer(SettleOutcome.DONE, State.COMPLETED)


class LostTask(Struct, frozen=True, kw_only=True):
    """A task that was taken back: the lease and the worker that it lost, what it is now, and when it is due again."""

    id: str
    name: str
    queue: str
    worker: str | None
    lease: int
    losses: int
    state: State
    due_in: Duration | None = None


def lost_task(before: TaskRecord, after: TaskRecord, now: Instant) -> LostTask:
    """A running task, and what became of it."""
    return LostTask(
        id=after.id,
        name=after.name,
        queue=after.queue,
        worker=before.worker,
        lease=before.lease,
        losses=after.losses,
        state=after.state,
        due_in=None if after.due_at is None else max(0, after.due_at - now),
    )


class Rescued(Struct, frozen=True):
    """What `rescue` did: tasks whose leases had ended (retried, dead or cancelled), and workers found dead.

    `at` is the store's clock. `stalled`: it was later than `not_after`, so nothing was taken.
    """

    lost: list[LostTask] = []
    workers: list[str] = []
    more: bool = False
    at: Instant = 0
    stalled: bool = False

    @property
    def ids(self) -> list[str]:
        """The ids of the tasks that were taken back."""
        return [task.id for task in self.lost]


class Changed(StrEnum):
    """What became of one act, or of another change by an operator."""

    DONE = "done"
    REQUESTED = "requested"  # a running task was asked to stop; its worker has been notified
    UNCHANGED = "unchanged"  # nothing to change: a repeat
    WRONG_STATE = "wrong state"
    DRAINING = "draining"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"  # the row is set aside and stays unchanged


class Cancel(Struct, frozen=True, omit_defaults=True, tag="cancel"):
    """End a waiting task; ask a running one to stop. Repeat: `wrong state` or `requested`."""

    id: str
    note: str = ""


class Replay(Struct, frozen=True, omit_defaults=True, tag="replay"):
    """Make a dead task pending again, in another queue if asked; `reset` forgets attempts and losses."""

    id: str
    queue: str | None = None
    reset: bool = True


class Purge(Struct, frozen=True, tag="purge"):
    """Delete an ended task with its history, or one that can't be read."""

    id: str


class CancelWorkflow(Struct, frozen=True, omit_defaults=True, tag="cancel workflow"):
    """Cancel all unfinished tasks of a workflow. Repeat: `unchanged` when none is left."""

    id: str
    note: str = ""


class ReplayWorkflow(Struct, frozen=True, tag="replay workflow"):
    """Run its dead tasks again; those that ended because of a dependency wait again. `unchanged`: there were none."""

    id: str


Act = Cancel | Edit | Replay | Purge | CancelWorkflow | ReplayWorkflow
"""What can be done to one task or workflow."""


class UnreadableTask(Struct, frozen=True, kw_only=True, tag="unreadable"):
    """A stored task that this version can't read. That is not a state: the row stays unchanged, and all verbs skip it.

    `state`, `queue` and `name` are taken from its columns as far as possible.
    """

    id: str
    problem: str
    state: State
    created_at: Instant
    queue: str = ""
    name: str = ""
    worker: str | None = None


class Query(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A search, newest first. All conditions must hold; `text` is searched in arguments, errors and notes."""

    states: tuple[State, ...] = ()
    queues: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    priority_min: int = 0
    priority_max: int = 100
    created_after: Instant | None = None
    created_before: Instant | None = None
    ended_after: Instant | None = None
    ended_before: Instant | None = None
    metadata: dict[str, Any] = {}
    key: str | None = None
    worker: str | None = None
    workflow: str | None = None
    tenant: str | None = None
    text: str = ""
    limit: int = 50
    cursor: str | None = None
    partition: str | None = None


class Page(Struct, frozen=True):
    """One page of a search; `cursor` continues it, None after the last page. `visited`: how many rows it has read."""

    tasks: Sequence[TaskRecord | UnreadableTask]
    cursor: str | None = None
    visited: int = 0

    @property
    def records(self) -> list[TaskRecord]:
        """The tasks that can be read."""
        return [task for task in self.tasks if isinstance(task, TaskRecord)]


class Position(Struct, frozen=True):
    """How many pending tasks of its queue are ahead of this one; `more`: counting stopped at the limit."""

    ahead: int
    more: bool = False


class Peeked(Struct, frozen=True):
    """The next tasks of a queue, and the position of the task asked about: None unless it is pending there."""

    tasks: list[TaskRecord]
    position: Position | None = None


class Beat(Struct, frozen=True, kw_only=True):
    """A worker's heartbeat."""

    id: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    names: tuple[str, ...] | None
    capabilities: tuple[str, ...] = ()
    concurrency: int = 1
    running: int = 0
    buffered: int = 0
    """Tasks that are leased but not started."""
    lives_for: Duration = 30_000_000
    minutes: list[Minute] = []


class WorkerRecord(Struct, kw_only=True, omit_defaults=True):
    """A worker as stored. `state` is what it must obey: active, paused or draining; dead if it was taken for dead."""

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
    buffered: int = 0


def worker_record(beat: Beat, old: WorkerState | None, started_at: Instant, now: Instant) -> WorkerRecord:
    """A worker after a heartbeat; `old` is its previous state. One that was marked dead is active again."""
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
        buffered=beat.buffered,
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
    """The last run of one chore; `more` says it stopped at its bound with work left.

    `behind_since`: since when each run has; 0 if the last one finished.
    """

    name: str
    at: Instant = 0
    took: Duration = 0
    done: int = 0
    more: bool = False
    behind_since: Instant = 0
    total: int = 0
    refused: bool = False


class About(Struct, frozen=True, kw_only=True):
    """An engine and its store.

    `durability` says in one sentence what an acknowledged task survives. `identity` is a random id made with the
    store, the same for all its users. `chores` lists every chore with its last run. `evicted`: keys that the server has
    deleted for want of memory since it started; None if it never does that.
    """

    features: frozenset[Feature]
    durability: str
    identity: str
    chores: list[ChoreRecord]
    evicted: int | None = None


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did what. `n` is its number: later entries have higher ones.

    `ids`: the tasks concerned, at most 100 of them. `before` and `after`: what was changed, as plain JSON; of several
    tasks what is the same for all.
    """

    at: Instant
    actor: str
    act: str
    target: str
    detail: str = ""
    n: int = 0
    ids: tuple[str, ...] = ()
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """One line of a health check."""

    level: Level
    title: str
    detail: str = ""
