"""Looks for lost tasks, without taking any from workers that are alive.

Leases end by the store's clock, even while the store is frozen or can't be reached. So each look passes two instants:
what the store's clock showed at the look before (only leases that had ended by then are taken), and the latest that it
can show now (if it shows more, the call was delayed and takes nothing). After a stall, or a pause in which there may
have been one, other workers' leases are left alone until every living worker has had time to extend them. A newcomer
does the same, since it can't know what happened before; but it takes the tasks of workers whose process is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from dibs.core.humanize import format_duration
from dibs.core.states import State
from dibs.core.times import SECOND, Duration, Instant
from dibs.engines.values import LostTask, Rescued
from dibs.runtime.hub import Hub

__all__ = ["GAP", "HOLD_OFF", "MOST_LINES", "Rescue", "log_rescued"]

log = logging.getLogger("dibs.worker")

GAP = 2.5
"""An answer from the store that took longer than this many seconds counts as a stall: other workers may have waited as
long for theirs, and lost their leases."""

HOLD_OFF = 12.0
"""Seconds in which every living worker extends its leases once the store is back: a worker that noticed nothing beats
at least every 10 s, others try every 2.5 s and give up on an answer after 5."""

PAUSE = 1.2 + GAP
"""If more seconds than this are between two looks, there may have been a stall that neither noticed."""

TOLERANCE: Duration = 3 * SECOND // 2
"""How much later than expected a look may reach the store. More is a stall; less does no harm, since nothing is taken
that ended after the look before."""

NEVER: Instant = 0

MOST_LINES = 10
"""Lines in the log about the tasks of one look, and as many about workers."""


class Rescue:
    """The looks of one process. They are at least a second apart, unless there was more to take than one could."""

    def __init__(
        self,
        hub: Hub,
        newcomer: Duration | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`newcomer`: how long ago a lease must have ended to be taken at the very first look; None: no lease is."""
        self._hub = hub
        self._newcomer = newcomer
        self._monotonic = monotonic
        self._not_before = 0.0
        self._ended_by: Instant = NEVER
        self._seen: Instant = NEVER
        """What the store's clock showed at the last look; `_asked` is when that was sent, on the monotonic clock."""
        self._asked = 0.0
        self._knows_from = 0.0
        """Until then this process is a newcomer."""

    def holds_off(self, now: float) -> bool:
        """Whether others' leases are to be left alone for now."""
        return now < self._not_before

    def hold_off(self, since: float) -> None:
        """The store stood still, or was away, until then."""
        self.leave_alone(since + HOLD_OFF)

    def leave_alone(self, until: float) -> None:
        self._not_before = max(self._not_before, until)

    async def look(self) -> Rescued:
        """Take back what is lost; begin to hold off if there may have been a stall."""
        now = self._hub.clock.store_now()
        if now is not None:  # a clock that a test moves: nothing stalls there
            rescued = await self._hub.engine.rescue(now=now)
            log_rescued(rescued)
            return rescued
        if self._seen == NEVER:
            self._knows_from = self._monotonic() + HOLD_OFF
            rescued = await self._ask()
            if self._newcomer is None:
                return rescued
            self._ended_by = rescued.at - self._newcomer
        return await self._ask()

    async def _ask(self) -> Rescued:
        asked = self._monotonic()
        reckoned = self._seen + round((asked - self._asked) * SECOND)
        not_after = None if self._seen == NEVER else reckoned + TOLERANCE
        was_away = self._seen != NEVER and asked - max(self._asked, self._not_before) > PAUSE
        rescued = await self._hub.engine.rescue(ended_by=self._ended_by, not_after=not_after)
        answered = self._monotonic()
        log_rescued(rescued)
        if rescued.stalled or was_away or answered - asked > GAP:
            self.hold_off(answered)
        if asked >= self._knows_from and not rescued.more:  # otherwise the next look continues with the same, at once
            self._ended_by = rescued.at
        self._seen, self._asked = rescued.at, asked
        return rescued


def log_rescued(rescued: Rescued) -> None:
    """One line for each worker found dead and each task taken back, up to a number; dead tasks come first."""
    for worker in rescued.workers[:MOST_LINES]:
        log.warning("Worker %s is dead: it gives no sign of life.", worker, extra={"worker": worker})
    tell_rest("workers are dead", rescued.workers)
    tasks = sorted(rescued.lost, key=lambda task: task.state is not State.DEAD)
    for task in tasks[:MOST_LINES]:
        log_lost(task)
    tell_rest("tasks were taken back", tasks)


def tell_rest(what: str, found: list[str] | list[LostTask]) -> None:
    if len(found) > MOST_LINES:
        log.warning("And %d more %s.", len(found) - MOST_LINES, what)


def log_lost(task: LostTask) -> None:
    extra = {"task_id": task.id, "task_name": task.name, "queue": task.queue, "lease": task.lease}
    log.log(
        logging.ERROR if task.state is State.DEAD else logging.WARNING,
        "%s %s was taken back from %s, which stopped without settling it (loss %d): %s.",
        task.name,
        task.id,
        f"worker {task.worker}" if task.worker else "its worker",
        task.losses,
        future_of(task),
        extra={**extra, "worker": task.worker},
    )


def future_of(task: LostTask) -> str:
    if task.state in (State.DEAD, State.CANCELLED):
        return f"it is {task.state}"
    return f"again in {format_duration(task.due_in / SECOND)}" if task.due_in else "again at once"
