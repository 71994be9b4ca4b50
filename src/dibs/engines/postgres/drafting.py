"""New tasks as the arrays that the function `enqueue` takes, without a record in between.

This is `moves.admit` for tasks that nothing can stand in the way of; what depends on the clock is left to the store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from dibs.core.settings import FALLBACK, resolve
from dibs.core.task import NewTask, QueueState
from dibs.core.times import DAY, MS, Instant
from dibs.engines.postgres.catalog import Catalog, Missing, StreamKey, band_of
from dibs.engines.postgres.rows import Facts, encode, partition_key

__all__ = ["draft", "first_day", "is_plain"]

VERSION_AT = 14
"""Where an id tells its version."""
SLACK_DAYS = 1
"""By how much the clock of whoever made an id may be ahead."""


class Draft(Struct, frozen=True):
    """What follows from all that alike tasks have in common."""

    stream: int
    offset: int
    rerank_in: int | None
    lease_for: int
    facts: bytes
    partition: str | None


def is_plain(catalog: Catalog, new: NewTask) -> bool:
    """Whether nothing can stand in the way of a task. Most are of this kind."""
    if new.key is not None or new.after or new.deadline is not None or new.workflow is not None:
        return False
    queue = catalog.queues.get(new.queue)
    if queue is None:  # to be made, unless the task turns out to be known
        return False
    settings = queue.settings
    return (
        queue.state is not QueueState.DRAINING
        and settings.max_depth is None
        and settings.enqueue_rate is None
        and not queue.is_guarded
    )


def draft(catalog: Catalog, tasks: Sequence[NewTask]) -> list[list[Any]]:
    """The columns, in the order in which the function takes them; raises `Missing` for streams that there are not.

    Batches are mostly of one kind: what follows from it is worked out once for each run.
    """
    columns: list[list[Any]] = [[] for _ in range(11)]
    appends = [column.append for column in columns]
    add_id, add_stream, add_offset, add_delay, add_at, add_rerank, add_lease, add_expiry, add_partition = appends[:9]
    add_args, add_facts = appends[9:]
    last: tuple[object, ...] = ()
    made: Draft | None = None
    missing: dict[StreamKey, None] = {}
    for new in tasks:
        kind = (
            new.queue, new.name, new.requires, new.priority, new.options, new.app_options, new.parent, new.metadata,
            new.headers, new.tenant, new.takes, new.partition, new.expires_at,
        )  # fmt: skip
        if made is None or kind != last:
            last, made = kind, draft_one(catalog, new, missing)
        add_id(new.id)
        add_stream(made.stream)
        add_offset(made.offset)
        add_delay(new.delay)
        add_at(new.at)
        add_rerank(made.rerank_in)
        add_lease(made.lease_for)
        add_expiry(new.expires_at)
        add_partition(made.partition)
        add_args(new.args)
        add_facts(made.facts)
    if missing:
        raise Missing([], list(missing))
    return columns


def draft_one(catalog: Catalog, new: NewTask, missing: dict[StreamKey, None]) -> Draft:
    queue = catalog.queues[new.queue]
    settings = queue.settings
    ranking = catalog.ranking(queue, new.priority)
    key = (new.queue, new.name, new.requires, ranking.lane, queue.epoch, settings.fair, band_of(new, ranking.lane))
    stream = catalog.numbers.get(key)
    if stream is None:
        missing[key] = None
    options = resolve(new.options, new.app_options, settings, new.priority)
    facts = Facts(
        priority=new.priority,
        options=None if options is FALLBACK else options,
        metadata=new.metadata,
        headers=new.headers,
        parent=new.parent,
        partition=new.partition,
        tenant=new.tenant,
        expires_at=new.expires_at,
        takes=new.takes,
    )
    partition = None if new.partition is None else partition_key(new.queue, new.partition)
    return Draft(stream or 0, ranking.offset, ranking.rerank_in, options.lease, encode(facts), partition)


def first_day(ids: Sequence[str], now: Instant | None) -> int:
    """The first day on which any of these tasks can have ended, were they known: their ids tell when they were made."""
    if any(task_id[VERSION_AT] != "7" for task_id in ids):
        return 0
    made_at = (UUID(min(ids)).int >> 80) * MS
    present = time.time_ns() // 1000 if now is None else now
    return 0 if made_at > present + DAY else made_at // DAY - SLACK_DAYS
