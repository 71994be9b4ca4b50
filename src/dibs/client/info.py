"""Snapshots for people and programs: instants as datetimes, durations in seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct, structs

from dibs.core.chores import is_late
from dibs.core.codec import Codec
from dibs.core.priority import effective
from dibs.core.reference import reference_in
from dibs.core.states import ENDED, State
from dibs.core.task import Failure, HistoryEntry, HistoryEvent, QueueRecord, TaskRecord, TaskSpec
from dibs.core.times import EPOCH, SECOND, Instant, seconds, when
from dibs.engines.values import ChoreRecord, UnreadableTask
from dibs.errors import UnknownTask, Unreadable

__all__ = [
    "CANT_CHANGE",
    "AuditLine",
    "ChoreInfo",
    "HistoryLine",
    "TaskInfo",
    "chore_info",
    "history_line",
    "is_moment",
    "ranked_info",
    "readable",
    "snapshot",
    "task_info",
    "unknown_task",
    "unreadable_task",
]

Info = TypeVar("Info", bound=Struct)

WHOLE_ID = 36
Queues = Mapping[str, QueueRecord]
INSTANTS = re.compile(r"\b(deadline|expires_at|due_at)=(-?\d+)")

CANT_CHANGE = "task {} can't be read by this version, so it stays as it is: dibs doctor says why. It can be purged."


class TaskInfo(Struct, frozen=True, kw_only=True):
    """A task as it was when it was read."""

    id: str
    """Its id."""
    name: str
    """The name of its task definition."""
    queue: str
    """Its queue."""
    state: State
    """Its state."""
    priority: int = 0
    """As submitted or edited, 0 to 100."""
    args: dict[str, Any] = {}
    """The arguments by name, as plain JSON values."""
    created_at: datetime
    """When it was enqueued."""
    due_at: datetime | None = None
    """Before this it does not start; None if it may."""
    ready_at: datetime | None = None
    """Since when it may run, from which waiting counts; None while it is blocked."""
    started_at: datetime | None = None
    """The start of its last run, which is the claim."""
    finished_at: datetime | None = None
    """When it completed, was cancelled or died."""
    updated_at: datetime | None = None
    """Its last change that can be told: enqueue, edit, cancel request, start, end of a run."""
    deadline: datetime | None = None
    """When it should be done, as set by its producer."""
    effective_priority: float | None = None
    """Priority plus what waiting and the deadline add; None unless it is pending, and in snapshots of a handle."""
    rerank_at: datetime | None = None
    """While it waits: when its deadline takes its next step, it comes to the next tier, or its ageing ends."""
    failed_attempts: int = 0
    """Attempts that have failed."""
    losses: int = 0
    """How many workers it was lost with; that is no failed attempt."""
    retries: int = 0
    """How many more attempts it has after one that failed."""
    timeout: float | None = None
    """Seconds that one attempt may take; None: 24 hours."""
    lease: int = 0
    """The number of its last lease: it grows with every run."""
    lease_expires_at: datetime | None = None
    """While it runs: when it goes to another worker unless its lease is extended."""
    worker: str | None = None
    """The worker that runs it, or ran it last."""
    progress: float | None = None
    """From 0 to 1, as it last reported; 1 once completed; None if it never did."""
    progress_message: str = ""
    """What it reported with it."""
    cancel_requested: bool = False
    """Whether it runs and was asked to stop."""
    reason: str | None = None
    """Why it is cancelled or dead."""
    note: str = ""
    """More about that, such as the reason given to `cancel`."""
    result: Any = None
    """What it returned, as plain JSON values; `handle.result()` gives it as annotated."""
    error: Failure | None = None
    """What its last attempt raised: `type`, `message`, `traceback`."""
    key: str | None = None
    """Its idempotency key."""
    requires: tuple[str, ...] = ()
    """Capabilities that a worker must offer."""
    metadata: dict[str, Any] = {}
    """Its labels."""
    headers: dict[str, str] = {}
    """Texts that travel with it."""
    parent: str | None = None
    """The task that enqueued it."""
    partition: str | None = None
    """The partition whose limits hold for it."""
    tenant: str = ""
    """Whose share of a fair queue it is charged to."""
    workflow: str | None = None
    """The id of its workflow."""
    inherited: int = 0
    """The highest priority among the tasks that wait for it."""
    expires_at: datetime | None = None
    """When it is cancelled if it has not started."""
    unreadable: str | None = None
    """Why this version can't read it. Then it is set aside, and only id, name, queue, state and worker are known."""

    @property
    def is_done(self) -> bool:
        """Completed, cancelled or dead."""
        return self.state in ENDED

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or, if none does, of the last one; 0 if it never ran."""
        return self.failed_attempts + (self.state in (State.RUNNING, State.COMPLETED))

    @property
    def will_retry(self) -> bool:
        """Whether an attempt failed and another one follows."""
        return self.state is State.RETRYING

    @property
    def waited(self) -> float | None:
        """Seconds from ready to claimed."""
        return seconds_between(self.ready_at, self.started_at)

    @property
    def ran(self) -> float | None:
        """Seconds from claimed to ended."""
        return seconds_between(self.started_at, self.finished_at)


def is_moment(name: str) -> bool:
    """Whether a field holds an instant."""
    return name in ("at", "deadline") or name.endswith("_at")


FIELDS = frozenset(TaskInfo.__struct_fields__)
SAID = FIELDS.intersection(TaskSpec.__struct_fields__)
KEPT = FIELDS.intersection(TaskRecord.__struct_fields__) - {"args", "result"} - SAID
SAID_MOMENTS, KEPT_MOMENTS = set(filter(is_moment, SAID)), set(filter(is_moment, KEPT))
SAID_FACTS, KEPT_FACTS = SAID - SAID_MOMENTS, KEPT - KEPT_MOMENTS
"""Sorted out once: lists make thousands of snapshots."""


class HistoryLine(Struct, frozen=True, kw_only=True):
    """One entry of a task's history. If it ended a run: when that started, and for how many seconds it ran."""

    at: datetime
    """When."""
    event: str
    """What happened, such as `failed` or `edited`."""
    lease: int
    """The lease that it was under."""
    started_at: datetime | None
    """If it ended a run: the run's start."""
    ran: float | None
    """If it ended a run: seconds since then."""
    worker: str | None
    """The worker of that run."""
    actor: str | None
    """Who did it, if it was a person."""
    note: str
    """More, in words."""
    error: Failure | None
    """What the run raised."""


