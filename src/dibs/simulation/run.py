"""The event loop: tasks become ready, slots come free, tokens fall due; in between nothing happens."""

from __future__ import annotations

from heapq import heappop, heappush

from msgspec import Struct

from dibs.core.options import check_kind, check_number
from dibs.core.settings import QueueSettings
from dibs.core.times import Instant
from dibs.simulation.arrivals import Arrivals
from dibs.simulation.waiting import NOT_STARTED, Waiting

__all__ = ["Run", "simulate"]

MOST_SLOTS = 100_000_000
NEVER: Instant = 2**62


class Run(Struct, frozen=True):
    """What happened: when each task started (-1: it was refused, the queue being full), and in which order."""

    arrivals: Arrivals
    settings: QueueSettings
    slots: int
    started: list[Instant]
    order: list[int]

    def was_refused(self, task: int) -> bool:
        return self.started[task] == NOT_STARTED


def simulate(arrivals: Arrivals, settings: QueueSettings, slots: int) -> Run:
    """Let `slots` slots work off the arrivals; each claims as soon as it is free and something may start.

    At an instant at which several things happen, runs end first, then tasks arrive, then free slots claim.
    """
    check_kind(arrivals, "arrivals", Arrivals)
    check_kind(settings, "settings", QueueSettings)
    check_number(slots, "slots", 1, MOST_SLOTS)
    waiting = Waiting(arrivals, settings)
    coming = iter(arrivals.in_order())
    ready, duration = arrivals.ready, arrivals.duration
    order: list[int] = []
    ends: list[tuple[Instant, int]] = []
    free = slots
    task = next(coming, None)
    next_arrival = NEVER if task is None else ready[task]
    wake = NEVER
    while True:
        now = min(next_arrival, wake, ends[0][0] if ends else NEVER)
        if now == NEVER:
            return Run(arrivals, settings, slots, waiting.started, order)
        while ends and ends[0][0] <= now:
            waiting.end(heappop(ends)[1])
            free += 1
        while task is not None and next_arrival <= now:
            admit(waiting, arrivals, settings, task)
            task = next(coming, None)
            next_arrival = NEVER if task is None else ready[task]
        while free and (started := waiting.take(now)) is not None:
            order.append(started)
            heappush(ends, (now + duration[started], started))
            free -= 1
        opens_at = waiting.opens_at(now) if free else None
        wake = NEVER if opens_at is None else opens_at


def admit(waiting: Waiting, arrivals: Arrivals, settings: QueueSettings, task: int) -> None:
    """A task is ready; one that is enqueued just now is refused if the queue is full, a delayed one never."""
    is_new = arrivals.created[task] == arrivals.ready[task]
    if is_new and settings.max_depth is not None and waiting.count >= settings.max_depth:
        return
    waiting.add(task)
