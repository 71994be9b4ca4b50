"""What a run measured: how much was done, what it took to recover, how long tasks waited."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from chaos.checker import calm_waits, inversions, lives
from chaos.evidence import Evidence, Spell

__all__ = ["measure"]

AROUND = 10.0
"""Seconds before and after a fault that it is compared with."""


def measure(evidence: Evidence) -> dict[str, Any]:
    """All figures, ready for JSON."""
    ends = sorted(run.end for runs in evidence.runs.values() for run in runs if run.end is not None)
    return {
        "tasks": len(evidence.tasks),
        "acknowledged": len(evidence.of("acknowledged")),
        "runs": sum(map(len, evidence.runs.values())),
        "states": dict(Counter(task.state for task in evidence.tasks.values())),
        "history": dict(Counter(entry.event for task in evidence.tasks.values() for entry in task.history)),
        "enqueues that were repeated": len(evidence.of("refused")),
        "fires of the schedule": sum(1 for task in evidence.tasks.values() if task.fire_time),
        "processes": len(evidence.of("started")),
        "faults": {kind: spells(evidence, kind, ends) for kind in sorted({each.kind for each in evidence.spells})},
        "recovery from a killed worker, s": summary(recoveries(evidence)),
        "probe in calm times, s": summary([waited for waited, _ in calm_waits(evidence)]),
        "longest inversion of order, s": round(
            max((seconds for *_, seconds in inversions(evidence, 0.0)), default=0.0), 3
        ),
    }


def spells(evidence: Evidence, kind: str, ends: Sequence[float]) -> dict[str, Any]:
    """Of one kind of fault: how many, runs that ended per second around them, and until the next one ended."""
    mine = [spell for spell in evidence.spells if spell.kind == kind]
    return {
        "times": len(mine),
        "ended per s before": mean(rate(ends, spell.begin - AROUND, spell.begin) for spell in mine),
        "during": mean(rate(ends, spell.begin, spell.end) for spell in mine),
        "after": mean(rate(ends, spell.end, spell.end + AROUND) for spell in mine),
        "until work goes on, s": summary([gap for spell in mine if (gap := until_next(ends, spell)) is not None]),
    }


def rate(ends: Sequence[float], begin: float, end: float) -> float:
    return (bisect_right(ends, end) - bisect_left(ends, begin)) / max(end - begin, 0.001)


def until_next(ends: Sequence[float], spell: Spell) -> float | None:
    """From the end of a fault to the next run that ended; 0 if one ended during the fault."""
    if rate(ends, spell.begin + 1.0, spell.end) > 0:
        return 0.0
    place = bisect_left(ends, spell.end)
    return ends[place] - spell.end if place < len(ends) else None


def recoveries(evidence: Evidence) -> list[float]:
    """Of each worker that was killed, and nothing else: until the last task that it ran had started again."""
    born_of = {who: begin for who, begin, _ in lives(evidence)}
    runs_of: dict[str, list[tuple[str, int, float, float | None]]] = defaultdict(list)
    for runs in evidence.runs.values():
        for run in runs:
            runs_of[run.who].append((run.task, run.lease, run.start, run.end))
    found = []
    for line in evidence.of("killed"):
        at, who = line["t"], line["process"]
        if who not in born_of or any(s.begin < at + AROUND and at < s.end for s in evidence.spells if s.kind != "kill"):
            continue
        waits = [
            again - at
            for task, lease, _, end in runs_of[who]
            if end is None and (again := next_start(evidence, task, lease)) is not None
        ]
        if waits:
            found.append(max(waits))
    return found


def next_start(evidence: Evidence, task: str, lease: int) -> float | None:
    return min((run.start for run in evidence.runs[task] if run.lease > lease), default=None)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Number, median, 99th percentile, maximum."""
    if not values:
        return {"n": 0}
    ordered = sorted(values)
    at_99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"n": len(ordered), "p50": round(median(ordered), 3), "p99": round(at_99, 3), "max": round(ordered[-1], 3)}


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return round(sum(found) / len(found), 1) if found else 0.0
