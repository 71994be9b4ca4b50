"""Lease arithmetic."""

from __future__ import annotations

from dibs.core.times import HOUR, SECOND, Duration, Instant

__all__ = ["LONGEST_RUN", "RESCUE_BATCH", "TERM", "TERM_RENEWAL", "extended", "heartbeat_interval", "rewound"]

LONGEST_RUN: Duration = 24 * HOUR
"""However often a lease is extended, after this a run counts as timed out."""

TERM: Duration = 15 * SECOND
TERM_RENEWAL: Duration = 5 * SECOND
PROMOTE_BATCH = 1000
EXPIRE_BATCH = 1000
RESCUE_BATCH = 500
LOOK_INTERVAL: Duration = 1 * SECOND
"""A worker absent at two looks this far apart is lost."""


def heartbeat_interval(lease: Duration) -> Duration:
    """How often to extend: a third of the lease, so that two beats may fail."""
    return max(lease // 3, SECOND // 10)


def extended(claimed_at: Instant, now: Instant, by: Duration) -> Instant:
    """When an extended lease ends: never later than the longest run allows."""
    return min(now + by, claimed_at + LONGEST_RUN)


def rewound(due_at: Instant, claimed_at: Instant, ready_at: Instant) -> Instant:
    """`ready_at` for a task that goes back to waiting: the time it waited counts, the time it ran does not."""
    return due_at - (claimed_at - ready_at)