class AuditLine(Struct, frozen=True, kw_only=True):
    """Someone changed something. `target` is the id or name of what was changed, or how many were.

    `ids`: the tasks concerned, at most 100. `before` and `after`: what was changed, in the units in which it is stored;
    of several tasks what is the same for all. `n` is its number: `app.audit(before=n)` goes on with older lines.
    """

    at: datetime | None
    """When."""
    actor: str
    """Who: `DIBS_ACTOR`, the user of the system, or a token's name."""
    act: str
    """What was done."""
    target: str
    """The id or name of what was changed, or how many were."""
    detail: str
    """More, in words."""
    n: int
    """Its number, for `before=`."""
    ids: tuple[str, ...]
    """The tasks concerned, at most 100."""
    before: dict[str, Any]
    """What was changed, as it was."""
    after: dict[str, Any]
    """And as it is since."""


class ChoreInfo(Struct, frozen=True, kw_only=True):
    """The last run of a chore; `at` is None if it never ran. `took` is in seconds, `done` counts that run, `total` all.

    `more`: it stopped at its bound with work left, and goes on with its next run; `behind_since`: each run has, since
    then. `late`: it has not run for 3 minutes, or has been behind for 10.
    """

    name: str
    """Its name."""
    at: datetime | None
    """The start of its last run; None if it never ran."""
    took: float
    """Seconds."""
    done: int
    """What that run did."""
    total: int
    """What all runs did."""
    more: bool
    """Whether it stopped at its bound with work left."""
    behind_since: datetime | None
    """Since when every run has."""
    late: bool
    """Whether it has not run for 3 minutes, or has been behind for 10."""


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def unreadable_info(task: UnreadableTask) -> TaskInfo:
    """The public form of a task that can't be read, with what is known of it."""
    known = {name: getattr(task, name) for name in ("id", "name", "queue", "state", "worker")}
    return TaskInfo(**known, created_at=when(task.created_at) or EPOCH, unreadable=task.problem)


