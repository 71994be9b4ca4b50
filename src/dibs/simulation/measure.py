"""The figures of a run: waits, backlog, utilisation, drain time. Durations are in seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil
from typing import TypeVar

from msgspec import Struct

from dibs.core.options import check_kind
from dibs.core.priority import NAMES
from dibs.core.times import SECOND, Duration, Instant
from dibs.simulation.overtaking import Overtaking, Turn, overtakings, turns
from dibs.simulation.run import Run

__all__ = ["PERCENTILES", "Report", "Waits", "label", "measure", "waits_of"]

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
STEPS = 60

Who = TypeVar("Who", int, str)


class Waits(Struct, frozen=True, kw_only=True):
    """Seconds from ready to start."""

    tasks: int
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Report(Struct, frozen=True, kw_only=True):
    """The figures of one run.

    `seconds` is from the first arrival to the end of the last task, `drain_seconds` the part of it after the last
    arrival, `slots_needed` the slots that the tasks would keep busy on average while they arrive. `backlog` is the
    most that waited at once in each of 60 equal steps of `seconds`. `by_tenant` is empty if tasks have no tenants.
    """

    tasks: int
    refused: int
    slots: int
    seconds: float
    drain_seconds: float
    utilisation: float
    slots_needed: float
    wait: Waits
    by_priority: dict[str, Waits]
    by_tenant: dict[str, Waits]
    overtaking: list[Overtaking]
    turns: list[Turn]
    backlog: list[int]

    @property
    def peak(self) -> int:
        """The most that waited at once."""
        return max(self.backlog)


def measure(run: Run) -> Report:
    """All figures of a run."""
    check_kind(run, "run", Run)
    arrivals, order = run.arrivals, run.order
    begins, ends = arrivals.begins, arrivals.ends
    finished = max((run.started[task] + arrivals.duration[task] for task in order), default=ends)
    span = max(1, finished - begins)
    waits = [run.started[task] - arrivals.ready[task] for task in order]
    priorities = grouped(waits, (arrivals.priority[task] for task in order))
    tenants = grouped(waits, (arrivals.tenant[task] for task in order))
    return Report(
        tasks=len(arrivals),
        refused=len(arrivals) - len(order),
        slots=run.slots,
        seconds=span / SECOND,
        drain_seconds=max(0, finished - ends) / SECOND,
        utilisation=sum(arrivals.duration[task] for task in order) / (run.slots * span),
        slots_needed=sum(arrivals.duration) / max(1, ends - begins),
        wait=waits_of(waits),
        by_priority={label(each): waits_of(priorities[each]) for each in sorted(priorities, reverse=True)},
        by_tenant={each: waits_of(tenants[each]) for each in busiest_first(tenants)} if any(tenants) else {},
        overtaking=overtakings(run),
        turns=turns(run) if run.settings.fair else [],
        backlog=backlog(run, begins, span),
    )


def label(priority: int) -> str:
    """A priority by its name, if it has one."""
    return next((name for name, number in NAMES.items() if number == priority), str(priority))


def grouped(waits: Sequence[Duration], whose: Iterable[Who]) -> dict[Who, list[Duration]]:
    groups: dict[Who, list[Duration]] = defaultdict(list)
    for wait, who in zip(waits, whose, strict=True):
        groups[who].append(wait)
    return groups


def busiest_first(tenants: dict[str, list[Duration]]) -> list[str]:
    return sorted(tenants, key=lambda tenant: (-len(tenants[tenant]), tenant))


def waits_of(waits: Iterable[Duration]) -> Waits:
    """Exact percentiles: the smallest wait that the given part of the tasks did not exceed."""
    values = sorted(waits)
    count = len(values)
    found = {name: values[ceil(part * count) - 1] / SECOND if values else 0.0 for name, part in PERCENTILES.items()}
    return Waits(tasks=count, **found)


def backlog(run: Run, begins: Instant, span: Duration) -> list[int]:
    """The most that waited at once in each of 60 equal steps; what starts on arrival never waited."""
    ready = sorted(run.arrivals.ready[task] for task in run.order)
    starts = [run.started[task] for task in run.order]
    edges = [begins + span * step // STEPS for step in range(STEPS)]
    highest = [bisect_right(ready, at) - bisect_right(starts, at) for at in edges]
    for count, at in enumerate(ready, 1):
        step = min((at - begins) * STEPS // span, STEPS - 1)
        highest[step] = max(highest[step], count - bisect_right(starts, at))
    return highest
