"""When a full queue has room again."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["FullQueue"]


class FullQueue(Struct, frozen=True, kw_only=True):
    """What is known of a queue that has refused tasks. `rate`: how many of its tasks end per second; None: unknown."""

    pending: int = 0
    max_depth: int | None = None
    paused: bool = False
    rate: float | None = None

    def room_in(self, number: int) -> float | None:
        """In how many seconds it has room for so many tasks if it goes on like this; None if that can't be said."""
        if self.rate is None or self.paused or self.never_fits(number):
            return None
        over = self.pending + number - (self.max_depth or 0)
        return max(1, over) / self.rate

    def never_fits(self, number: int) -> bool:
        """Whether so many tasks are more than it ever takes."""
        return self.max_depth is not None and number > self.max_depth
