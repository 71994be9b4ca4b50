"""Stops runs: cancelled, timed out, lease lost, or handed back because the worker leaves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from dibs.attempt import outcome
from dibs.core.task import Settlement
from dibs.core.times import SECOND
from dibs.worker.run import Run, Stop
from dibs.worker.run_log import extra_of
from dibs.worker.settler import Settler
from dibs.worker.slots import Slots

__all__ = ["GRACE", "Stopper", "settlement_of"]

log = logging.getLogger("dibs.worker")

GRACE = 1.0
"""Seconds that a coroutine has to end after it was cancelled; then its run is settled without it."""

LOST_GRACE = 60.0
"""Seconds that a run without a timeout has to end after its lease was lost, before its slot counts as stuck. Most often
it is a thread, which can only be told to stop, and it did nothing wrong."""


class Stopper:
    """Stops runs as far as their executors allow, and settles those that go on without waiting for them."""

    def __init__(self, slots: Slots, settler: Settler, changed: Callable[[], None]) -> None:
        """`changed` is called when a stopped run goes on, so that its slot is stuck."""
        self._slots = slots
        self._settler = settler
        self._changed = changed
        self._loop = asyncio.get_running_loop()

    def stop(self, run: Run, why: Stop, note: str = "") -> None:
        """Stop a run now; on the loop's thread. Only the first reason counts."""
        if run.settled or run.returned or (run.stop is not None and run.stop is not why):
            return
        run.stop, run.stop_note = why, note
        if run.started is None:
            if self._slots.buffer.drop(run):
                self._settler.settle(run, settlement_of(run))
            return
        assert run.handle is not None
        # A coroutine that was cancelled before its first step would never run, and never give back its slot.
        if run.entered and (not run.in_thread or why is Stop.TIMED_OUT or why is Stop.LOST):
            run.handle.cancel()
        if why is Stop.LOST:
            self._loop.call_later(time_to_end(run), self._give_up, run)
        elif why is not Stop.CANCELLED:
            self._loop.call_later(GRACE, self._give_up, run)

    def time_out(self, run: Run) -> None:
        self.stop(run, Stop.TIMED_OUT)

    def _give_up(self, run: Run) -> None:
        """Settle a stopped run that goes on, without waiting for it. It keeps its slot until it ends."""
        if run in self._slots and not run.leaked:
            task = run.task
            log.warning(
                "%s %s was stopped (%s) but goes on, and keeps its slot.",
                task.name,
                task.id,
                run.stop,
                extra=extra_of(task),
            )
            self._slots.leak(run)
            if not run.settled and not run.completing:
                self._settler.settle(run, outcome.with_backoff(task, run.definition, settlement_of(run)))
            self._changed()


def time_to_end(run: Run) -> float:
    """How long a run that lost its lease may go on before its slot counts as stuck: until its timeout."""
    return LOST_GRACE if run.timeout_at is None else max(0.0, run.timeout_at - time.monotonic()) + GRACE


def settlement_of(run: Run) -> Settlement:
    """The settlement of a run that was stopped. One that lost its lease is settled only to be counted."""
    if run.stop is Stop.TIMED_OUT:
        return outcome.timed_out(run.task, run.timeout or round((time.monotonic() - run.claimed) * SECOND))
    if run.stop is Stop.CANCELLED:
        return outcome.cancelled(run.task, run.stop_note)
    return outcome.released(run.task, run.stop_note or str(run.stop))
