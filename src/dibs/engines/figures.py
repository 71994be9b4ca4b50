"""Figures: what engines count, and what workers report minute by minute."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from dibs.core.settings import Tier
from dibs.core.states import State
from dibs.core.times import Instant

__all__ = ["OTHER_ERRORS", "Backlog", "Counter", "Counts", "KindCounts", "Minute", "PoolUse"]


class Minute(Struct, kw_only=True, omit_defaults=True):
    """What one worker did in one minute for one queue and tier. Writes replace it, so a repeat changes nothing.

    Histograms are bucket → count (`dibs.core.histogram`), `wait` from ready to claim, `run` from claim to settle.
    """

    minute: int
    worker: str
    queue: str
    tier: str
    completed: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    wait: dict[int, int] = {}
    run: dict[int, int] = {}


class Counter(StrEnum):
    """What engines count besides tasks, since the store was made: totals that only grow."""

    ENQUEUED = "enqueued"
    DUPLICATES = "duplicates"
    REJECTED = "rejected"  # refused because full or draining
    LIMITED = "limited"  # refused because its client enqueues too fast
    CLAIMED = "claimed"
    COMPLETIONS = "completions"
    FAILURES = "failures"  # attempts that failed or timed out
    TIMEOUTS = "timeouts"
    RETRIES = "retries"  # failed attempts after which the task runs again
    TIMEOUT_RETRIES = "timeout_retries"
    RELEASES = "releases"
    SNOOZES = "snoozes"
    LOSSES = "losses"
    REFUSED = "refused_writes"  # by the fence
    REPLAYED = "replayed"
    PROMOTED_MEDIUM = "promoted_medium"  # by waiting, in a queue of tiers: from low
    PROMOTED_HIGH = "promoted_high"  # from medium
    DEAD_EXHAUSTED = "dead_exhausted"
    DEAD_PERMANENT = "dead_permanent"
    DEAD_LOST = "dead_lost"
    DEAD_DEPENDENCY = "dead_dependency"
    DEAD_QUEUE = "dead_queue"
    CANCELLED_USER = "cancelled_user"
    CANCELLED_EXPIRED = "cancelled_expired"
    CANCELLED_DEPENDENCY = "cancelled_dependency"


OTHER_ERRORS = "other"
"""Under this type are counted the failures of a queue that has too many types of errors."""


class KindCounts(Struct, frozen=True, kw_only=True):
    """The tasks of one name in a queue that were submitted with priorities of a tier, without zeros."""

    queue: str
    name: str
    tier: Tier
    states: dict[State, int] = {}
    counters: dict[Counter, int] = {}


class Counts(Struct, frozen=True):
    """By queue: how many tasks are in each state, zeros included, and each counter; and the same by kind.

    What happened to no stored task (refusals, duplicates) is counted by queue only. `errors`: failures by queue and
    type of error, at most 50 types of each queue and the rest as one.
    """

    tasks: dict[str, dict[State, int]]
    counters: dict[str, dict[Counter, int]]
    kinds: list[KindCounts] = []
    errors: dict[str, dict[str, int]] = {}


class Backlog(Struct, frozen=True, kw_only=True):
    """The pending tasks of a queue that were submitted with priorities of a tier.

    `oldest`: since when the one has been ready that has waited longest, among the next ones of each track.
    """

    queue: str
    tier: Tier
    pending: int
    oldest: Instant | None


class PoolUse(Struct, frozen=True, kw_only=True):
    """The connections of one process to its store, now; and what callers have waited for since it was opened.

    `waited` is in seconds. `exhausted`: callers that were given no connection in time.
    """

    size: int
    busy: int
    idle: int
    waiting: int = 0
    waits: int = 0
    waited: float = 0.0
    exhausted: int = 0
