"""What one worker has done since it started, in numbers."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Outcome, Settlement


class Counters:
    """Settled runs by outcome, and runs whose lease was lost or whose settlement was refused."""

    __slots__ = ("cancelled", "completed", "dead", "failed", "lost", "refused", "released", "run_time", "timed_out")

    def __init__(self) -> None:
        self.completed = self.failed = self.dead = self.cancelled = 0
        self.released = self.lost = self.refused = self.timed_out = 0
        self.run_time = 0.0

    @property
    def executed(self) -> int:
        """Runs that ended by themselves or were cancelled."""
        return self.completed + self.failed + self.cancelled

    def count(self, settlement: Settlement, state: State | None, seconds: float) -> None:
        """Count one settled run, whose task is in this state now."""
        outcome = settlement.outcome
        if outcome is Outcome.COMPLETED:
            self.completed += 1
        elif outcome is Outcome.FAILED or outcome is Outcome.PERMANENT:
            self.failed += 1
            self.dead += state is State.DEAD
            self.timed_out += settlement.timed_out
        elif outcome is Outcome.CANCELLED:
            self.cancelled += 1
        else:
            self.released += 1
            return
        self.run_time += seconds
