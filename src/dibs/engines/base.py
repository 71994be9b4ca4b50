"""The engine seam: the verbs that every store has. The values they take and return are in `values` and `dibs.core`.

`docs/design/engine-seam.md` has the promises of each verb, and `dibs.testing.conformance` checks them. Rules:

- Each verb takes a batch and answers per item, in the order asked. Each is one bounded step, however full the store is.
- Each is safe to repeat after a lost reply; its docstring says how.
- `now=None` means the store's own clock. Tests pass an instant through the same statements.
- Callers state intents; engines compute ranks and settings with `dibs.core` and add their own clock.
- Nothing here names a driver, SQL or a connection, except `join`, whose connection is the caller's own.
- A lease number only ever grows; it may cover many tasks of one claim. Every write about a running task carries it.
- A stored row that can't be read fails no verb: it stays unchanged, is logged once, and is skipped. `get` and `search`
  show such tasks, `check` counts them, and the act `Purge` deletes them.

The verbs are grouped by their callers: each protocol is also a scope that a token can be limited to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from dibs.core.recurrence import Recurrence
from dibs.core.schedules import ScheduleRecord, ScheduleState
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
from dibs.engines.events import EventPage, EventRequest
from dibs.engines.figures import Backlog, Counts, Minute, PoolUse
from dibs.engines.steps import ActOnAll, StepRecord
from dibs.engines.values import (
    About,
    Act,
    AuditEntry,
    Beat,
    Changed,
    ChoreRecord,
    Claimed,
    ClaimRequest,
    Edges,
    EnqueueAnswer,
    ExtendAnswer,
    Extension,
    Feature,
    Finding,
    Fired,
    NewWorkflow,
    Page,
    Peeked,
    Query,
    Rescued,
    SettleAnswer,
    SettleOutcome,
    Standing,
    Term,
    UnreadableTask,
    WorkerRecord,
    WorkflowRecord,
)

MayBlock = Callable[[], bool]
"""Whether only a blocked caller drives the engine's loop now. Then the engine may block it, but nothing drives what is
left on the loop once the caller has its answer."""


def never() -> bool:
    """For a loop that is shared with others."""
    return False


class Subscription(Protocol):
    """Wakes for its topics. A notification between two waits is remembered; wake-ups may be spurious."""

    async def wait(self, timeout: float) -> bool:
        """Wait until woken, at most `timeout` seconds; True if woken."""
        ...

    def close(self) -> None: ...


class Joined(Protocol):
    """A transaction of the caller's own: what is done here is stored if it commits, and never if it rolls back.

    Each verb takes effect as a whole or not at all. After `Unready`, call `prepare` and try again.
    """

    @property
    def waits(self) -> bool | None:
        """Whether the verbs are to be awaited on the loop of the connection.

        False: they block the calling thread and never suspend. None: they do too, but so briefly that they may run on a
        loop.
        """
        ...

    async def enqueue(self, tasks: Sequence[NewTask], *, now: Instant | None = None) -> list[EnqueueAnswer]:
        """`Engine.enqueue`, all or none."""
        ...

    async def complete(self, settlement: Settlement, *, now: Instant | None = None) -> SettleOutcome:
        """`Engine.settle` of one completion. If refused, nothing is written, not even a count of the refusal.

        Answers `already` only if this lease completed the task: if it was settled in another way, it is refused.
        """
        ...

    async def prepare(self) -> None:
        """On the engine's own loop: create or load what the verb that raised `Unready` needs."""
        ...


class Producing(Protocol):
    """Adding tasks."""

    async def enqueue(
        self,
        tasks: Sequence[NewTask],
        *,
        atomic: bool = False,
        workflow: NewWorkflow | None = None,
        now: Instant | None = None,
    ) -> list[EnqueueAnswer]:
        """Store tasks durably. `atomic`: all or none. Repeat: the same id is stored once and answers `exists`.

        A task may wait for tasks that are stored or that precede it in the batch. `workflow` is recorded with the
        batch, which must then be atomic; its members name it themselves.
        """
        ...

    def join(self, connection: Any) -> Joined:
        """The open transaction on a connection of the caller's own. Nothing is sent. Only with `TRANSACTIONS`."""
        ...


