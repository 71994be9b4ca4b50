"""Whether the store answers, as seen from this process, and how long to wait before asking again."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dibs.errors import StoreError
from dibs.runtime.rescue import GAP

__all__ = ["HICCUP", "RELAPSE", "Backoff", "StoreHealth"]

log = logging.getLogger("dibs.worker")

HICCUP = 1.0
"""An outage shorter than this many seconds can't have cost any worker a lease."""

DYING = 0.25
"""For this many seconds after a failure an answer does not end the outage: a stopping server ends its sessions one by
one."""


LONGEST_DOUBT = 8.0
"""Upper bound of `DYING`, which doubles with each relapse."""

RELAPSE = 10.0
"""A store that fails again within this many seconds was not back: on a full disk, some writes still fit."""

LONGEST_RELAPSING = 60.0
"""Relapses within this many seconds are one outage. A store that fails now and then for longer is unreliable, not down,
and tasks have to be rescued there as well."""


class Backoff:
    """Waits that double up to a cap, with jitter, so that workers don't return at the same time."""

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
    """Writes one line to the log when the store fails and one when it is back; used from any thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._down_since: float | None = None
        self._failed_at = 0.0
        self._back_since: float | None = None
        """The first answer after the last failure."""
        self._began = 0.0
        """When the last outage began."""
        self._relapses = 0
        """How often that outage had seemed to be over."""
        self.regained_at: float | None = None
        self.was_down_for = 0.0
        self.stalled_at: float | None = None
        """When the last heartbeat that took too long was answered."""

    @property
    def down(self) -> bool:
        """Whether the store is down. One answer ends a hiccup; a longer outage takes more."""
        since, back = self._down_since, self._back_since
        return since is not None and (back is None or back - since > HICCUP)

    @contextmanager
    def asking(self, doing: str, *, beats: bool = False) -> Iterator[None]:
        """Put this around a verb: the store is down when one fails, and back when a later one is answered.

        `beats`: it is a heartbeat, which waits for nothing but the store.
        """
        asked_at = self._monotonic()
        try:
            yield
        except StoreError as error:
            self._failed(error, doing, asked_at)
            raise
        if beats and (now := self._monotonic()) - asked_at > GAP:
            self.stalled_at = now
        if self._down_since is not None:
            self._answered(asked_at)

    def _failed(self, error: StoreError, doing: str, asked_at: float) -> None:
        with self._lock:
            if self.regained_at is not None and asked_at < self.regained_at:  # it belongs to an outage that is over
                return
            self._failed_at = self._monotonic()
            self._back_since = None
            if self._down_since is not None:
                return
            if self._is_relapse():
                self._relapses += 1
            else:
                self._relapses, self._began = 0, self._failed_at
            self._down_since = self._began
        log.error("The store does not answer: could not %s. %s Running tasks continue.", doing, error)

    def _is_relapse(self) -> bool:
        if self.regained_at is None or self._failed_at - self._began > LONGEST_RELAPSING:
            return False
        return self._failed_at - self.regained_at < RELAPSE

    def _answered(self, asked_at: float) -> None:
        with self._lock:
            if self._down_since is None or asked_at < self._failed_at:
                return
            if self._back_since is None:
                self._back_since = self._monotonic()
            if asked_at < self._failed_at + min(DYING * 2 ** min(self._relapses, 10), LONGEST_DOUBT):
                return
            self.was_down_for = self._back_since - self._down_since
            self.regained_at = self._monotonic()
            self._down_since = None
        log.warning("The store answers again after %.1f s.", self.was_down_for)
