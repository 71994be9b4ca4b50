"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dibs.core.options import check_number
from dibs.core.times import LATEST, Instant, duration, instant, when
from dibs.errors import UsageError

__all__ = ["ManualClock"]

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class ManualClock:
    """Both clocks of an app: its own and its store's. Give it to ``Dibs(url, clock=…)`` or let a `Sandbox` have it."""

    def __init__(self, start: datetime = START) -> None:
        self._now = instant(start, "start")

    def __repr__(self) -> str:
        return f"<ManualClock at {self.time.isoformat()}>"

    def now(self) -> Instant:
        """The app's present, in microseconds since the epoch."""
        return self._now

    def store_now(self) -> Instant | None:
        """The store's, which is the same."""
        return self._now

    @property
    def time(self) -> datetime:
        """The present moment, for people."""
        present = when(self._now)
        assert present is not None
        return present

    def advance(self, seconds: float | timedelta) -> datetime:
        """Let time pass; answers the new present."""
        return self.move_to_instant(self._now + duration(seconds, "advance()"))

    def move_to(self, moment: datetime) -> datetime:
        """Go forward to a moment; answers it."""
        return self.move_to_instant(instant(moment, "move_to()"))

    def move_to_instant(self, moment: Instant) -> datetime:
        """The same with microseconds since the epoch."""
        check_number(moment, "an instant", 0, LATEST)
        if moment < self._now:
            raise UsageError(f"time does not go back: it is {self.time.isoformat()} already.")
        self._now = moment
        return self.time
