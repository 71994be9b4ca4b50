"""Limits in virtual time: what runs under each of them, and its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dibs.core.limits import Bucket, Scope, limit_of, limits_for
from dibs.core.times import Instant
from dibs.engines.decisions.choosing import Headrooms
from dibs.engines.decisions.headroom import Counted, Whose, headroom_of
from dibs.engines.decisions.transaction import Queue

__all__ = ["Limits"]


class Limits:
    """The limits on starts in one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._running: Counter[Whose] = Counter()
        self._buckets: dict[Whose, Bucket] = {}
        self._names = [(Scope.QUEUE, ""), *((Scope.TASK, name) for name in queue.settings.per_task)]

    def headrooms(self, now: Instant) -> Headrooms:
        """The headroom of the queue and of task names; that of partitions is added when needed."""
        found = Headrooms()
        for scope, whose in self._names:
            self.add(found, scope, whose, now)
        return found

    def add(self, headrooms: Headrooms, scope: Scope, whose: str, now: Instant) -> None:
        limit, key = limit_of(self._queue.settings, scope, whose), (self._queue.name, scope, whose)
        if limit is not None:
            headrooms.known[key] = headroom_of(limit, self._running[key], self._buckets.get(key), now)

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
