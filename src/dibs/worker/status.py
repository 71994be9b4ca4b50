"""How a worker is doing, and how it ended."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from dibs.core.task import WorkerState


class ExitCode(IntEnum):
    """How a worker process ended, for what started it."""

    CLEAN = 0  # everything that was started was finished
    FAILED = 1  # it could not start, or a part of it broke; the log says which
    USAGE = 2  # the call was wrong; a restart would not help
    HANDED_BACK = 3  # running work was handed back to the store, or killed, because the time was up
    LEAKED = 4  # too many runs were stuck past their timeout; a new process starts without them
    FORCED = 5  # the event loop was blocked and did not answer; the process was ended from another thread


class WorkerStats(Struct, frozen=True, kw_only=True):
    """Counts since the worker started; `average_run` in seconds, None before the first run ended."""

    id: str
    state: WorkerState
    running: int = 0
    buffered: int = 0
    unsettled: int = 0
    leaked: int = 0
    executed: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0
    timed_out: int = 0
    refused: int = 0
    average_run: float | None = None

    @property
    def success_rate(self) -> float | None:
        """Completed runs among all that ended by themselves; None before the first."""
        ended = self.completed + self.failed
        return self.completed / ended if ended else None


class ExitReport(Struct, frozen=True, kw_only=True):
    """How a worker ended."""

    code: ExitCode
    reason: str
    stats: WorkerStats
    handed_back: int = 0
