"""The figures of the whole store, as samples: what a server shows, whichever of its workers did it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from dibs.core.histogram import Histogram, merge
from dibs.core.states import State
from dibs.core.task import QueueRecord, WorkerState
from dibs.core.times import MINUTE, SECOND, Instant
from dibs.engines.figures import Backlog, Counter, Counts, KindCounts, Minute
from dibs.engines.values import About, WorkerRecord
from dibs.errors import DibsError
from dibs.observe import metrics
from dibs.observe.distribution import distribution_of
from dibs.observe.metrics import Metric, Sample
from dibs.runtime.hub import Hub

__all__ = ["Durations", "StoreFigures"]

Answer = TypeVar("Answer")

FRESH = 1.0
"""Seconds for which figures are shown again without asking the store, however many ask."""

PATIENCE = 5.0
"""Seconds after which a store that does not answer counts as away: scrapers stop waiting after ten."""

SETTLED = 3
"""Minutes after which a minute is taken as final. Workers report theirs every second, but may be cut off for long."""

LONGEST_LOOK = 60
"""Minutes that are read at most after a pause between two scrapes."""

BY_KIND: tuple[tuple[Metric, Counter], ...] = (
    (metrics.TASKS_ENQUEUED, Counter.ENQUEUED),
    (metrics.TASKS_CLAIMED, Counter.CLAIMED),
    (metrics.TASKS_REPLAYED, Counter.REPLAYED),
    (metrics.WRITES_REFUSED, Counter.REFUSED),
)
BY_REASON: tuple[tuple[Metric, Counter, str], ...] = (
    (metrics.TASKS_DEAD, Counter.DEAD_EXHAUSTED, "exhausted"),
    (metrics.TASKS_DEAD, Counter.DEAD_PERMANENT, "permanent"),
    (metrics.TASKS_DEAD, Counter.DEAD_LOST, "lost"),
    (metrics.TASKS_DEAD, Counter.DEAD_DEPENDENCY, "dependency"),
    (metrics.TASKS_DEAD, Counter.DEAD_QUEUE, "queue"),
    (metrics.TASKS_CANCELLED, Counter.CANCELLED_USER, "user"),
    (metrics.TASKS_CANCELLED, Counter.CANCELLED_EXPIRED, "expired"),
    (metrics.TASKS_CANCELLED, Counter.CANCELLED_DEPENDENCY, "dependency"),
    (metrics.TASK_FAILURES, Counter.TIMEOUTS, "timeout"),
    (metrics.TASK_FAILURES, Counter.LOSSES, "lost"),
    (metrics.TASK_RETRIES, Counter.TIMEOUT_RETRIES, "timeout"),
    (metrics.TASK_RETRIES, Counter.LOSSES, "lost"),
    (metrics.TASK_RETRIES, Counter.RELEASES, "released"),
    (metrics.TASK_RETRIES, Counter.SNOOZES, "snoozed"),
)
DEATHS = tuple(counter for metric, counter, _ in BY_REASON if metric is metrics.TASKS_DEAD)
CANCELLATIONS = tuple(counter for metric, counter, _ in BY_REASON if metric is metrics.TASKS_CANCELLED)
PROMOTIONS = ((Counter.PROMOTED_MEDIUM, "low", "medium"), (Counter.PROMOTED_HIGH, "medium", "high"))
REFUSALS = ((Counter.REJECTED, "full"), (Counter.LIMITED, "rate"))


class StoreFigures:
    """Reads the figures of a store, at most once a second."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._durations = Durations(hub.clock.now() // MINUTE)
        self._known: list[Sample] = []
        self._read_at = float("-inf")
        self._reading: asyncio.Future[None] | None = None

    async def samples(self) -> list[Sample]:
        """What the store knows; if it does not answer, only that it does not."""
        if time.monotonic() - self._read_at > FRESH:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(self._hub.runner.arun(self._read()))
            await asyncio.shield(self._reading)
        return self._known

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self._ask()
            self._known = [Sample(metrics.STORE_UP, (), 1), *found]
        except (DibsError, TimeoutError):
            self._known = [Sample(metrics.STORE_UP, (), 0)]
        finally:
            self._read_at = time.monotonic()

    async def _ask(self) -> list[Sample]:
        hub, engine = self._hub, self._hub.engine
        now = hub.clock.now()
        counts = await engine.counts()
        backlog = await engine.backlog(now=hub.clock.store_now())
        await self._durations.read(engine.stats, now // MINUTE)
        workers = await engine.workers()
        queues = await engine.queues()
        about = await engine.about()
        return [
            *of_kinds(counts),
            *of_queues(counts, queues),
            *of_backlog(backlog, now),
            *of_workers(workers),
            *of_store(about, now),
            *self._durations.samples(),
        ]


def of_kinds(counts: Counts) -> Iterator[Sample]:
    """What is counted by queue, task name and tier."""
    for kind in counts.kinds:
        labels = (kind.queue, kind.name, str(kind.tier))
        for metric, counter in BY_KIND:
            yield Sample(metric, labels, kind.counters.get(counter, 0))
        for metric, counter, reason in BY_REASON:
            yield Sample(metric, (*labels, reason), kind.counters.get(counter, 0))
        yield from of_runs(kind, labels)
        for counter, before, after in PROMOTIONS:
            if kind.counters.get(counter):
                yield Sample(metrics.TASKS_PROMOTED, (kind.queue, kind.name, before, after), kind.counters[counter])
        for state in State:
            yield Sample(metrics.TASKS, (*labels, state), kind.states.get(state, 0))


def of_runs(kind: KindCounts, labels: tuple[str, ...]) -> Iterator[Sample]:
    """How runs and tasks have ended. Timeouts are counted among failures as well."""
    counted = kind.counters
    errors = counted.get(Counter.FAILURES, 0) - counted.get(Counter.TIMEOUTS, 0)
    again = counted.get(Counter.RETRIES, 0) - counted.get(Counter.TIMEOUT_RETRIES, 0)
    yield Sample(metrics.TASK_FAILURES, (*labels, "error"), errors)
    yield Sample(metrics.TASK_RETRIES, (*labels, "error"), again)
    ends = {
        State.COMPLETED: counted.get(Counter.COMPLETIONS, 0),
        State.DEAD: sum(counted.get(each, 0) for each in DEATHS),
        State.CANCELLED: sum(counted.get(each, 0) for each in CANCELLATIONS),
    }
    for state, number in ends.items():
        yield Sample(metrics.TASKS_ENDED, (*labels, state), number)


def of_queues(counts: Counts, queues: list[QueueRecord]) -> Iterator[Sample]:
    for queue, counted in counts.counters.items():
        for counter, reason in REFUSALS:
            yield Sample(metrics.ENQUEUES_REFUSED, (queue, reason), counted.get(counter, 0))
        yield Sample(metrics.ENQUEUES_DUPLICATE, (queue,), counted.get(Counter.DUPLICATES, 0))
    for queue, errors in counts.errors.items():
        for error_type, number in errors.items():
            yield Sample(metrics.TASK_ERRORS, (queue, error_type), number)
    for record in queues:
        yield Sample(metrics.QUEUE_STATE, (record.name, record.state), 1)
        if record.settings.max_depth is not None:
            yield Sample(metrics.QUEUE_LIMIT, (record.name,), record.settings.max_depth)


def of_backlog(backlog: list[Backlog], now: Instant) -> Iterator[Sample]:
    for each in backlog:
        if each.oldest is not None:
            waited = max(0, now - each.oldest) / SECOND
            yield Sample(metrics.OLDEST_PENDING, (each.queue, str(each.tier)), waited)


def of_workers(workers: list[WorkerRecord]) -> Iterator[Sample]:
    for state in WorkerState:
        yield Sample(metrics.WORKERS, (state,), sum(worker.state is state for worker in workers))
    living = [worker for worker in workers if worker.state is not WorkerState.DEAD]
    yield Sample(metrics.SLOTS, (), sum(worker.concurrency for worker in living))
    yield Sample(metrics.SLOTS_BUSY, (), sum(worker.running for worker in living))
    active = [worker for worker in living if worker.state is WorkerState.ACTIVE]
    for queue in sorted({queue for worker in workers for queue in worker.queues}):
        yield Sample(metrics.QUEUE_WORKERS, (queue,), sum(queue in worker.queues for worker in active))


def of_store(about: About, now: Instant) -> Iterator[Sample]:
    for chore in about.chores:
        if chore.at:
            yield Sample(metrics.CHORE_AGE, (chore.name,), max(0, now - chore.at) / SECOND)
            yield Sample(metrics.CHORE_DURATION, (chore.name,), chore.took / SECOND)
        behind = max(0, now - chore.behind_since) / SECOND if chore.behind_since else 0
        yield Sample(metrics.CHORE_BEHIND, (chore.name,), behind)
    if about.evicted is not None:
        yield Sample(metrics.EVICTED, (), about.evicted)


Key = tuple[str, str]
"""Queue and tier."""


class Durations:
    """Waits and runs since a minute, added up from what workers report of each minute.

    A worker reports a minute whole and repeats it while it changes. So the last minutes are read again each time, and
    those before them once.
    """

    def __init__(self, since: int) -> None:
        self._next = since
        """The first minute that is not final yet."""
        self._final: dict[Key, tuple[Histogram, Histogram]] = {}
        self._recent: dict[Key, tuple[Histogram, Histogram]] = {}

    async def read(self, stats: Callable[[str | None, int, int], Awaitable[list[Minute]]], now: int) -> None:
        """Read the minutes since the last final one, up to `now`."""
        self._next = max(self._next, now - LONGEST_LOOK)
        minutes = await stats(None, self._next, now)
        final_until = now - SETTLED
        self._recent = {}
        for minute in minutes:
            add_minute(self._final if minute.minute < final_until else self._recent, minute)
        self._next = max(self._next, final_until)

    def samples(self) -> Iterator[Sample]:
        for key in sorted({*self._final, *self._recent}):
            wait, run = Histogram(), Histogram()
            for part in (self._final, self._recent):
                if key in part:
                    merge(wait, part[key][0])
                    merge(run, part[key][1])
            yield Sample(metrics.TASK_WAIT, key, distribution_of(wait))
            yield Sample(metrics.TASK_RUN, key, distribution_of(run))


def add_minute(into: dict[Key, tuple[Histogram, Histogram]], minute: Minute) -> None:
    wait, run = into.setdefault((minute.queue, minute.tier), ({}, {}))
    merge(wait, minute.wait)
    merge(run, minute.run)
