"""The engine seam: the verbs that every store must know. The values they take and give are in `values` and `dibs.core`.

Rules of the seam:

- Each verb takes a batch and answers per item, in the order asked; each is one bounded step, however full the store is.
- Each is safe to repeat after a lost reply (how, is said at the verb).
- `now=None` means the store's own clock. Tests pass an instant through the same statements.
- Callers state intents; engines compute ranks and settings with `dibs.core` and add their own clock.
- Nothing here names a driver, SQL or a connection, but for `join`, whose connection is the caller's own.
- A lease's number only ever grows; it may cover many tasks of one claim. Every write about a running task carries it.
- A stored row that can't be read fails no verb: it stays as it is, is logged once, and is passed over. `get` and
  `search` tell of such tasks, `check` counts them, and the act `Purge` deletes them.

The verbs are grouped by who needs them: each protocol is also a scope that a token can be limited to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

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
    Minute,
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

__all__ = [
    "Caring",
    "Consuming",
    "Engine",
    "Joined",
    "Keeping",
    "MayBlock",
    "Operating",
    "Producing",
    "Subscription",
    "Viewing",
    "never",
]

MayBlock = Callable[[], bool]
"""Whether only a blocked caller drives the engine's loop now. Then blocking it disturbs nobody, but nobody goes on with
what is left on it once the caller has its answer."""


def never() -> bool:
    """The loop is shared with others."""
    return False


class Subscription(Protocol):
    """Hears the topics it was made for. A ring between two waits is remembered; rings may be spurious."""

    async def wait(self, timeout: float) -> bool:
        """Until rung, at most `timeout` seconds; True if rung."""
        ...

    def close(self) -> None: ...


class Joined(Protocol):
    """A transaction of the caller's own: what is done here is there if it commits, and never if it rolls back.

    Each verb is done as a whole, or the transaction is left as it was. `Unready` asks for `prepare`, and another try.
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

    async def prepare(self) -> None:
        """On the engine's own loop: make or learn what the verb that raised `Unready` needs."""
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

        A task may wait for others that are stored or come before it in the batch. `workflow` is recorded with the
        batch, which must then be atomic; its members name it themselves.
        """
        ...

    def join(self, connection: Any) -> Joined:
        """The open transaction on a connection of the caller's own. Nothing is sent. Only with `TRANSACTIONS`."""
        ...


class Consuming(Protocol):
    """Running tasks."""

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        """End what has expired, promote what is due, go on with follow-ups; then lease the most urgent tasks that can
        run. Each of these steps is bounded; `next_due_in` is 0 when one of them has more to do.
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

    async def beat(self, beat: Beat, *, now: Instant | None = None) -> WorkerState:
        """Upsert a worker and its minutes; the answer is the state to obey."""
        ...

    async def leave(self, worker: str, *, now: Instant | None = None) -> None:
        """The worker is gone in good order."""
        ...


class Viewing(Protocol):
    """Looking without changing anything. Answers are values: changing them changes nothing."""

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]: ...

    async def history(self, task_id: str) -> list[HistoryEntry]:
        """Oldest first, the newest 100."""
        ...

    async def search(self, query: Query) -> Page:
        """A page, newest first by id. A page may be short or empty and still have a cursor."""
        ...

    async def peek(self, queue: str, limit: int, *, until: str | None = None, now: Instant | None = None) -> Peeked:
        """The next tasks of one queue in claim order, whichever worker could run them, whatever state the queue is in.

        `until`: also how many go before this task, however many of them are given.
        """
        ...

    async def counts(self) -> Counts:
        """Exact numbers; never a scan."""
        ...

    async def stats(self, queue: str | None, since: int, until: int) -> list[Minute]:
        """Minutes from `since` to `until` (inclusive), oldest first."""
        ...

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[Edges]:
        """What each task waits for, and at most so many of the tasks that wait for it, by id."""
        ...

    async def workflows(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[WorkflowRecord]:
        """Those of `ids` that are there; without ids a page, newest first by id, from below `before` on."""
        ...

    async def standing(
        self, queue: str, tasks: Sequence[str] = (), *, tenants: int = 0, now: Instant | None = None
    ) -> Standing:
        """The limits that starts of these tasks of a queue stand under, and at most so many of its tenants."""
        ...

    async def queues(self) -> list[QueueRecord]:
        """By name. A queue exists from its first task or setting on."""
        ...

    async def workers(self) -> list[WorkerRecord]: ...

    async def schedules(self) -> list[ScheduleRecord]:
        """By name."""
        ...

    async def audit(self, limit: int = 100) -> list[AuditEntry]:
        """Newest first."""
        ...


class Operating(Protocol):
    """What operators change. `actor` is who, for the audit log."""

    async def act(self, acts: Sequence[Act], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        """Do these in their order. What one call about a workflow leaves to do is a follow-up that claims go on with.

        Acts of one kind that follow each other are one entry in the audit log.
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
        """`wrong state` when it has unfinished tasks and force was not given.

        Force makes waiting tasks dead (reason queue) and lets running ones end; the settings are gone.
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

        `declared`: it is written in code, and this call says that it still is. Repeat: `unchanged`.
        """
        ...

    async def set_schedule_state(
        self, name: str, state: ScheduleState, *, actor: str = "", now: Instant | None = None
    ) -> Changed: ...

    async def set_worker_state(
        self, worker: str, state: WorkerState, *, actor: str = "", now: Instant | None = None
    ) -> Changed: ...


class Keeping(Protocol):
    """What workers do for all: rescue, schedules and chores."""

    async def rescue(
        self, *, ended_by: Instant | None = None, not_after: Instant | None = None, now: Instant | None = None
    ) -> Rescued:
        """Take back tasks whose lease has ended or whose worker is dead: a bounded step that anyone may do.

        The caller says what it knows of the store's clock, so that it takes nothing from living workers after a stall.
        `ended_by`: what it showed when the caller last looked; a lease that ended later is left alone. `not_after`:
        what it can show now at most; if it is later, the call was held up, takes nothing and answers `stalled`.
        """
        ...

    async def fire(self, *, now: Instant | None = None) -> Fired:
        """Enqueue what schedules have due, a bounded number; each fire is a compare-and-set of `next_fire_at`."""
        ...

    async def lead(self, worker: str, *, now: Instant | None = None) -> Term | None:
        """Take or renew leadership; None: somebody else has it."""
        ...

    async def resign(self, term: Term) -> None: ...

    async def chore(self, name: str, term: Term, *, now: Instant | None = None) -> ChoreRecord:
        """Do one bounded step; `refused` if a later term has begun."""
        ...


class Caring(Protocol):
    """Looking after the store itself."""

    async def check(self, *, full: bool = False) -> list[Finding]:
        """How the store is; `full` may take long."""
        ...

    async def backup(self, target: Path) -> None:
        """A consistent copy while others go on."""
        ...

    async def migrations(self, *, sql: bool = False) -> list[str]:
        """Steps that `open` would apply, as text; `sql`: what the store's own tools would apply them with."""
        ...


class Engine(Producing, Consuming, Viewing, Operating, Keeping, Caring, Protocol):
    """A store of tasks: all verbs, and the engine's own lifecycle."""

    @property
    def features(self) -> frozenset[Feature]:
        """What it can do. Known before it is open: a caller chooses by it how to use the engine, or not to."""
        ...

    async def open(self, may_block: MayBlock = never) -> None:
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

    async def about(self) -> About: ...

    def subscribe(self, topics: Collection[str]) -> Subscription:
        """Listen from now on. Verbs that make work or end tasks ring by themselves, here and in other processes."""
        ...
