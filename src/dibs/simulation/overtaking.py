"""Who went before whom, beside what the policy promises.

Both measures are one pass over the starts in order. A task is overtaken by those that became ready later and started
earlier; of the tasks of one priority that have started, only the one that became ready last can matter to it.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from dibs.core.fairness import most_before, stride
from dibs.core.priority import overtaking
from dibs.core.settings import Policy
from dibs.core.times import SECOND, Duration, Instant
from dibs.simulation.run import Run

__all__ = ["Overtaking", "Turn", "overtakings", "turns"]


class Overtaking(Struct, frozen=True, kw_only=True):
    """For how long after it was ready tasks of priority `by` still came and went before one of `priority`.

    `bound_seconds` is what the queue promises; None: nothing.
    """

    priority: int
    by: int
    worst_seconds: float
    bound_seconds: float | None


class Turn(Struct, frozen=True, kw_only=True):
    """The most starts of other tenants between two turns of this one while it had something waiting."""

    tenant: str
    most_before: int
    bound: int | None


Newest = dict[int, Instant]
"""priority → when the last of its started tasks had become ready."""


def overtakings(run: Run) -> list[Overtaking]:
    """The worst by pair of priorities, the most overtaken first."""
    ready, priority = run.arrivals.ready, run.arrivals.priority
    circles = Circles(run)
    worst: dict[tuple[int, int], Duration] = defaultdict(int)
    for task in run.order:
        at, mine = ready[task], priority[task]
        around = circles.of(task)
        for other, last in around[0].items():
            if last - at > worst[mine, other]:
                worst[mine, other] = last - at
        for newest in around:
            if at > newest.get(mine, at - 1):
                newest[mine] = at
    boost = boost_of(run)
    found = sorted(worst.items(), key=lambda each: -each[1])
    return [as_overtaking(run, *pair, span, boost) for pair, span in found if span]


def boost_of(run: Run) -> int:
    """What deadlines can add to a priority here."""
    has_deadlines = run.settings.policy is Policy.AGING and any(each is not None for each in run.arrivals.deadline)
    return run.settings.deadline_weight if has_deadlines else 0


class Circles:
    """Whom a task is compared with: those that had to pass the same as it.

    The promise is about order. Where a tenant waits for its turn, or a task for its limit, others go first for another
    reason. So these are the tasks of its tenant, if the queue is fair; and if it is under a limit of its own, only
    those of the same name and partition.
    """

    def __init__(self, run: Run) -> None:
        self._arrivals = run.arrivals
        self._settings = run.settings
        self._newest: dict[tuple[str, ...], Newest] = defaultdict(dict)
        self._is_simple = not (run.settings.fair or run.settings.per_task or run.settings.per_partition)
        self._all = (self._newest[()],)

    def of(self, task: int) -> tuple[Newest, ...]:
        """What has started of the task's own circle, then of a wider one that it belongs to."""
        if self._is_simple:
            return self._all
        arrivals, settings = self._arrivals, self._settings
        tenant = arrivals.tenant[task] if settings.fair else ""
        name = arrivals.name[task] if arrivals.name[task] in settings.per_task else ""
        partition = arrivals.partition[task] if settings.per_partition else None
        wide = self._newest[tenant,]
        return (wide,) if not name and partition is None else (self._newest[tenant, name, repr(partition)], wide)


def as_overtaking(run: Run, mine: int, other: int, span: Duration, boost: int) -> Overtaking:
    bound = overtaking(run.settings, mine, other, boost)
    return Overtaking(
        priority=mine,
        by=other,
        worst_seconds=span / SECOND,
        bound_seconds=None if bound is None else bound / SECOND,
    )


def turns(run: Run) -> list[Turn]:
    """By tenant, those that waited longest for their turn first."""
    ready, tenant = run.arrivals.ready, run.arrivals.tenant
    coming = iter([task for task in run.arrivals.in_order() if not run.was_refused(task)])
    task = next(coming, None)
    waiting: dict[str, int] = defaultdict(int)
    since: dict[str, int] = {}
    worst: dict[str, int] = {}
    for starts, starting in enumerate(run.order):
        while task is not None and ready[task] <= run.started[starting]:
            if not waiting[tenant[task]]:
                since[tenant[task]] = starts
            waiting[tenant[task]] += 1
            task = next(coming, None)
        mine = tenant[starting]
        worst[mine] = max(worst.get(mine, 0), starts - since[mine])
        waiting[mine] -= 1
        since[mine] = starts + 1
    bounds = turn_bounds(run, list(worst))
    order = sorted(worst, key=lambda each: (-worst[each], each))
    return [Turn(tenant=each, most_before=worst[each], bound=bounds[each]) for each in order]


def turn_bounds(run: Run, tenants: list[str]) -> dict[str, int | None]:
    """The published bound for each tenant. Limits by name or partition can hold a tenant back; then there is none."""
    if run.settings.per_task or run.settings.per_partition:
        return dict.fromkeys(tenants)
    by_stride: dict[int, int] = {}
    bounds: dict[str, int | None] = {}
    for tenant in tenants:  # tenants of one stride have the same bound, and each costs a look at all others
        step = stride(run.settings, tenant)
        if step not in by_stride:
            by_stride[step] = most_before(run.settings, tenant, tenants)
        bounds[tenant] = by_stride[step]
    return bounds
