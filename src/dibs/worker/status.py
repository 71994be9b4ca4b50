"""How a worker is doing, and how it ended."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from dibs.core.task import WorkerState


class ExitCode(IntEnum):
    """How a worker process ended, for what started it."""

    CLEAN = 0
    """Everything that was started was finished."""
    FAILED = 1
    """It could not start, or a part of it broke; the log says which."""
    USAGE = 2
    """The call was wrong; a restart would not help."""
    HANDED_BACK = 3
    """Running work was handed back to the store, or killed, because the time was up."""
    LEAKED = 4
    """Too many runs were stuck past their timeout; a new process starts without them."""
    FORCED = 5
    """The event loop was blocked and did not answer; the process was ended from another thread."""


class WorkerStats(Struct, frozen=True, kw_only=True):
    """Counts since the worker started; `average_run` in seconds, None before the first run ended."""

    id: str
    """Its id."""
    state: WorkerState
    """Its state."""
    running: int = 0
    """Busy slots."""
    buffered: int = 0
    """Tasks that are leased and wait for a slot."""
    unsettled: int = 0
    """Outcomes that the store has not answered yet."""
    leaked: int = 0
    """Slots of runs that were stopped and go on."""
    executed: int = 0
    """Runs that ended."""
    completed: int = 0
    """Tasks that completed."""
    failed: int = 0
    """Attempts that failed."""
    dead: int = 0
    """Tasks that died of it."""
    cancelled: int = 0
    """Tasks that were cancelled."""
    released: int = 0
    """Handed back or put off."""
    lost: int = 0
    """Runs whose lease was lost."""
    timed_out: int = 0
    """Attempts that took longer than their timeout."""
    refused: int = 0
    """Outcomes that the store refused: the lease was another's."""
    average_run: float | None = None
    """Seconds; None before the first run ended."""

    @property
    def success_rate(self) -> float | None:
        """Completed runs among all that ended by themselves; None before the first."""
        ended = self.completed + self.failed
        return self.completed / ended if ended else None


class ExitReport(Struct, frozen=True, kw_only=True):
    """How a worker ended."""

    code: ExitCode
    """The process's exit code."""
    reason: str
    """Why it left."""
    stats: WorkerStats
    """What it did."""
    handed_back: int = 0
    """Running tasks that were handed back."""
