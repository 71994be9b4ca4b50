"""Lease arithmetic."""

from __future__ import annotations

from dibs.core.times import HOUR, SECOND, Duration, Instant

__all__ = [
    "LONGEST_RUN",
    "heartbeat_interval",
    "is_exhausted",
    "rewound",
    "span_left",
    "taken_until",
]

LONGEST_RUN: Duration = 24 * HOUR
"""However often a lease is extended, after this a run counts as timed out."""


def heartbeat_interval(lease: Duration) -> Duration:
    """How often to extend: a third of the lease, so that two beats may fail."""
    return max(lease // 3, SECOND // 10)


def span_left(by: Duration, ran: Duration) -> Duration:
    """For how long a lease is kept: never longer than the longest run allows, of which `ran` is over.

    `ran` is measured by the one who runs the task. The store's clock may be set, and an hour more there is no hour run.
    """
    return max(0, min(by, LONGEST_RUN - ran))


def is_exhausted(ran: Duration) -> bool:
    return ran >= LONGEST_RUN


def taken_until(now: Instant, ended_by: Instant | None, not_after: Instant | None) -> Instant | None:
    """By when a lease must have ended to be taken back, for a caller that knows what `Engine.rescue` says.

    None: the call was held up on its way, and takes nothing.
    """
    if not_after is not None and now > not_after:
        return None
    return now if ended_by is None else min(now, ended_by)


def rewound(due_at: Instant, claimed_at: Instant, ready_at: Instant) -> Instant:
    """`ready_at` for a task that goes back to waiting: the time it waited counts, the time it ran does not."""
    return due_at - (claimed_at - ready_at)
