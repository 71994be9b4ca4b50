"""The engine seam: the verbs that every store must know. The values they take and give are in `values` and `dibs.core`.

Rules of the seam:

- Each verb takes a batch and answers per item, in the order asked; each is one bounded step, however full the store is.
- Each is safe to repeat after a lost reply (how, is said at the verb).
- `now=None` means the store's own clock. Tests pass an instant through the same statements.
- Callers state intents; engines compute ranks and settings with `dibs.core` and add their own clock.
- Nothing here names a driver, SQL or a connection, but for `join`, whose connection is the caller's own.
- Every write about a running task carries its lease number, compared in the statement that writes.
- A stored row that can't be read fails no verb: it stays as it is, is logged once, and is passed over. `get` and
  `search` tell of such tasks, `check` counts them, and `purge` deletes them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from dibs.core.limits import LimitState
from dibs.core.schedules import Recurrence, ScheduleRecord
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import (
    Edit,
    HistoryEntry,
    NewTask,
    QueueRecord,
    QueueState,
    Settlement,
    TaskRecord,
    WorkerState,
)
from dibs.core.times import Instant
from dibs.engines.values import (
    AuditEntry,
    Beat,
    CancelOutcome,
    Changed,
    ChoreRecord,
    Claimed,
    ClaimRequest,
    Counter,
    EnqueueAnswer,
    ExtendAnswer,
    Extension,
    Feature,
    Finding,
    Fired,
    Minute,
    Need,
    NewWorkflow,
    Page,
    Position,
    Query,
    Rescued,
    SettleAnswer,
    SettleOutcome,
    TenantRecord,
    Term,
    UnreadableTask,
    WorkerRecord,
    WorkflowRecord,
)

__all__ = ["Engine", "Joined", "Subscription"]


class Subscription(Protocol):
    """Hears the topics it was made for. A ring between two waits is remembered; rings may be spurious."""

    async def wait(self, timeout: float) -> bool:
        """Until rung, at most `timeout` seconds; True if rung."""
        ...

    def close(self) -> None: ...


class Joined(Protocol):
    """A transaction of the caller's own: what is done here is there if it commits, and never if it rolls back.

    Each verb is done as a whole, or the transaction is left as it was. `Unready` asks for `Engine.ready`, on the
    engine's own loop, and for another try.
    """

    @property
    def waits(self) -> bool | None:
        """Whether the verbs are to be awaited on the loop of the connection.

        False: they block the calling thread and never suspend. None: they do, for so short a time that a loop can
        bear it.
        """
        ...

    async def enqueue(self, tasks: Sequence[NewTask], *, now: Instant | None = None) -> list[EnqueueAnswer]:
        """`Engine.enqueue`, all or none."""
        ...

    async def complete(self, settlement: Settlement, *, now: Instant | None = None) -> SettleOutcome:
        """`Engine.settle` of one completion. Refused: nothing is written, not even that it was.

        `already` only if it is completed: a lease that was settled in another way is not current, and refused.
        """
        ...


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

    def join(self, connection: Any) -> Joined:
        """The open transaction on a connection of the caller's own. Nothing is sent. Only with `TRANSACTIONS`."""
        ...

    async def ready(self, needs: object) -> None:
        """Do what `Unready` asked for: make queues that are missing, learn how others are set now."""
        ...

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        """End what has expired, promote what is due, go on with errands; then lease the most urgent tasks that can run.

        Each of these steps is bounded; `next_due_in` is 0 when one of them has more to do.
        """
        ...

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        """Keep leases, record progress, learn of cancellation and loss. An expired but unsuperseded lease is kept."""
        ...

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleAnswer]:
        """Record outcomes, each only under its current lease. Ended tasks leave the hot place in the same statement.

        The answers say what became of each task: whether a failed one runs again is decided here. One that would, or
        is released or snoozed, but was asked to cancel, ends as cancelled.
        """
        ...

    async def rescue(
        self, *, ended_by: Instant | None = None, not_after: Instant | None = None, now: Instant | None = None
    ) -> Rescued:
        """Take back tasks whose lease has ended or whose worker is dead: a bounded step that anyone may do.

        The caller says what it knows of the store's clock, lest it take tasks from the living after a stall.
        `ended_by`: what it showed when the caller last looked; a lease that ended later is left alone. `not_after`:
        what it can show now at most; if it is later, the call was held up, takes nothing and answers `stalled`.
        """
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
        self,
        name: str,
        recurrence: Recurrence,
        task: NewTask,
        *,
        declared: bool,
        actor: str = "",
        now: Instant | None = None,
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

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]: ...

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

    async def notify(self, topics: Collection[str]) -> None:
        """Wake waiters, here and in other processes. Verbs that make work or end tasks ring by themselves."""
        ...

    # Care.

    async def check(self, *, full: bool = False) -> list[Finding]:
        """How the store is; `full` may take long."""
        ...

    async def backup(self, target: Path) -> None:
        """A consistent copy while others go on."""
        ...

    async def migrations(self, *, sql: bool = False) -> list[str]:
        """Steps that `open` would apply, as text; `sql`: what the store's own tools would apply them with."""
        ...