def task_info(record: TaskRecord | UnreadableTask, codec: Codec) -> TaskInfo:
    """The public form of a record. Payloads that this app can't read are shown as they are stored."""
    if isinstance(record, UnreadableTask):
        return unreadable_info(record)
    timeout, spec = record.options.timeout, record.spec
    known: dict[str, Any] = {name: getattr(spec, name) for name in SAID_FACTS}
    known |= {name: getattr(record, name) for name in KEPT_FACTS}
    known |= {name: when(getattr(spec, name)) for name in SAID_MOMENTS}
    known |= {name: when(getattr(record, name)) for name in KEPT_MOMENTS}
    return TaskInfo(
        **known,
        args=readable(record.args, codec),
        updated_at=when(record.updated_at),
        failed_attempts=record.attempts,
        retries=record.options.retries,
        timeout=None if timeout is None else timeout / SECOND,
        cancel_requested=record.cancel_reason is not None and record.state is State.RUNNING,
        result=None if record.result is None else readable(record.result, codec),
        error=record.failure,
    )


def ranked_info(record: TaskRecord | UnreadableTask, codec: Codec, queues: Queues, now: Instant) -> TaskInfo:
    """The public form of a record, with its effective priority if it is pending."""
    info = task_info(record, codec)
    queue = queues.get(record.queue)
    if not isinstance(record, TaskRecord) or record.state is not State.PENDING or queue is None:
        return info
    return structs.replace(info, effective_priority=effective(record.rank, record.lane, queue.settings, now))


def history_line(entry: HistoryEntry) -> HistoryLine:
    ran = None if entry.started_at is None else seconds(entry.at - entry.started_at)
    return snapshot(HistoryLine, entry, error=entry.failure, ran=ran, note=readable_note(entry))


def readable_note(entry: HistoryEntry) -> str:
    """A note with instants as times. Only edits note instants; other notes are in people's own words."""
    if entry.event is not HistoryEvent.EDITED:
        return entry.note
    return INSTANTS.sub(lambda found: f"{found[1]}={when(int(found[2])):%Y-%m-%d %H:%M:%S} UTC", entry.note)


def unknown_task(task_id: str) -> UnknownTask:
    """The error about a task that is not there."""
    if len(task_id) < WHOLE_ID:
        return UnknownTask(f"no task has the id {task_id}: whole ids have {WHOLE_ID} characters.")
    return UnknownTask(f"no task has the id {task_id}: it was never committed, or it has been pruned.")


def unreadable_task(task_id: str, problem: str) -> Unreadable:
    """The error about a task that can't be read."""
    return Unreadable(
        f"task {task_id} can't be read: {problem}. It was damaged, or written by a newer Dibs, and is set aside: "
        "upgrade, repair its row, or purge it."
    )


def readable(payload: bytes, codec: Codec) -> Any:
    """A payload as plain values; if it is in the blob store, only its key and size."""
    try:
        if (reference := reference_in(payload)) is not None:
            return {"blob": reference.key, "size": reference.size}
        return codec.decode(payload)
    except Exception:  # a foreign or broken payload may raise anything: showing a task must always work
        return {"unreadable payload": payload[:200].decode(errors="replace")}


def public(name: str, value: Any) -> Any:
    """The public form of a field: an instant as a datetime."""
    return when(value) if is_moment(name) else value


def snapshot(info: type[Info], record: object, **facts: Any) -> Info:
    """The public form of a record: its fields of the same names, and other `facts`."""
    same = {name: public(name, getattr(record, name)) for name in info.__struct_fields__ if name not in facts}
    return info(**same, **facts)


def chore_info(record: ChoreRecord, now: Instant) -> ChoreInfo:
    return snapshot(
        ChoreInfo,
        record,
        at=when(record.at or None),
        took=seconds(record.took),
        behind_since=when(record.behind_since or None),
        late=is_late(record.at, record.behind_since, now),
    )
