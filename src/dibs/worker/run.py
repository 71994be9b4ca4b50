"""One leased task in this worker, from claim to settlement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum

from dibs.attempt.context import Context
from dibs.core.retry import timeout_for
from dibs.core.task import LeasedTask, Settlement
from dibs.core.times import SECOND, Duration
from dibs.runtime.definition import TaskDefinition

__all__ = ["Run", "Stop"]


class Stop(StrEnum):
    """Why a run is being stopped."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lease lost"
    HANDED_BACK = "the worker is leaving"


class Run:
    """A context's link to the worker.

    The loop's thread owns a run. The heart's thread reads it and writes `valid_until`, `stop`, `stop_note`,
    `committed`; a task's own thread writes `progress`, `wanted_lease` and `completing`. Each of these is one
    assignment, so no lock is needed.
    """

    __slots__ = (
        "claimed",
        "committed",
        "completing",
        "context",
        "definition",
        "entered",
        "handle",
        "in_thread",
        "late",
        "leaked",
        "named_in_log",
        "nudge",
        "progress",
        "received",
        "returned",
        "settled",
        "span",
        "started",
        "stop",
        "stop_note",
        "task",
        "timeout_at",
        "timer",
        "valid_until",
        "wanted_lease",
    )

    def __init__(self, task: LeasedTask, definition: TaskDefinition, claimed: float, nudge: Callable[[], None]) -> None:
        self.task = task
        self.definition = definition
        self.claimed = claimed
        self.span: Duration = task.lease_expires_at - task.claimed_at
        self.valid_until = claimed + self.span / SECOND
        self.nudge = nudge
        self.received = time.monotonic()
        self.started: float | None = None
        self.timeout_at: float | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.handle: asyncio.Task[None] | None = None
        self.context: Context | None = None
        self.entered = False
        self.in_thread = False
        self.returned = False
        """Its thread has ended: what it came to is on its way, and nothing can stop it any more."""
        self.late: Settlement | None = None
        """What is to be reported once its thread has ended."""
        self.leaked = False
        self.named_in_log = False
        self.settled = False
        self.completing = False
        """Its completion is in a transaction of its own: whether that was committed, the store will say."""
        self.committed = False
        """It was, and there is no lease to be kept any more."""
        self.stop: Stop | None = None
        self.stop_note = ""
        self.progress: tuple[float, str] | None = None
        self.wanted_lease: float | None = None

    @property
    def stopping(self) -> str | None:
        return None if self.stop is None else (self.stop_note or self.stop.value)

    @property
    def lease_lost(self) -> bool:
        return self.stop is Stop.LOST or self.stop is Stop.HANDED_BACK

    @property
    def timeout(self) -> Duration | None:
        """How long this attempt may take."""
        return timeout_for(self.task.options, self.task.attempts)

    def report(self, fraction: float, message: str) -> None:
        self.progress = (fraction, message)
        self.nudge()

    def keep(self, seconds: float) -> None:
        self.wanted_lease = seconds
        self.nudge()

    def completes(self, settlement: Settlement) -> None:
        self.completing = True