class Consuming(Protocol):
    """Running tasks."""

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        """Expire, promote, continue follow-ups; then lease the most urgent tasks that this worker can run.

        Each of these steps is bounded; `next_due_in` is 0 when one of them has more to do.
        """
        ...

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        """Extend leases, record progress, learn of cancellation and loss. An expired lease may still be extended."""
        ...

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleAnswer]:
        """Record outcomes, each only under its current lease. Ended tasks leave the hot table in the same statement.

        The answers say what became of each task: the engine decides whether a failed one runs again. A task that would
        run again (failed, released, snoozed) after a cancel request ends as cancelled.
        """
        ...

    async def beat(self, beat: Beat, *, now: Instant | None = None) -> WorkerState:
        """Upsert a worker and its minutes; the answer is the state to obey."""
        ...

    async def leave(self, worker: str, *, now: Instant | None = None) -> None:
        """The worker has shut down cleanly."""
        ...


class Viewing(Protocol):
    """Reads. Answers are values: changing them changes nothing."""

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]: ...

    async def history(self, task_id: str) -> list[HistoryEntry]:
        """Oldest first, the newest 100."""
        ...

    async def search(self, query: Query) -> Page:
        """A page, newest first by id. A page may be short or empty and still have a cursor."""
        ...

    async def peek(self, queue: str, limit: int, *, until: str | None = None, now: Instant | None = None) -> Peeked:
        """The next tasks of one queue in claim order, for any worker, whatever state the queue is in.

        `until`: also count the tasks ahead of this one, even beyond `limit`.
        """
        ...

    async def counts(self) -> Counts:
        """Exact numbers, without a scan."""
        ...

    async def backlog(self, *, now: Instant | None = None) -> list[Backlog]:
        """The pending tasks of each queue and tier that has some, and since when the oldest has waited.

        Reads no task, and a bounded number of index entries: where tasks of several priorities mix, the oldest may be
        behind them.
        """
        ...

    async def stats(self, queue: str | None, since: int, until: int) -> list[Minute]:
        """Minutes from `since` to `until` (inclusive), oldest first."""
        ...

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[Edges]:
        """What each task waits for, and at most `followers` of the tasks that wait for it, by id."""
        ...

    async def workflows(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[WorkflowRecord]:
        """Those of `ids` that exist; without ids a page, newest first by id, starting below `before`."""
        ...

    async def standing(
        self, queue: str, tasks: Sequence[str] = (), *, tenants: int = 0, now: Instant | None = None
    ) -> Standing:
        """The limits on the start of each of these tasks of a queue, and at most `tenants` of its tenants."""
        ...

    async def queues(self) -> list[QueueRecord]:
        """By name. A queue exists from its first task or setting."""
        ...

    async def workers(self) -> list[WorkerRecord]: ...

    async def schedules(self) -> list[ScheduleRecord]:
        """By name."""
        ...

    async def audit(self, limit: int = 100, *, before: int | None = None) -> list[AuditEntry]:
        """Newest first, starting below the number `before`."""
        ...

    async def events(self, request: EventRequest, *, now: Instant | None = None) -> EventPage:
        """What has happened since the cursor, in order; this also subscribes, and keeps the subscription alive.

        Events are written only while somebody subscribes to them and for at least 60 s after, and are kept for a while:
        `missed` says that some are gone. None is skipped that is committed after one with a higher number.
        """
        ...

    async def steps(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[StepRecord]:
        """Background steps: those of `ids` that exist; without ids a page, newest first by id, starting below `before`.

        They stay listed for 7 days after their end.
        """
        ...


class Operating(Protocol):
    """What operators change. `actor` is written to the audit log."""

    async def act(self, acts: Sequence[Act], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        """Do these in order. A large act on a workflow becomes a step that claims go on with.

        Consecutive acts of one kind are one entry in the audit log.
        """
        ...

    async def act_on(
        self, step: str, query: Query, act: ActOnAll, *, actor: str = "", now: Instant | None = None
    ) -> StepRecord:
        """Begin to act on all tasks that match now: a background step. Its id is the caller's, as those of tasks are.

        Nothing is changed yet. The record says how many match; at most 10,000 tasks are visited to count them.
        Repeat: the same id begins once.
        """
        ...

    async def advance(self, step: str, *, now: Instant | None = None) -> StepRecord | None:
        """Do a bounded part of a background step; None if there is no such step. One that has ended stays as it is.

        The leader does the same while nobody calls this. Repeat: another part; no task is met twice.
        """
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
        """`wrong state` if it has unfinished tasks and `force` is not set.

        Force makes waiting tasks dead (reason queue) and lets running ones end; the settings are deleted. What takes
        long becomes a background step: the queue takes no new tasks, and the step outlives its caller.
        """
        ...

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
        """Create or replace a schedule. With the same recurrence it keeps its next fire; with another it starts again.

        `declared`: it is defined in code, and this call confirms that it still is. Repeat: `unchanged`.
        """
        ...

    async def set_schedule_state(
        self, name: str, state: ScheduleState, *, actor: str = "", now: Instant | None = None
    ) -> Changed: ...

    async def set_worker_state(
        self, worker: str, state: WorkerState, *, actor: str = "", now: Instant | None = None
    ) -> Changed: ...


class Keeping(Protocol):
    """What workers do for everyone: rescue, schedules and chores."""

    async def rescue(
        self, *, ended_by: Instant | None = None, not_after: Instant | None = None, now: Instant | None = None
    ) -> Rescued:
        """Take back tasks whose lease has ended or whose worker is dead: a bounded step that any process may do.

        The caller says what it knows of the store's clock, so that a stall takes nothing from living workers.
        `ended_by`: the clock at the caller's last read; a lease that ended later is left alone. `not_after`: the latest
        that the clock can show now; if it shows more, the call was held up, takes nothing and answers `stalled`.
        """
        ...

    async def fire(self, *, now: Instant | None = None) -> Fired:
        """Enqueue a bounded number of due tasks of schedules; each fire is a compare-and-set of `next_fire_at`."""
        ...

    async def lead(self, worker: str, *, now: Instant | None = None) -> Term | None:
        """Take or renew leadership; None if another worker has it."""
        ...

    async def resign(self, term: Term) -> None: ...

    async def chore(self, name: str, term: Term, *, now: Instant | None = None) -> ChoreRecord:
        """Do one bounded step; `refused` if a later term has begun."""
        ...


class Caring(Protocol):
    """The store itself: health, backup and migrations."""

    async def check(self, *, full: bool = False) -> list[Finding]:
        """The health of the store; `full` may take long."""
        ...

    async def backup(self, target: Path) -> None:
        """A consistent copy, made while others write."""
        ...

    async def migrations(self, *, sql: bool = False) -> list[str]:
        """The steps that `open` would apply, as text; `sql`: as SQL for the store's own tools."""
        ...


class Engine(Producing, Consuming, Viewing, Operating, Keeping, Caring, Protocol):
    """A store of tasks: all verbs, and the engine's own lifecycle."""

    @property
    def features(self) -> frozenset[Feature]:
        """What it can do. Known before it is open: a caller chooses by it whether and how to use the engine."""
        ...

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        """Connect, check the layout's version, create or migrate it. Idempotent.

        Without `create`, a place that holds no store yet stays as it is: `StoreMissing`.
        """
        ...

    async def close(self) -> None:
        """Release everything. Idempotent; a closed engine may be opened again."""
        ...

    def forget(self) -> None:
        """In a forked child: drop connections and locks without closing them; the next `open` makes new ones."""
        ...

    def sibling(self) -> Engine:
        """Another engine on the same store, for another thread and loop (heartbeats)."""
        ...

    async def about(self) -> About: ...

    def pool_use(self) -> PoolUse | None:
        """The connections of this process to the store; None if callers never wait for one, or it is not open."""
        ...

    def subscribe(self, topics: Collection[str]) -> Subscription:
        """Listen from now on. Verbs that make work or end tasks notify by themselves, here and in other processes."""
        ...
