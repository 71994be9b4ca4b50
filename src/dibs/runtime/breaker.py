"""Spares a store that is away, and its callers: one call at a time asks it, and the others fail at once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dibs.engines.values import PartlyAnswered
from dibs.errors import BlobStoreUnavailable, Refused, StoreUnavailable

__all__ = ["TOLERANCE", "Breaker"]

PAUSE = 0.5
"""Seconds for which nobody asks a store that was just found to be away."""

TOLERANCE = 3
"""Calls that must fail one after the other before the store is known to be away: a lost connection is not an outage."""


class Breaker:
    """Closed while the store answers; open once it is known to be away. Used from any thread."""

    def __init__(self) -> None:
        self._tolerance = TOLERANCE
        self.holds_verbs = True
        """Whether single verbs are held back; otherwise what `asking` surrounds is."""
        self.forget()

    def forget(self) -> None:
        """Reset, in a forked child."""
        self._lock = threading.Lock()
        self._failures = 0
        self._is_asked = False
        self._until = 0.0
        self._why = ""
        """What the last failure said."""
        self.refused = 0
        """Calls that failed at once."""

    def hold_requests(self) -> None:
        """In a server: hold whole requests back instead of verbs, and after the first failure. Hundreds may wait."""
        self.holds_verbs = False
        self._tolerance = 1

    @property
    def is_open(self) -> bool:
        return self._failures >= self._tolerance

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around what asks the store; how it ends says whether the store is there."""
        is_probe = self.enter()
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.leave(is_probe, error)

    def enter(self) -> bool:
        """Raise if the store is away; True if this call is the one that finds out whether it is back."""
        if not self.is_open:
            return False
        with self._lock:
            if self._is_asked or time.monotonic() < self._until:
                self.refused += 1
                raise StoreUnavailable(f"{self._why} The store is asked again in a moment.")
            self._is_asked = True
            return True

    def leave(self, is_probe: bool, error: BaseException | None) -> None:
        """A call has ended, well or with an error."""
        if error is None or isinstance(error, Refused):
            self._failures = 0
        elif isinstance(error, StoreUnavailable | TimeoutError) and not isinstance(error, NOT_THE_STORE):
            with self._lock:
                self._failures += 1
                self._why = str(error) or "the store did not answer in time."
                self._until = time.monotonic() + PAUSE * random.uniform(0.8, 1.2)
        if is_probe:
            self._is_asked = False


NOT_THE_STORE = (BlobStoreUnavailable, PartlyAnswered)
"""What is away is not the store, or only a part of it."""
