"""The values that pass through the engine seam. None of them knows a driver, a clock or a function object."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, structs

from dibs.core.graph import Edge
from dibs.core.settings import Defaults, QueueSettings, Resolved
from dibs.core.states import Reason, State
from dibs.core.times import DAY, Duration, Instant

INLINE_LIMIT = 256 * 1024
"""Bytes of arguments, or of a result, that are kept with the task itself."""

HISTORY_LIMIT = 100
MAX_LOSSES = 6
"""The loss that makes a task dead."""


Percent = Annotated[int, Meta(ge=0, le=100)]
Moment = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""What a store can keep of an instant, checked where one is read."""


class QueueState(StrEnum):
    """Whether a queue takes tasks in and hands them out."""

    ACTIVE = "active"
    """Takes tasks in and hands them out."""
    PAUSED = "paused"
    """Hands out nothing."""
    DRAINING = "draining"
    """Takes none in."""


class WorkerState(StrEnum):
    """Whether a worker claims. `dead` is recorded by others."""

    ACTIVE = "active"
    """Claims."""
    PAUSED = "paused"
    """Claims nothing until resumed."""
    DRAINING = "draining"
    """Finishes what it has, and leaves."""
    DEAD = "dead"
    """Was lost, or has left."""


class TaskSpec(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What its producer set for a task, besides what to run and where. It stays the same wherever the task goes.

    `takes`: some arguments are filled in with the results of prerequisites.
    """

    priority: Percent = 50
    deadline: Moment | None = None
    key: str | None = None
    metadata: dict[str, Any] = {}
    headers: dict[str, str] = {}
    parent: str | None = None
    partition: str | None = None
    tenant: str = ""
    expires_at: Moment | None = None
    workflow: str | None = None
    takes: bool = False


class NewTask(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A task as its producer hands it over. `args` is a JSON object: arguments by name.

    `replace`: a waiting task that holds the key gets this one's content, and is postponed to at most `debounce_limit`
    after its enqueue. `waits`: its producer waits for room, and its first refusal has been counted.
    """

    id: str
    queue: str
    name: str
    args: bytes = b"{}"
    requires: tuple[str, ...] = ()
    spec: TaskSpec = TaskSpec()
    delay: Duration = 0
    at: Instant | None = None
    options: Defaults = Defaults()
    app_options: Defaults = Defaults()
    window: Duration = DAY
    fingerprint: str = ""
    client: str = ""
    after: tuple[Edge, ...] = ()
    replace: bool = False
    debounce_limit: Duration | None = None
    waits: bool = False


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run raised."""

    type: str
    """The exception's class."""
    message: str
    """What it said."""
    traceback: str = ""
    """From the task's own first frame on."""


class EndedBy(Struct, frozen=True):
    """The prerequisite because of which a task ended, and the state in which that had ended."""

    id: str
    state: State


class HistoryEvent(StrEnum):
    """What leaves an entry in a task's history. A clean run leaves none: the record has it all."""

    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    RELEASED = "released"
    SNOOZED = "snoozed"
    REFUSED = "refused"
    EDITED = "edited"
    REPLACED = "replaced"
    CANCEL_REQUESTED = "cancel requested"
    CANCELLED = "cancelled"
    DEAD = "dead"
    REPLAYED = "replayed"


class HistoryEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a task. `started_at`: the start of the run that it ended; None if it ended none."""

    at: Instant
    event: HistoryEvent
    lease: int = 0
    started_at: Instant | None = None
    worker: str | None = None
    actor: str | None = None
    note: str = ""
    failure: Failure | None = None


class Lease(Struct, gc=False, frozen=True):
    """The right to report about one run. The number only ever grows: it is the fence."""

    id: str
    number: int


class TaskRecord(Struct, kw_only=True, omit_defaults=True, tag="task"):
    """Everything the store knows about a task."""

    id: str
    queue: str
    name: str
    args: bytes
    requires: tuple[str, ...] = ()
    spec: TaskSpec
    state: State
    options: Resolved
    created_at: Instant
    due_at: Instant | None = None
    ready_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    changed_at: Instant | None = None
    """When an unfinished task was last changed by something else than its enqueue, start or promotion."""
    lane: int = 0
    rank_offset: Duration = 0
    rerank_at: Instant | None = None
    attempts: int = 0
    losses: int = 0
    handed_back: int = 0
    """How often it was released or snoozed: leases that ended in neither an attempt nor a loss."""
    lease: int = 0
    settled_lease: int = 0
    lease_expires_at: Instant | None = None
    worker: str | None = None
    sequence: int = 0
    cancel_reason: str | None = None
    progress: float | None = None
    progress_message: str = ""
    reason: Reason | None = None
    ended_by: EndedBy | None = None
    note: str = ""
    result: bytes | None = None
    failure: Failure | None = None
    share: str = ""
    """The tenant whose turn it uses; empty in a queue that is not fair."""
    inherited: int = 0
    """The highest priority among the tasks that wait for it."""

    @property
    def urgency(self) -> int:
        """The priority that it is ranked by."""
        return max(self.spec.priority, self.inherited)

    @property
    def updated_at(self) -> Instant:
        """The last change that it shows. When it was promoted is not kept: its due time says that."""
        known = (self.created_at, self.changed_at, self.started_at, self.finished_at)
        return max(at for at in known if at is not None)

    @property
    def rank(self) -> int:
        """The sort key among pending tasks; smaller goes first."""
        return (self.ready_at or 0) + self.rank_offset


class LeasedTask(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker is given to run."""

    id: str
    lease: int
    lease_expires_at: Instant
    claimed_at: Instant
    ready_at: Instant
    queue: str
    name: str
    args: bytes
    spec: TaskSpec
    rank: int
    scale: Duration
    """Microseconds per point of priority: with `rank` its effective priority at any instant."""
    options: Resolved
    attempts: int = 0
    losses: int = 0
    handed_back: int = 0
    fair: bool = False
    """Its queue is fair: turns decided when it was claimed, not its rank alone."""

    @property
    def effective(self) -> float:
        """Its effective priority when it was claimed."""
        return (self.claimed_at - self.rank) / self.scale

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.attempts + 1


class QueueRecord(Struct, frozen=True, kw_only=True):
    """A queue as it is stored. `stale` counts waiting tasks still ranked by earlier settings."""

    name: str
    state: QueueState = QueueState.ACTIVE
    settings: QueueSettings = QueueSettings()
    stale: int = 0


class Outcome(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"  # the task runs again, or is dead if this was its last attempt: the store decides
    PERMANENT = "permanent"  # failed for good: no other attempt would help
    CANCELLED = "cancelled"
    RELEASED = "released"  # handed back, pending at once, no attempt counted
    SNOOZED = "snoozed"  # scheduled again after `delay`, no attempt counted


class Settlement(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """The report about one run."""

    lease: Lease
    outcome: Outcome
    result: bytes | None = None
    delay: Duration | None = None
    """Until it may run again; None: what its options say."""
    failure: Failure | None = None
    timed_out: bool = False
    note: str = ""
    metadata: dict[str, Any] | None = None
    """Added to the task's own, whatever the outcome."""


class Edit(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="edit"):
    """Changes to a waiting task; what is None stays. `due_at` in the past means now. Repeat: `unchanged`."""

    id: str
    priority: int | None = None
    due_at: Instant | None = None
    deadline: Instant | None = None
    expires_at: Instant | None = None
    metadata: dict[str, Any] | None = None


Specified = TypeVar("Specified", NewTask, TaskRecord)


def with_spec(task: Specified, **changes: object) -> Specified:
    """The same task with a changed spec."""
    return structs.replace(task, spec=structs.replace(task.spec, **changes))


def is_like(new: NewTask, other: NewTask) -> bool:
    """Whether two new tasks would be stored alike, but for id and arguments."""
    one, two = new.spec, other.spec
    # Equal metadata may differ as JSON, where True is not 1.
    same_spec = one is two or (one == two and (one.metadata is two.metadata or not one.metadata))
    return same_spec and (
        new.name, new.queue, new.requires, new.delay, new.at, new.options, new.app_options
    ) == (other.name, other.queue, other.requires, other.delay, other.at, other.options, other.app_options)  # fmt: skip
