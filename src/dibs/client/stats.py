"""`app.stats`: what is in a queue now, what it did over a window of time, and its totals since the store was made."""

from __future__ import annotations

import math
from collections import Counter as Totals
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from dibs.client.info import unreadable_task
from dibs.client.series import LONGEST, Percentiles, percentiles_of, totals
from dibs.client.tasks import read_task
from dibs.core.options import shown
from dibs.core.settings import Tier
from dibs.core.states import State
from dibs.core.task import WorkerState
from dibs.core.times import DAY, MINUTE, SECOND, Duration, Instant, duration, when
from dibs.engines.base import Engine
from dibs.engines.figures import Backlog, Counter, Counts, KindCounts, Minute
from dibs.errors import InvalidOption
from dibs.runtime.hub import Hub

__all__ = ["QueueStats", "check_window", "read_ages", "read_position", "read_stats"]

DEAD, CANCELLED, PROMOTED = "dead_", "cancelled_", "promoted_"
"""How the names of counters begin that are told apart by a reason, or a tier."""


class QueueStats(Struct, frozen=True, kw_only=True):
    """One queue, or all of them when `queue` is None.

    `completed`, `failed`, `dead`, `cancelled`, `wait` and `run` are about runs that ended in the last `window` seconds,
    as their workers have reported them. Rates refer to the part of the window since the first minute in which something
    ended. `counters` and what follows them are exact totals since the store was made.
    """

    queue: str | None
    """None: all queues."""
    window: float
    """Seconds."""
    counts: dict[State, int]
    """Tasks by state, now."""
    priority_distribution: dict[str, int]
    """Pending tasks by the tier that they were submitted with."""
    oldest_pending_seconds: float | None
    """How long the oldest pending task has waited."""
    oldest_by_tier: dict[str, float | None]
    """The same of each tier."""
    wait: Percentiles
    """Seconds from ready to claimed."""
    run: Percentiles
    """Seconds from claimed to ended."""
    wait_by_tier: dict[str, Percentiles]
    """The same of each tier."""
    completed: int
    """Tasks that completed."""
    failed: int
    """Attempts that failed."""
    dead: int
    """Tasks that died."""
    cancelled: int
    """Tasks that were cancelled."""
    throughput_per_second: float
    """Completed tasks."""
    error_rate: float
    """Failed runs among all that ended, 0 to 1."""
    workers_active: int
    """Workers that serve it."""
    desired_slots: int
    """Slots that would keep up with what comes in."""
    counters: dict[str, int]
    """By name."""
    deaths: dict[str, int]
    """By reason."""
    cancellations: dict[str, int]
    """By reason."""
    promotions: dict[str, int]
    """By the tier to which tasks came by waiting."""
    by_tier: dict[str, dict[str, int]]
    """Tasks by state, and counters."""
    by_name: dict[str, dict[str, int]]
    """The same of each task name."""
    errors: dict[str, int]
    """Failed attempts by type of error."""

    @property
    def limited(self) -> int:
        """Tasks that were refused because their client enqueued too fast."""
        return self.counters[Counter.LIMITED]


def check_window(window: object) -> Duration:
    """How far back to look: at most as long as statistics are kept."""
    span = duration(window, "window")
    if span > LONGEST:
        raise InvalidOption(
            f"window must be at most {LONGEST // DAY} days, for which figures are kept, not {shown(window)}."
        )
    return max(span, 1)


async def read_stats(engine: Engine, queue: str | None, window: Duration, now: Instant) -> QueueStats:
    """The statistics of a queue. No task is read."""
    minutes = await read_minutes(engine, queue, window, now)
    counted = await engine.counts()
    waiting = [each for each in await engine.backlog() if queue in (None, each.queue)]
    counts, counters = add_counts(counted, queue), add_counters(counted, queue)
    kinds = [kind for kind in counted.kinds if queue in (None, kind.queue)]
    ended, seconds = totals(minutes), covered(minutes, now)
    run = percentiles_of(ended.run)
    runs = ended.ends["completed"] + ended.ends["failed"]
    oldest = {str(tier): waited([each for each in waiting if each.tier is tier], now) for tier in Tier}
    return QueueStats(
        queue=queue,
        window=window / SECOND,
        counts=counts,
        priority_distribution={tier: sum(each.pending for each in waiting if each.tier == tier) for tier in Tier},
        oldest_pending_seconds=waited(waiting, now),
        oldest_by_tier=oldest,
        wait=percentiles_of(ended.wait),
        run=run,
        wait_by_tier={tier: percentiles_of(totals(m for m in minutes if m.tier == tier).wait) for tier in Tier},
        **ended.ends,
        throughput_per_second=ended.ends["completed"] / seconds,
        error_rate=ended.ends["failed"] / runs if runs else 0.0,
        workers_active=await workers_active(engine, queue),
        desired_slots=desired_slots(runs / seconds, counts[State.PENDING], run.average),
        counters=counters,
        deaths=named(counters, DEAD),
        cancellations=named(counters, CANCELLED),
        promotions=named(counters, PROMOTED),
        by_tier={tier: add_kinds(kind for kind in kinds if kind.tier == tier) for tier in Tier},
        by_name={name: add_kinds(k for k in kinds if k.name == name) for name in sorted({k.name for k in kinds})},
        errors=add_errors(counted, queue),
    )


