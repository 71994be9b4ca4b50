"""Tokens of clients (`enqueue_rate`) that are kept beside the store: taken before a transaction, and spent in it.

So producers of one client don't wait for each other at the row of its bucket, and tasks that are plain but for their
limit are stored by one statement. What was not spent is given back. A call that fails may cost its tokens.
"""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from dibs.core.limits import TOKEN, Scope, client_limit
from dibs.core.task import NewTask
from dibs.core.times import Instant
from dibs.engines.accelerator import Accelerator, Ask
from dibs.engines.decisions.enqueueing import Known
from dibs.engines.postgres.catalog import Catalog

__all__ = ["Tokens", "Untaken", "take_tokens"]

BucketRow = tuple[str, str, int, Instant]
"""Queue, client, level, at."""


class Untaken(Exception):
    """A limit is new or has changed since tokens were taken. An exception, because it must roll back."""


class Tokens:
    """What was taken for one call. A level is in millionths."""

    def __init__(self, accelerator: Accelerator, asks: Sequence[Ask], answers: Sequence[tuple[int, int]]) -> None:
        self.accelerator = accelerator
        self.asks = asks
        self.is_all = all(taken == ask.count for ask, (taken, _) in zip(asks, answers, strict=True))
        self.levels: dict[tuple[str, str], int] = {}
        """What the transaction may spend. The fraction of a token says when there will be a whole one."""
        for ask, (taken, left) in zip(asks, answers, strict=True):
            self.levels[ask.bucket] = taken * TOKEN + (left if taken < ask.count else 0)
        self.unspent: dict[tuple[str, str], int] = dict(self.levels)

    def pay(self, stored: Iterable[NewTask]) -> None:
        """These have been stored without a decision."""
        for new in stored:
            if (new.queue, new.client) in self.levels:
                self.levels[new.queue, new.client] -= TOKEN

    def fits(self, catalog: Catalog) -> bool:
        """Whether these are still the limits."""
        return all(client_limit(catalog.settings(ask.bucket[0])) == ask.limit for ask in self.asks)

    def rows(self, asked: Sequence[tuple[str, str]], catalog: Catalog, now: Instant) -> list[BucketRow]:
        """The statement `client_buckets`."""
        self.unspent = dict(self.levels)
        if not self.levels.keys() >= {*asked} or not self.fits(catalog):
            raise Untaken
        return [(*each, self.levels[each], now) for each in asked]

    def spend(self, rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The statement `save_buckets`: the rows that are not about these buckets."""
        rest = []
        for row in rows:
            queue, scope, whose, level, *_ = row
            if scope is Scope.CLIENT and (queue, whose) in self.levels:
                self.unspent[queue, whose] = level
            else:
                rest.append(row)
        return rest

    async def give_back(self, now: Instant | None) -> None:
        asks = [structs.replace(ask, count=-(self.unspent[ask.bucket] // TOKEN)) for ask in self.asks]
        if given := [ask for ask in asks if ask.count]:
            await self.accelerator.take(given, now)


async def take_tokens(
    accelerator: Accelerator | None, catalog: Catalog, tasks: Sequence[NewTask], now: Instant | None
) -> Tokens | None:
    """None if the store has to keep the buckets."""
    if accelerator is None:
        return None
    limited = Known(tasks, catalog.queues, 0).limited_clients()
    if not limited:
        return Tokens(accelerator, (), ())
    counts = Totals((new.queue, new.client) for new in tasks)
    asks = [Ask((queue, client), limit, counts[queue, client]) for queue, client, limit in limited]
    answers = await accelerator.take(asks, now)
    return None if answers is None else Tokens(accelerator, asks, answers)
