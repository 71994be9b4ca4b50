"""The slots of a worker: which buffered run starts next, how many run, and how long they take."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from dibs.errors import WrongThread
from dibs.worker.buffer import Buffer
from dibs.worker.run import Run
from dibs.worker.settings import WorkerSettings

__all__ = ["Slots"]

LEARNING = 0.05
"""The weight of the newest run in the running average of durations."""


class Slots:
    """Runs that have started, and those that wait in the buffer for a slot. Used on the worker's loop."""

    def __init__(self, settings: WorkerSettings, buffer: Buffer) -> None:
        self.buffer = buffer
        self._ceilings = settings.ceilings()
        self.count = settings.concurrency
        self._live: set[Run] = set()
        self._waiting: Counter[Run] = Counter()
        """Runs that only wait for tasks which this worker may have to run."""
        self.busy = 0
        self.leaked = 0
        """Slots of runs that were stopped and go on."""
        self.below = [0] * len(self._ceilings)
        """Per reserved priority, how many slots are held by work below it."""
        self.low = 0
        """A slot that comes free is worth a claim once no more than this many runs are buffered."""
        self.average: float | None = None
        """Seconds that a run takes."""
        self.last_started = time.monotonic()

    def __contains__(self, run: Run) -> bool:
        return run in self._live

    def occupy(self) -> Run | None:
        """Give a free slot to the buffered run that goes first; None if there is no such run."""
        run = self.buffer.pop(self._may_start if self._ceilings else None)
        if run is not None:
            self.busy += 1
            if self._ceilings:
                self._count_levels(run, +1)
            self.last_started = run.started = time.monotonic()
            self._live.add(run)
        return run

    def free(self, run: Run) -> None:
        """Take the slot back from a run that has ended."""
        assert run.started is not None
        run.ended = time.monotonic()
        took = run.ended - run.started
        self.average = took if self.average is None else self.average + LEARNING * (took - self.average)
        self._live.discard(run)
        self.leaked -= run.leaked
        self.busy -= 1
        if self._ceilings:
            self._count_levels(run, -1)

    @contextmanager
    def hold(self, run: Run, queue: str) -> Iterator[None]:
        """Count the run's slot as one that only waits for a task of this queue; refuse if no other would be left."""
        if run not in self._live or not self.buffer.serves(queue):
            yield
            return
        if len(self._waiting.keys() | {run}) >= self.count - self.leaked:
            raise WrongThread(
                f"every slot of this worker ({self.count}) would wait for another task, so none would be left to run "
                "it: enqueue a follow-up instead (chain, or using(after=…)), or give the worker more concurrency."
            )
        self._waiting[run] += 1
        try:
            yield
        finally:
            self._waiting[run] -= 1
            if not self._waiting[run]:
                del self._waiting[run]

    def leak(self, run: Run) -> None:
        """Count the slot of a run that does not end as lost until it ends."""
        run.leaked = True
        self.leaked += 1

    def _may_start(self, run: Run) -> bool:
        """Whether starting this leaves the reserved slots free."""
        return all(
            run.task.effective >= floor.effective or self.below[level] < floor.below
            for level, floor in enumerate(self._ceilings)
        )

    def _count_levels(self, run: Run, change: int) -> None:
        for level, floor in enumerate(self._ceilings):
            if run.task.effective < floor.effective:
                self.below[level] += change

    def active(self) -> list[Run]:
        """Runs that have started and are not settled."""
        return [run for run in self._live if not run.settled]

    def ending(self) -> list[Run]:
        """Runs that are worth waiting for: all that have started, except those that were stopped and go on."""
        return [run for run in self._live if not run.leaked]

    def current(self, loop: asyncio.AbstractEventLoop) -> Run | None:
        """The run whose coroutine the loop is executing right now; from any thread."""
        task = asyncio.current_task(loop)
        return next((run for run in tuple(self._live) if run.handle is task), None) if task else None
