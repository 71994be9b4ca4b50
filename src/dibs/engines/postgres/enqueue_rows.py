"""New tasks as the arrays that the function `enqueue` takes, without building records.

This is `moves.admit` for tasks that can't be refused or deduplicated; the store adds what depends on its clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dibs.core.settings import resolve
from dibs.core.task import NewTask, QueueState, is_like
from dibs.core.times import DAY, MS, Instant
from dibs.engines.catalog import TrackKey
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.facts import facts_for
from dibs.engines.decisions.partition import Partition
from dibs.engines.postgres.catalog import Catalog, Missing, band_of

__all__ = ["draft", "draft_row", "first_day", "is_plain"]

VERSION_AT = 14
"""Where an id has its version."""
SLACK_DAYS = 1
"""How many days the clock of an id's maker may be ahead."""


Draft = tuple[int, int, int, Instant | None, int | None, int, Instant | None, str | None, bytes]
"""What a run of like tasks has in common: track, rank offset, delay, instant, rerank_in, lease, expiry, partition,
facts."""


def is_plain(catalog: Catalog, new: NewTask) -> bool:
    """Whether a task can be stored without a decision. Most can."""
    if new.spec.key is not None or new.after or new.spec.deadline is not None or new.spec.workflow is not None:
        return False
    queue = catalog.queues.get(new.queue)
    if queue is None:  # created only if the task is new
        return False
    settings = queue.settings
    return (
        queue.state is not QueueState.DRAINING
        and settings.max_depth is None
        and settings.enqueue_rate is None
        and not queue.is_guarded
    )


def draft(catalog: Catalog, tasks: Sequence[NewTask]) -> list[Sequence[Any]]:
    """The columns, in the order of the function's parameters; raises `Missing` for tracks that do not exist.

    Most batches are of one kind: shared columns are computed once for each run of tasks.
    """
    numbers: list[int] = []
    drafts: list[Draft] = []
    missing: dict[TrackKey, None] = {}
    last: NewTask | None = None
    for new in tasks:
        if last is None or not is_like(new, last):
            last = new
            drafts.append(draft_row(catalog, new, missing))
        numbers.append(len(drafts))
    if missing:
        raise Missing([], list(missing))
    return [[new.id for new in tasks], numbers, [new.args for new in tasks], *zip(*drafts, strict=True)]


def draft_row(catalog: Catalog, new: NewTask, missing: dict[TrackKey, None]) -> Draft:
    """The shared columns of a task; its track is added to `missing` if it does not exist."""
    queue = catalog.queues[new.queue]
    settings = queue.settings
    ranking = catalog.ranking(queue, new.spec.priority)
    key = (new.queue, new.name, new.requires, ranking.lane, queue.epoch, settings.fair, band_of(new, ranking.lane))
    track = catalog.numbers.get(key)
    if track is None:
        missing[key] = None
    options = resolve(new.options, new.app_options, settings, new.spec.priority)
    facts = facts_for(new, options)
    partition = None if new.spec.partition is None else Partition(new.queue, new.spec.partition).key
    rerank_in, lease, expires_at = ranking.rerank_in, options.lease, new.spec.expires_at
    return (track or 0, ranking.offset, new.delay, new.at, rerank_in, lease, expires_at, partition, encode(facts))


def first_day(ids: Sequence[str], now: Instant | None) -> int:
    """The first day on which any of these tasks can have ended if it is known, according to the times in their ids."""
    if any(task_id[VERSION_AT] != "7" for task_id in ids):
        return 0
    first = min(ids)
    made_at = int(first[:8] + first[9:13], 16) * MS
    present = time.time_ns() // 1000 if now is None else now
    return 0 if made_at > present + DAY else made_at // DAY - SLACK_DAYS
