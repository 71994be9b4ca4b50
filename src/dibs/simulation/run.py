"""The event loop: tasks become ready, slots become free, tokens fall due; nothing happens in between."""

from __future__ import annotations

from heapq import heappop, heappush

from msgspec import Struct

from dibs.core.options import check_kind, check_number
from dibs.core.settings import QueueSettings
from dibs.core.times import END, Instant
from dibs.simulation.arrivals import Arrivals
from dibs.simulation.pending import NOT_STARTED, Pending

__all__ = ["Run", "simulate"]

MOST_SLOTS = 100_000_000


class Run(Struct, frozen=True):
    """What happened: when each task started (-1: refused by a full queue), and in which order."""

    arrivals: Arrivals
    settings: QueueSettings
    slots: int
    started: list[Instant]
    order: list[int]

    def was_refused(self, task: int) -> bool:
        return self.started[task] == NOT_STARTED


def simulate(arrivals: Arrivals, settings: QueueSettings, slots: int) -> Run:
    """Run the arrivals on `slots` slots; each claims as soon as it is free and something may start.

    At one instant, runs end first, then tasks arrive, then free slots claim.
    """
    check_kind(arrivals, "arrivals", Arrivals)
    check_kind(settings, "settings", QueueSettings)
    check_number(slots, "slots", 1, MOST_SLOTS)
    pending = Pending(arrivals, settings)
    coming = iter(arrivals.in_order())
    ready, duration = arrivals.ready, arrivals.duration
    order: list[int] = []
    ends: list[tuple[Instant, int]] = []
    free = slots
    task = next(coming, None)
    next_arrival = END if task is None else ready[task]
    wake = END
    while True:
        now = min(next_arrival, wake, ends[0][0] if ends else END)
        if now == END:
            return Run(arrivals, settings, slots, pending.started, order)
        while ends and ends[0][0] <= now:
            pending.end(heappop(ends)[1])
            free += 1
        while task is not None and next_arrival <= now:
            admit(pending, arrivals, settings, task)
            task = next(coming, None)
            next_arrival = END if task is None else ready[task]
        for started in pending.claim(free, now):
            order.append(started)
            heappush(ends, (now + duration[started], started))
            free -= 1
        refill_at = pending.refill_at(now) if free else None
        wake = END if refill_at is None else refill_at


def admit(pending: Pending, arrivals: Arrivals, settings: QueueSettings, task: int) -> None:
    """Add a task that is ready. If the queue is full, a new one is refused, a delayed one is not."""
    is_new = arrivals.created[task] == arrivals.ready[task]
    if is_new and settings.max_depth is not None and pending.count >= settings.max_depth:
        return
    pending.add(task)
