"""Which tasks arrive when: one column per fact, so that a million tasks are cheap."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from msgspec import Struct

from dibs.core.task import TaskRecord
from dibs.core.times import Duration, Instant


class Arrivals(Struct, kw_only=True):
    """Tasks in the order of their ids: task n is row n of every column.

    `created` is when it is enqueued, `ready` when it can first run (later, if it is delayed), `duration` how long it
    keeps a slot.
    """

    created: list[Instant]
    ready: list[Instant]
    priority: list[int]
    duration: list[Duration]
    tenant: list[str]
    name: list[str]
    partition: list[str | None]
    deadline: list[Instant | None]

    def __len__(self) -> int:
        return len(self.ready)

    def in_order(self) -> list[int]:
        """The tasks as they become ready, those of the same instant by id."""
        return sorted(range(len(self.ready)), key=self.ready.__getitem__)

    @property
    def begins(self) -> Instant:
        """When the first task is ready."""
        return min(self.ready, default=0)

    @property
    def ends(self) -> Instant:
        """When the last task is ready."""
        return max(self.ready, default=0)


class Recording(Struct, frozen=True):
    """Arrivals of tasks that have completed, how long these waited, and how many had failed before."""

    arrivals: Arrivals
    waits: list[Duration]
    retried: int


def recorded(records: Iterable[TaskRecord]) -> Recording:
    """What a queue has seen, each task with the duration of its last run.

    For a task that was retried, `ready` is as in the store: its last due time, less what it had waited before.
    """
    rows = []
    waits, retried = [], 0
    for record in records:  # read page by page; only a few facts are kept
        ready, started, finished = record.ready_at, record.started_at, record.finished_at
        if ready is None or started is None or finished is None:
            continue
        waits.append(started - ready)
        retried += record.attempts + record.losses > 0
        times = (record.id, min(record.created_at, ready), ready, record.urgency, finished - started)
        rows.append((*times, record.spec.tenant, record.name, record.spec.partition, record.spec.deadline))
    rows.sort(key=itemgetter(0))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(9)]
    arrivals = Arrivals(**dict(zip(Arrivals.__struct_fields__, columns[1:], strict=True)))
    return Recording(arrivals, waits, retried)


def squeezed(arrivals: Arrivals, load: float) -> Arrivals:
    """The same tasks in 1/`load` of the time: `load` times as many per second."""
    begins = min(arrivals.created, default=0)

    def sooner(at: Instant) -> Instant:
        return begins + round((at - begins) / load)

    # A deadline keeps its distance from its task: it is about that task, not about the traffic.
    ready = [sooner(at) for at in arrivals.ready]
    rows = zip(arrivals.deadline, arrivals.ready, ready, strict=True)
    return Arrivals(
        created=[sooner(at) for at in arrivals.created],
        ready=ready,
        priority=arrivals.priority,
        duration=arrivals.duration,
        tenant=arrivals.tenant,
        name=arrivals.name,
        partition=arrivals.partition,
        deadline=[None if due is None else due - was + now for due, was, now in rows],
    )
