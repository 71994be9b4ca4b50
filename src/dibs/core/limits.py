"""Limits as arithmetic on values; the engine keeps the values."""

from __future__ import annotations

from msgspec import Struct

from dibs.core.settings import QueueSettings
from dibs.core.times import SECOND, Duration, Instant

__all__ = ["Bucket", "free_slots", "refill", "spend", "until_token"]


class Bucket(Struct, frozen=True):
    """A token bucket: `level` millionths of a token at the instant `at`."""

    level: int
    at: Instant


TOKEN = 1_000_000


def capacity(settings: QueueSettings) -> int:
    """How many tokens fit: `burst`, else one second's worth, at least one."""
    burst = settings.burst if settings.burst is not None else max(1, int(settings.rate or 1))
    return burst * TOKEN


def refill(bucket: Bucket | None, settings: QueueSettings, now: Instant) -> Bucket:
    """The bucket as of now; a queue that never had one starts full."""
    full = capacity(settings)
    if bucket is None:
        return Bucket(full, now)
    gained = int((now - bucket.at) * (settings.rate or 0.0) * TOKEN / SECOND)
    return Bucket(min(full, bucket.level + max(0, gained)), max(now, bucket.at))


def tokens(bucket: Bucket) -> int:
    """Whole tokens that can be spent now."""
    return bucket.level // TOKEN


def spend(bucket: Bucket, count: int) -> Bucket:
    """The bucket after `count` starts."""
    return Bucket(bucket.level - count * TOKEN, bucket.at)


def until_token(bucket: Bucket, settings: QueueSettings) -> Duration:
    """How long until there is one whole token."""
    missing = max(0, TOKEN - bucket.level)
    return -(-missing * SECOND // max(1, int((settings.rate or 1.0) * TOKEN)))


def free_slots(settings: QueueSettings, live_leases: int) -> int | None:
    """How many more tasks of the queue may run; None: no limit."""
    return None if settings.max_concurrent is None else max(0, settings.max_concurrent - live_leases)
