"""Spares a store that is away: one request at a time asks it, and the others are refused at once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dibs.errors import BlobStoreUnavailable, DibsError, Refused, StoreUnavailable

__all__ = ["Breaker"]

PAUSE = 0.5
"""Seconds for which nobody asks a store that was just found to be away."""


class Breaker:
    """Closed while the store answers."""

    def __init__(self) -> None:
        self._is_away = False
        self._is_asked = False
        self._until = 0.0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around what asks the store; how it ends says whether the store is there."""
        if self._is_away and (self._is_asked or time.monotonic() < self._until):
            raise StoreUnavailable("the store is away, and is asked again in a moment.")
        is_probe = self._is_asked = self._is_away
        try:
            yield
            self._is_away = False
        except (DibsError, TimeoutError) as error:
            self._saw(error)
            raise
        finally:
            if is_probe:
                self._is_asked = False

    def _saw(self, error: DibsError | TimeoutError) -> None:
        if isinstance(error, StoreUnavailable | TimeoutError) and not isinstance(error, BlobStoreUnavailable):
            self._is_away = True
            self._until = time.monotonic() + PAUSE * random.uniform(0.8, 1.2)
        elif isinstance(error, Refused):
            self._is_away = False
