"""`app.stats`: what a queue did over a window of time, from the per-minute records of its workers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from dibs.core.histogram import Histogram, mean, merge, percentile
from dibs.core.options import shown
from dibs.core.settings import Tier
from dibs.core.states import State
from dibs.core.task import WorkerState
from dibs.core.times import DAY, MINUTE, SECOND, Duration, Instant, duration
from dibs.engines.base import Engine
from dibs.engines.values import Counter, Minute
from dibs.errors import InvalidOption

__all__ = ["LONGEST", "Percentiles", "Point", "QueueStats", "check_window", "read_stats"]

LONGEST: Duration = 7 * DAY
"""The longest window: the leading worker deletes what is older, and each minute of a window is a point of a series."""

SAMPLE = 1000
"""Pending tasks, in claim order, that are searched for the oldest."""


class Percentiles(Struct, frozen=True):
    """Seconds; None where nothing was counted. Within 10 %: they come from logarithmic buckets."""

    count: int
    average: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class Point(Struct, frozen=True):
    """One minute."""

    at: datetime
    completed: int
    failed: int
    dead: int
    cancelled: int
    wait: Percentiles
    run: Percentiles


class QueueStats(Struct, frozen=True, kw_only=True):
    """One queue, or all of them when `queue` is None, over the last `window` seconds."""

    queue: str | None
    window: float
    counts: dict[State, int]
    wait: Percentiles
    run: Percentiles
    wait_by_tier: dict[str, Percentiles]
    completed: int
    failed: int
    dead: int
    cancelled: int
    throughput_per_second: float
    error_rate: float
    oldest_pending_seconds: float | None
    workers_active: int
    desired_slots: int
    counters: dict[str, int]
    series: list[Point]


def check_window(window: object) -> Duration:
    """How far back to look: at most as long as statistics are kept."""
    span = duration(window, "window")
    if span > LONGEST:
        raise InvalidOption(
            f"window must be at most {LONGEST // DAY} days, for which figures are kept, not {shown(window)}."
        )
    return max(span, 1)


def percentiles(histograms: Iterable[Histogram]) -> Percentiles:
    total: Histogram = {}
    for histogram in histograms:
        merge(total, histogram)

    def share(part: float) -> float | None:
        value = percentile(total, part)
        return None if value is None else value / SECOND

    average = mean(total)
    return Percentiles(
        sum(total.values()), None if average is None else average / SECOND, share(0.5), share(0.95), share(0.99)
    )


async def read_stats(engine: Engine, queue: str | None, window: Duration, now: Instant) -> QueueStats:
    """The statistics of a queue."""
    until = now // MINUTE
    since = (now - window) // MINUTE
    minutes = await engine.stats(queue, since, until)
    counted = await engine.counts()
    counts = add_counts(counted.tasks, queue)
    ends = totals(minutes)
    run = percentiles(m.run for m in minutes)
    runs = ends["completed"] + ends["failed"]
    by_minute: defaultdict[int, list[Minute]] = defaultdict(list)
    for m in minutes:
        by_minute[m.minute].append(m)
    seconds = window / SECOND
    return QueueStats(
        queue=queue,
        window=seconds,
        counts=counts,
        wait=percentiles(m.wait for m in minutes),
        run=run,
        wait_by_tier={tier: percentiles(m.wait for m in minutes if m.tier == tier) for tier in Tier},
        **ends,
        throughput_per_second=ends["completed"] / seconds,
        error_rate=ends["failed"] / runs if runs else 0.0,
        oldest_pending_seconds=await oldest_pending(engine, queue, now),
        workers_active=await workers_active(engine, queue),
        desired_slots=desired_slots(runs / seconds, counts[State.PENDING], run.average),
        counters=add_counters(counted.counters, queue),
        series=[point(minute, by_minute[minute]) for minute in range(since, until + 1)],
    )


def point(minute: int, minutes: list[Minute]) -> Point:
    return Point(
        datetime.fromtimestamp(minute * 60, UTC),
        **totals(minutes),
        wait=percentiles(m.wait for m in minutes),
        run=percentiles(m.run for m in minutes),
    )


def totals(minutes: list[Minute]) -> dict[str, int]:
    """How many runs ended, by how they ended."""
    names = ("completed", "failed", "dead", "cancelled")
    return {name: sum(getattr(m, name) for m in minutes) for name in names}


def add_counts(counts: dict[str, dict[State, int]], queue: str | None) -> dict[State, int]:
    chosen = [each for name, each in counts.items() if queue is None or name == queue]
    return {state: sum(each[state] for each in chosen) for state in State}


def add_counters(counters: dict[str, dict[Counter, int]], queue: str | None) -> dict[str, int]:
    chosen = [each for name, each in counters.items() if queue is None or name == queue]
    return {str(counter): sum(each.get(counter, 0) for each in chosen) for counter in Counter}


async def oldest_pending(engine: Engine, queue: str | None, now: Instant) -> float | None:
    """The longest wait among the next tasks: ageing brings the oldest to the front."""
    names = [queue] if queue is not None else [record.name for record in await engine.queues()]
    ready = [task.ready_at or now for name in names for task in (await engine.peek(name, SAMPLE, now=now)).tasks]
    return max(0, now - min(ready)) / SECOND if ready else None


async def workers_active(engine: Engine, queue: str | None) -> int:
    active = [worker for worker in await engine.workers() if worker.state is WorkerState.ACTIVE]
    return sum(queue is None or queue in worker.queues for worker in active)


def desired_slots(arrivals_per_second: float, pending: int, average_run: float | None) -> int:
    """Slots that keep up with the arrivals and clear the backlog within a minute."""
    if average_run is None:
        return 0
    return math.ceil((arrivals_per_second + pending / 60) * average_run)
