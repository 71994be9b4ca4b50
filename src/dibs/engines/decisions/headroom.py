"""How much more the limits of queues, task names and partitions allow."""

from __future__ import annotations

from msgspec import Struct

from dibs.core.limits import Bucket, Scope, free_slots, refill, spend, tokens, until_token
from dibs.core.settings import Limit
from dibs.core.times import Duration, Instant

MOST_AHEAD = 64
"""How many tasks of a group (partition, track and share) are ungated at a time, at most."""

Whose = tuple[str, Scope, str]
"""Queue, scope, and the task name or partition that a limit is about."""


class Headroom(Struct):
    """What one limit still allows after `started` starts. `full` is the refilled bucket before those starts."""

    limit: Limit
    running: int
    full: Bucket | None
    started: int = 0

    @property
    def left(self) -> int | None:
        """How many more may start; None: no limit."""
        slots = free_slots(self.limit, self.running + self.started)
        if self.full is None:
            return slots
        starts = tokens(self.full) - self.started
        return starts if slots is None else min(slots, starts)

    @property
    def is_full(self) -> bool:
        return self.left == 0

    @property
    def has_no_token(self) -> bool:
        return self.full is not None and tokens(self.full) == self.started

    @property
    def refills_in(self) -> Duration | None:
        """How long until there is a token; None if there is one."""
        return until_token(self.spent(self.started), self.limit) if self.has_no_token else None

    def spent(self, starts: int) -> Bucket:
        """The bucket after so many starts."""
        assert self.full is not None
        return spend(self.full, starts)


Counted = tuple[Whose, Headroom]
"""A limit that a start counts against."""


def headroom_of(limit: Limit, running: int, bucket: Bucket | None, now: Instant) -> Headroom:
    """The headroom under a limit; `bucket` as stored, None if it was never used."""
    return Headroom(limit, running, None if limit.rate is None else refill(bucket, limit, now))


def ungated_ahead(limit: Limit | None) -> int | None:
    """How many tasks of a group may wait ungated before new ones are stored gated; None if partitions have no limit.

    As many as fit twice: then a partition that is never full gates nothing, and one that is full, only a few in vain.
    Where starts are counted by the second, one at a time.
    """
    if limit is None:
        return None
    return most_ahead(limit) if limit.max_concurrent is None else min(2 * limit.max_concurrent, most_ahead(limit))


def most_ahead(limit: Limit) -> int:
    """How many tasks of a group are ungated at a time, at most."""
    return 1 if limit.rate is not None else MOST_AHEAD
