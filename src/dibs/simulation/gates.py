"""Limits in virtual time: a gate bounds the tasks that run at once, and spends a token for each start."""

from __future__ import annotations

from dibs.core.limits import Bucket, free_slots, refill, spend, tokens, until_token
from dibs.core.settings import Limit
from dibs.core.times import Instant

__all__ = ["Gate"]


class Gate:
    """One limit: what runs under it, and its tokens."""

    __slots__ = ("bucket", "limit", "running")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.running = 0
        self.bucket: Bucket | None = None

    def is_open(self, now: Instant) -> bool:
        """Whether one more task may start."""
        limit = self.limit
        if free_slots(limit, self.running) == 0:
            return False
        return limit.rate is None or tokens(refill(self.bucket, limit, now)) > 0

    def refill_at(self, now: Instant) -> Instant | None:
        """When a closed gate has its next token; None if a running task has to end first."""
        if self.limit.rate is None or free_slots(self.limit, self.running) == 0:
            return None
        return now + until_token(refill(self.bucket, self.limit, now), self.limit)

    def enter(self, now: Instant) -> None:
        """A task starts."""
        self.running += 1
        if self.limit.rate is not None:
            self.bucket = spend(refill(self.bucket, self.limit, now), 1)

    def leave(self) -> None:
        """A task has ended."""
        self.running -= 1
