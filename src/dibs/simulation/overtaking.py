"""Which tasks overtook which, compared with the bounds of the policy.

Both measures are one pass over the starts in order. A task is overtaken by those that became ready later and started
earlier; of the tasks of one priority that have started, only the one that became ready last matters.
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
    """How long after a task of `priority` was ready new tasks of priority `by` still overtook it.

    `bound_seconds` is the queue's bound; None: there is none.
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
"""priority → the latest `ready` of its started tasks."""


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
    """Which tasks a task is compared with: those under the same limits and of the same share.

    The bound is about order. If a tenant waits for its turn, or a task for its limit, others go first for another
    reason. So in a fair queue only tasks of the same tenant count; and if the task has a limit of its own, only those
    of the same name and partition.
    """

    def __init__(self, run: Run) -> None:
        self._arrivals = run.arrivals
        self._settings = run.settings
        self._newest: dict[tuple[str, ...], Newest] = defaultdict(dict)
        self._is_simple = not (run.settings.fair or run.settings.per_task or run.settings.per_partition)
        self._all = (self._newest[()],)

    def of(self, task: int) -> tuple[Newest, ...]:
        """What has started in the task's own circle, then in a wider one that contains it."""
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
    """By tenant, the longest waits for a turn first."""
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
    """The published bound for each tenant; None if limits by name or partition can hold a tenant back."""
    if run.settings.per_task or run.settings.per_partition:
        return dict.fromkeys(tenants)
    by_stride: dict[int, int] = {}
    bounds: dict[str, int | None] = {}
    for tenant in tenants:  # tenants of one stride have the same bound, which is a sum over all others
        step = stride(run.settings, tenant)
        if step not in by_stride:
            by_stride[step] = most_before(run.settings, tenant, tenants)
        bounds[tenant] = by_stride[step]
    return bounds
