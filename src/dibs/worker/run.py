"""One leased task in this worker, from claim to settlement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum

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
    """The link between a task's context and the worker.

    The loop's thread owns a run. The heartbeat's thread reads it and writes `valid_until`, `stop`, `stop_note` and
    `committed`; a task's own thread writes `progress`, `wanted_lease` and `completing`. Each of these is one
    assignment, so no lock is needed.
    """

    __slots__ = (
        "claimed",
        "committed",
        "completing",
        "definition",
        "entered",
        "handle",
        "in_thread",
        "late",
        "leaked",
        "named_in_log",
        "progress",
        "received",
        "returned",
        "settled",
        "span",
        "started",
        "stop",
        "stop_note",
        "task",
        "time_out",
        "timeout_at",
        "timer",
        "valid_until",
        "wake",
        "wanted_lease",
    )

    def __init__(
        self,
        task: LeasedTask,
        definition: TaskDefinition,
        claimed: float,
        wake: Callable[[], None],
        time_out: Callable[[Run], None],
    ) -> None:
        """`wake` has the heartbeat look for news soon, from any thread; `time_out` stops this run, on the loop."""
        self.task = task
        self.definition = definition
        self.claimed = claimed
        self.span: Duration = task.lease_expires_at - task.claimed_at
        self.valid_until = claimed + self.span / SECOND
        self.wake = wake
        self.time_out = time_out
        self.received = time.monotonic()
        self.started: float | None = None
        self.timeout_at: float | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.handle: asyncio.Task[None] | None = None
        self.entered = False
        self.in_thread = False
        self.returned = False
        """Its thread has ended: its outcome is about to be settled, and nothing can stop it any more."""
        self.late: Settlement | None = None
        """What to settle once its thread has ended."""
        self.leaked = False
        self.named_in_log = False
        self.settled = False
        self.completing = False
        """Its completion is part of its own transaction; the store knows whether that was committed."""
        self.committed = False
        """That transaction was committed, so there is no lease to keep any more."""
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

    def begin(self) -> None:
        timeout = self.timeout
        if timeout is not None:
            self.timeout_at = time.monotonic() + timeout / SECOND
            self.timer = asyncio.get_running_loop().call_at(self.timeout_at, self.time_out, self)

    def report(self, fraction: float, message: str) -> None:
        self.progress = (fraction, message)
        self.wake()

    def keep(self, seconds: float) -> None:
        self.wanted_lease = seconds
        self.wake()

    def completes(self, settlement: Settlement) -> None:
        self.completing = True
