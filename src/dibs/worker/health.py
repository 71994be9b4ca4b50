"""Whether the store answers, as this process sees it; and how long to wait before asking again."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dibs.errors import StoreError

__all__ = ["Backoff", "StoreHealth"]

log = logging.getLogger("dibs.worker")

DYING = 0.25
"""Seconds after a failure in which an answer is not believed: a server that stops ends its sessions one by one."""


class Backoff:
    """Waits that double up to a cap, each between half and all of it, so that workers don't return in step."""

    def __init__(self, first: float = 0.1, cap: float = 5.0) -> None:
        self._first = first
        self._cap = cap
        self._next = first

    def next(self) -> float:
        """Seconds to wait after one more failure."""
        wait, self._next = self._next, min(self._next * 2, self._cap)
        return wait * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._next = self._first


class StoreHealth:
    """One line in the log when the store goes, one when it is back, from whichever thread notices first."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._down_since: float | None = None
        self.regained_at: float | None = None
        self.was_down_for = 0.0

    @property
    def down(self) -> bool:
        return self._down_since is not None

    @contextmanager
    def asking(self, doing: str) -> Iterator[None]:
        """Around verbs, and nothing but verbs: the store is gone when one fails, and back when all were answered.

        An answer to what was asked before the store went, or while it was going, says nothing.
        """
        asked_at = self._monotonic()
        try:
            yield
        except StoreError as error:
            self._failed(error, doing)
            raise
        if self._down_since is not None:
            self._answered(asked_at)

    def _failed(self, error: StoreError, doing: str) -> None:
        with self._lock:
            if self._down_since is not None:
                return
            self._down_since = self._monotonic()
        log.error("The store does not answer: could not %s. %s Going on with what runs.", doing, error)

    def _answered(self, asked_at: float) -> None:
        with self._lock:
            if self._down_since is None or asked_at < self._down_since + DYING:
                return
            gone = self._monotonic() - self._down_since
            self._down_since = None
            self.was_down_for = gone
            self.regained_at = self._monotonic()
        log.warning("The store answers again after %.1f s.", gone)
