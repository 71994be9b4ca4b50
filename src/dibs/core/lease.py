"""Lease arithmetic."""

from __future__ import annotations

from dibs.core.times import HOUR, SECOND, Duration, Instant

LONGEST_RUN: Duration = 24 * HOUR
"""A run that takes longer counts as timed out, however often its lease is extended."""


def heartbeat_interval(lease: Duration) -> Duration:
    """How often to extend: a third of the lease, so that two beats may fail."""
    return max(lease // 3, SECOND // 10)


def span_left(by: Duration, ran: Duration) -> Duration:
    """How long to extend a lease: at most until the longest run is over, of which `ran` has passed.

    The worker measures `ran`: the store's clock may be set.
    """
    return max(0, min(by, LONGEST_RUN - ran))


def is_exhausted(ran: Duration) -> bool:
    return ran >= LONGEST_RUN


def taken_until(now: Instant, ended_by: Instant | None, not_after: Instant | None) -> Instant | None:
    """The instant by which a lease must have ended to be taken back; `Engine.rescue` explains the parameters.

    None: the call was delayed, and takes nothing.
    """
    if not_after is not None and now > not_after:
        return None
    return now if ended_by is None else min(now, ended_by)


def rewound(due_at: Instant, claimed_at: Instant, ready_at: Instant) -> Instant:
    """`ready_at` for a task that goes back to waiting: the time it waited counts, the time it ran does not."""
    return due_at - (claimed_at - ready_at)