async def read_rate(engine: Engine, queue: str, window: Duration, now: Instant) -> float:
    """How many tasks of a queue complete per second."""
    minutes = await read_minutes(engine, queue, window, now)
    return sum(minute.completed for minute in minutes) / covered(minutes, now)


async def read_position(hub: Hub, task_id: str) -> tuple[int, datetime | None]:
    """How many tasks are ahead of a pending one, and when it should start."""
    info = await read_task(hub, task_id)
    if info.unreadable is not None:
        raise unreadable_task(info.id, info.unreadable)
    position = (await hub.engine.peek(info.queue, 0, until=info.id, now=hub.clock.store_now())).position
    if position is None:
        return 0, info.due_at or info.started_at
    now = hub.clock.now()
    rate = await read_rate(hub.engine, info.queue, 5 * MINUTE, now)
    return position.ahead, when(now + round(position.ahead / rate * SECOND)) if rate else None


async def read_ages(engine: Engine, now: Instant) -> dict[str, float]:
    """How long the oldest pending task of each queue that has some has waited, in seconds."""
    waiting = await engine.backlog()
    ages = {
        queue: waited([each for each in waiting if each.queue == queue], now) for queue in {b.queue for b in waiting}
    }
    return {queue: age for queue, age in ages.items() if age is not None}


async def read_minutes(engine: Engine, queue: str | None, window: Duration, now: Instant) -> list[Minute]:
    return await engine.stats(queue, (now - window) // MINUTE, now // MINUTE)


def covered(minutes: Sequence[Minute], now: Instant) -> float:
    """The seconds since the first of these minutes began, which are in order: what rates refer to.

    A store or a worker that is younger than the window would seem to have done next to nothing otherwise.
    """
    first = minutes[0].minute * MINUTE if minutes else now
    return max(now - first, MINUTE) / SECOND


def waited(waiting: Iterable[Backlog], now: Instant) -> float | None:
    """For how long the oldest of these tasks has waited, in seconds."""
    ready = [each.oldest for each in waiting if each.oldest is not None]
    return max(0, now - min(ready)) / SECOND if ready else None


def add_counts(counts: Counts, queue: str | None) -> dict[State, int]:
    chosen = [each for name, each in counts.tasks.items() if queue in (None, name)]
    return {state: sum(each[state] for each in chosen) for state in State}


def add_counters(counts: Counts, queue: str | None) -> dict[str, int]:
    chosen = [each for name, each in counts.counters.items() if queue in (None, name)]
    return {str(counter): sum(each.get(counter, 0) for each in chosen) for counter in Counter}


def add_errors(counts: Counts, queue: str | None) -> dict[str, int]:
    found: Totals[str] = Totals()
    for name, errors in counts.errors.items():
        if queue in (None, name):
            found.update(errors)
    return dict(found.most_common())


def add_kinds(kinds: Iterable[KindCounts]) -> dict[str, int]:
    """Tasks by state and counters, without zeros."""
    found: Totals[str] = Totals()
    for kind in kinds:
        found.update({str(state): n for state, n in kind.states.items()})
        found.update({str(counter): n for counter, n in kind.counters.items()})
    return dict(found)


def named(counters: Mapping[str, int], beginning: str) -> dict[str, int]:
    return {name.removeprefix(beginning): n for name, n in counters.items() if name.startswith(beginning)}


async def workers_active(engine: Engine, queue: str | None) -> int:
    active = [worker for worker in await engine.workers() if worker.state is WorkerState.ACTIVE]
    return sum(queue is None or queue in worker.queues for worker in active)


def desired_slots(arrivals_per_second: float, pending: int, average_run: float | None) -> int:
    """Slots that keep up with the arrivals and clear the backlog within a minute."""
    if average_run is None:
        return 0
    return math.ceil((arrivals_per_second + pending / 60) * average_run)
