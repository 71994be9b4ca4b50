"""What holds up a task that waits for others: the path from it to the task at the root."""

from __future__ import annotations

from msgspec import Struct

from dibs.core.states import Reason, State
from dibs.core.task import QueueRecord, QueueState, TaskRecord, WorkerState
from dibs.core.times import Instant
from dibs.engines.base import Engine
from dibs.engines.values import UnreadableTask, WorkerRecord

__all__ = ["Blockers", "StoreView", "find_blockers"]

DEEPEST = 5
"""The longest path that is followed."""

WIDEST = 100
"""Prerequisites of one task that are searched for the blocker."""

NEEDS_ATTENTION = {
    State.DEAD: 0,
    State.CANCELLED: 0,
    State.RETRYING: 2,
    State.BLOCKED: 3,
    State.SCHEDULED: 4,
    State.PENDING: 5,
    State.RUNNING: 6,
    State.COMPLETED: 7,
}
"""The lower, the more likely it is that someone must act; 1 is for what can't start at present."""


class StoreView:
    """A cached view of the store, for several answers."""

    def __init__(self, engine: Engine, now: Instant) -> None:
        self.engine = engine
        self.now = now
        self._queues: dict[str, QueueRecord] | None = None
        self._workers: list[WorkerRecord] | None = None

    async def task(self, task_id: str) -> TaskRecord | UnreadableTask | None:
        return (await self.engine.get([task_id]))[0]

    async def queue(self, name: str) -> QueueRecord:
        if self._queues is None:
            self._queues = {record.name: record for record in await self.engine.queues()}
        return self._queues.get(name) or QueueRecord(name=name)

    async def workers(self) -> list[WorkerRecord]:
        """Workers that are active or paused."""
        if self._workers is None:
            states = (WorkerState.ACTIVE, WorkerState.PAUSED)
            self._workers = [each for each in await self.engine.workers() if each.state in states]
        return self._workers

    async def trouble(self, record: TaskRecord) -> str | None:
        """Why a task could not start even if it were its turn."""
        if (await self.queue(record.queue)).state is QueueState.PAUSED:
            return f"queue {record.queue!r} is paused: nothing is handed out until it is resumed."
        return no_worker(record, await self.workers())


class Blockers(Struct, frozen=True):
    """How many prerequisites of a task are open, of how many, and the path to the one that holds it up."""

    open: int
    total: int
    path: tuple[TaskRecord, ...]


async def find_blockers(view: StoreView, record: TaskRecord) -> Blockers:
    """Follow what a task waits for, or what ended it if it ended because of a dependency."""
    needs = (await view.engine.edges([record.id]))[0].needs
    path: list[TaskRecord] = []
    for _ in range(DEEPEST):
        found = await next_blocker(view, path[-1] if path else record)
        if found is None:
            break
        path.append(found)
    return Blockers(sum(need.is_open for need in needs), len(needs), tuple(path))


async def next_blocker(view: StoreView, record: TaskRecord) -> TaskRecord | None:
    """The one prerequisite to name; None where there is none to follow."""
    if record.state is not State.BLOCKED and record.reason is not Reason.DEPENDENCY:
        return None
    needs = (await view.engine.edges([record.id]))[0].needs
    if record.state is State.BLOCKED:
        ids = [need.id for need in needs if need.is_open][:WIDEST]
    else:
        ids = [] if record.ended_by is None else [record.ended_by.id]
    found = [each for each in await view.engine.get(ids) if isinstance(each, TaskRecord)]
    ranked = [(await attention(view, each), place) for place, each in enumerate(found)]
    return found[min(ranked)[1]] if ranked else None


async def attention(view: StoreView, record: TaskRecord) -> int:
    if record.state in (State.PENDING, State.SCHEDULED, State.RETRYING) and await view.trouble(record) is not None:
        return 1
    return NEEDS_ATTENTION[record.state]


def no_worker(record: TaskRecord, workers: list[WorkerRecord]) -> str | None:
    """What is missing if none of these workers could run this task."""
    serving = [w for w in workers if record.queue in w.queues]
    if not serving:
        return f"no worker serves queue {record.queue!r}: start one with `dibs worker`."
    knowing = [w for w in serving if w.names is None or record.name in w.names]
    if not knowing:
        return f"no worker of queue {record.queue!r} knows the task {record.name!r}: deploy code that defines it."
    capable = [w for w in knowing if set(record.requires) <= set(w.capabilities)]
    if not capable:
        return f"it requires {', '.join(record.requires)}, and no worker of queue {record.queue!r} offers that."
    if all(w.state is WorkerState.PAUSED for w in capable):
        return f"all workers that could run it are paused: {', '.join(w.id for w in capable)}."
    return None
