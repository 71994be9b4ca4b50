"""One leased task in this worker, from claim to settlement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum

from dibs.core.retry import timeout_for
from dibs.core.task import LeasedTask, Settlement
from dibs.core.times import SECOND, Duration
from dibs.runtime.definition import TaskDefinition


class Stop(StrEnum):
    """Why a run is being stopped."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lease lost"
    HANDED_BACK = "the worker is leaving"


@dataclass(slots=True, eq=False)
class Run:
    """The link between a task's context and the worker.

    The loop's thread owns a run. The heartbeat's thread reads it and writes `valid_until`, `stop`, `stop_note` and
    `committed`; a task's own thread writes `progress`, `wanted_lease` and `completing`. Each of these is one
    assignment, so no lock is needed.
    """

    task: LeasedTask
    definition: TaskDefinition
    claimed: float
    wake: Callable[[], None]
    """Has the heartbeat look for news soon; from any thread."""
    time_out: Callable[[Run], None]
    """Stops this run; on the loop."""
    hold: Callable[[Run, str], AbstractContextManager[None]] = lambda run, queue: nullcontext()
    """Counts its slot as one that only waits for a task of some queue; on the loop."""
    span: Duration = field(init=False)
    valid_until: float = field(init=False)
    received: float = field(init=False, default_factory=time.monotonic)
    started: float | None = None
    ended: float | None = None
    """When it gave its slot back."""
    timeout_at: float | None = None
    timer: asyncio.TimerHandle | None = None
    handle: asyncio.Task[None] | None = None
    entered: bool = False
    in_thread: bool = False
    returned: bool = False
    """Its thread has ended: its outcome is about to be settled, and nothing can stop it any more."""
    late: Settlement | None = None
    """What to settle once its thread has ended."""
    leaked: bool = False
    named_in_log: bool = False
    settled: bool = False
    completing: bool = False
    """Its completion is part of its own transaction; the store knows whether that was committed."""
    committed: bool = False
    """That transaction was committed, so there is no lease to keep any more."""
    stop: Stop | None = None
    stop_note: str = ""
    progress: tuple[float, str] | None = None
    wanted_lease: float | None = None

    def __post_init__(self) -> None:
        self.span = self.task.lease_expires_at - self.task.claimed_at
        self.valid_until = self.claimed + self.span / SECOND

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

    def waiting(self, queue: str) -> AbstractContextManager[None]:
        return self.hold(self, queue)
