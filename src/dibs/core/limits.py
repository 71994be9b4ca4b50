"""Limits as arithmetic on values; the engine keeps the values.

A limit bounds starts per second (a token bucket with a burst), the number of tasks that run at once, or both. It holds
for a whole queue, for each task name, for each partition (`per=`), or, for enqueueing, for each client. A lease holds
its slot until it is settled or taken back: one that has merely expired may still be extended, so giving its slot away
would give it twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from dibs.core.settings import Limit, QueueSettings
from dibs.core.times import SECOND, Duration, Instant


class Scope(StrEnum):
    """What a limit counts together."""

    QUEUE = "queue"
    TASK = "task"
    PARTITION = "partition"
    CLIENT = "client"


class Bucket(Struct, frozen=True):
    """A token bucket: `level` millionths of a token at the instant `at`."""

    level: int
    at: Instant


class LimitState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One limit that applies to a task, as it is now. `opens_in` is None if that is unknown."""

    scope: Scope
    """What is limited: queue, task, partition or client."""
    whose: str
    """Which of them; empty for the queue."""
    running: int
    """How many run."""
    max_concurrent: int | None = None
    """How many may."""
    rate: float | None = None
    """Starts per second."""
    tokens: int | None = None
    """Starts that may come now."""
    opens_in: Duration | None = None
    """Microseconds until one may; None if that is unknown."""

    @property
    def is_full(self) -> bool:
        """Whether no task may start under it now."""
        return self.tokens == 0 or (self.max_concurrent is not None and self.running >= self.max_concurrent)


TOKEN = 1_000_000


def limit_of(settings: QueueSettings, scope: Scope, whose: str) -> Limit | None:
    """The limit on starting the tasks of a queue, of one name in it, or of one partition."""
    if scope is Scope.QUEUE:
        is_set = settings.max_concurrent is not None or settings.rate is not None
        return Limit(settings.max_concurrent, settings.rate, settings.burst) if is_set else None
    if scope is Scope.TASK:
        return settings.per_task.get(whose)
    if scope is Scope.PARTITION:
        return settings.per_partition
    return client_limit(settings)


def client_limit(settings: QueueSettings) -> Limit | None:
    """The limit on what each client may enqueue."""
    return None if settings.enqueue_rate is None else Limit(None, settings.enqueue_rate, settings.enqueue_burst)


def limits_for(settings: QueueSettings, name: str, partition: str | None) -> Iterator[tuple[Scope, str, Limit]]:
    """The limits that apply to the start of a task."""
    scopes = [(Scope.QUEUE, ""), (Scope.TASK, name)]
    if partition is not None:
        scopes.append((Scope.PARTITION, partition))
    for scope, whose in scopes:
        limit = limit_of(settings, scope, whose)
        if limit is not None:
            yield scope, whose, limit


def refill(bucket: Bucket | None, limit: Limit, now: Instant) -> Bucket:
    """The bucket as of now; one that was never used is full. It holds `burst` tokens, else those of one second."""
    burst = limit.burst if limit.burst is not None else max(1, int(limit.rate or 1))
    full = burst * TOKEN
    if bucket is None:
        return Bucket(full, now)
    gained = int((now - bucket.at) * (limit.rate or 0.0) * TOKEN / SECOND)
    return Bucket(min(full, bucket.level + max(0, gained)), max(now, bucket.at))


def tokens(bucket: Bucket) -> int:
    """Whole tokens that can be spent now."""
    return bucket.level // TOKEN


def spend(bucket: Bucket, count: int) -> Bucket:
    """The bucket after `count` starts."""
    return Bucket(bucket.level - count * TOKEN, bucket.at)


def until_token(bucket: Bucket, limit: Limit) -> Duration:
    """How long until there is one whole token."""
    missing = max(0, TOKEN - bucket.level)
    return -(-missing * SECOND // max(1, int((limit.rate or 1.0) * TOKEN)))


def free_slots(limit: Limit, running: int) -> int | None:
    """How many more tasks may run; None: no limit."""
    return None if limit.max_concurrent is None else max(0, limit.max_concurrent - running)


def limit_state(
    scope: Scope, whose: str, limit: Limit, running: int, bucket: Bucket | None, now: Instant
) -> LimitState:
    """A limit in the form that is shown to people."""
    filled = None if limit.rate is None else refill(bucket, limit, now)
    starts = None if filled is None else tokens(filled)
    return LimitState(
        scope=scope,
        whose=whose,
        running=running,
        max_concurrent=limit.max_concurrent,
        rate=limit.rate,
        tokens=starts,
        opens_in=until_token(filled, limit) if filled is not None and starts == 0 else None,
    )
