"""Limits in virtual time: what runs under each of them, and its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dibs.core.limits import Bucket, Scope, limit_of, limits_for
from dibs.core.times import Instant
from dibs.engines.decisions.choosing import Headrooms
from dibs.engines.decisions.headroom import Counted, Headroom, Whose, headroom_of
from dibs.engines.decisions.transaction import Queue


class Limits(Headrooms):
    """The limits on starts in a queue. The headroom under each is computed when a claim asks for it."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue
        self._running: Counter[Whose] = Counter()
        self._buckets: dict[Whose, Bucket] = {}
        self._now: Instant = 0

    def open(self, now: Instant) -> None:
        """A claim begins."""
        self._now = now
        self.known.clear()

    def of(self, queue: Queue, scope: Scope, whose: str) -> Headroom | None:
        key = (queue.name, scope, whose)
        found = self.known.get(key)
        if found is None and (limit := limit_of(queue.settings, scope, whose)) is not None:
            found = self.known[key] = headroom_of(limit, self._running[key], self._buckets.get(key), self._now)
        return found

    def start(self, counted: Iterable[Counted]) -> None:
        """A task starts."""
        for whose, headroom in counted:
            self._running[whose] += 1
            if headroom.full is not None:
                self._buckets[whose] = headroom.spent(headroom.started)

    def end(self, name: str, partition: str | None) -> None:
        """A task has ended."""
        for scope, whose, _ in limits_for(self._queue.settings, name, partition):
            self._running[self._queue.name, scope, whose] -= 1
