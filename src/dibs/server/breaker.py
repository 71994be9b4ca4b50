"""Spares a store that is away: requests in the next moment are refused without asking it."""

from __future__ import annotations

import random
import time

from dibs.errors import BlobStoreUnavailable, DibsError, StoreUnavailable

__all__ = ["Breaker"]

PAUSE = 0.5
"""Seconds for which nobody asks a store that was just found to be away."""


class Breaker:
    """Closed while the store answers."""

    def __init__(self) -> None:
        self._until = 0.0

    def check(self) -> None:
        if time.monotonic() < self._until:
            raise StoreUnavailable("the store is away, and is asked again in a moment.")

    def saw(self, error: DibsError) -> None:
        """A call ended by this error."""
        is_away = isinstance(error, StoreUnavailable) and not isinstance(error, BlobStoreUnavailable)
        if is_away and time.monotonic() >= self._until:
            self._until = time.monotonic() + PAUSE * random.uniform(0.8, 1.2)
