"""Where partitions are limited: which of their pending tasks claims read.

Pending tasks of such a queue are stored *gated*: in the index, but apart from what claims read. In each partition with
headroom the best task of each track and share, its head, is ungated. What must hold after each transaction:

- If a partition has headroom, the best pending task of each track and share in it is not gated.
- If it has no token and pending tasks, `refill_at` says when it has one.

More tasks may be ungated (one that a better task has overtaken, or one in a partition that is now full): a claim checks
the headroom of each candidate, and gates those that may not start. So a full partition delays no other, however deep it
is, and only one task at a time is ungated.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from dibs.core.limits import Bucket, refill, until_token
from dibs.core.settings import Limit
from dibs.core.times import Duration, Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.steps import Done, Step, gone_on
from dibs.engines.decisions.transaction import Queue
from dibs.engines.sqlite.headroom import partition_headrooms
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["GATE_BUDGET", "gate", "next_refill", "open_refilled", "promote_heads", "reorder_some"]

GATE_BUDGET = 1000
"""Tasks that one claim gates, and partitions that it opens."""

REFILLS_READ = 50
"""Refills that are read at a time to find the next one that matters."""


class Gated(Struct, array_like=True, frozen=True):
    """A gated task."""

    id: str
    track: int
    share: str


class Refill(Struct, array_like=True, frozen=True):
    """A partition that gets a token, and its bucket. `pending`: a task waits for it."""

    partition: str
    level: int
    at: Instant
    pending: int


GATED = RowDecoder(Gated, "task")
REFILLS = RowDecoder(Refill, "limit of partition")
texts_decoder = msgspec.json.Decoder(list[str])


def promote_heads(transaction: Transaction) -> None:
    """Ungate the heads of the partitions that have changed, where there is headroom."""
    for queue, touched in transaction.partitions.items():
        limit = transaction.settings(queue).per_partition
        if limit is not None:
            partitions = list(touched) if limit.rate is None else with_tokens(transaction, queue, limit, list(touched))
            if partitions:
                passed = to_json(transaction.passed_over)
                asked = (to_json([each.key for each in partitions]), limit.max_concurrent, passed)
                ungate(transaction, transaction.many(GATED, "gated_heads", *asked))
    transaction.partitions.clear()


def with_tokens(transaction: Transaction, queue: str, limit: Limit, partitions: list[Partition]) -> list[Partition]:
    """Those of some partitions that have a token; for the others, save when they will."""
    headrooms = partition_headrooms(transaction, queue, limit, partitions)
    empty = [
        (*each, headroom.full.level, headroom.full.at, transaction.now + refills_in, each.key)
        for each, headroom in headrooms.items()
        if headroom.full is not None and (refills_in := headroom.refills_in) is not None
    ]
    if empty:
        transaction.run("save_refills", to_json(empty))
    return [each for each, headroom in headrooms.items() if not headroom.has_no_token]


def ungate(transaction: Transaction, tasks: list[Gated]) -> None:
    if tasks:
        transaction.run("ungate", to_json([task.id for task in tasks]))
        for task in tasks:
            if transaction.catalog.tracks[task.track].fair:
                transaction.turns[task.track, task.share] = None


def gate(transaction: Transaction, ids: Iterable[str]) -> None:
    """Gate tasks that a claim found in full partitions."""
    transaction.run("gate", to_json(list(ids)))


def open_refilled(transaction: Transaction, queues: Iterable[Queue]) -> bool:
    """Mark the partitions that have a token by now as changed; True if there may be more of them."""
    left = GATE_BUDGET
    for queue in queues:
        limit = queue.settings.per_partition
        if limit is not None and limit.rate is not None and left > 0:
            due = texts_decoder.decode(transaction.value("refills_due", queue.name, transaction.now, left))
            if due:
                transaction.run("forget_refills", to_json(due), queue.name)
            for name in due:
                transaction.mark_changed(Partition(queue.name, name))
            left -= len(due)
    return left == 0


def next_refill(transaction: Transaction, queue: str, limit: Limit) -> Duration | None:
    """In how long a partition that has pending tasks gets a token. Refills that no task waits for are deleted."""
    while True:
        found = transaction.many(REFILLS, "refills", queue, REFILLS_READ)
        idle = [each.partition for each in found if not each.pending]
        if idle:
            transaction.run("forget_refills", to_json(idle), queue)
        buckets = [refill(Bucket(each.level, each.at), limit, transaction.now) for each in found if each.pending]
        if buckets or len(found) < REFILLS_READ:
            return min((until_token(bucket, limit) for bucket in buckets), default=None)


def reorder_some(transaction: Transaction, follow_ups: list[Step], most: int) -> Done:
    """A queue's limit on partitions has changed: reorder all of them, some at a time."""
    follow_up = follow_ups[0]
    if transaction.settings(follow_up.about).per_partition is None:
        done = ungate_all(transaction, follow_up.about, most)
        return max(1, done), follow_ups if done == most else follow_ups[1:]
    after = follow_up.after or Partition(follow_up.about, "").key
    found = texts_decoder.decode(transaction.value("partitions", follow_up.about, after, most))
    for key in found:
        transaction.mark_changed(Partition.parse(key))
    return gone_on(follow_ups, found, most)


def ungate_all(transaction: Transaction, queue: str, most: int) -> int:
    """Ungate some tasks of a queue whose partitions are no longer limited."""
    done = 0
    for track in transaction.catalog.by_queue[queue]:
        if done < most:
            tasks = transaction.many(GATED, "gated_of", track.number, most - done)
            ungate(transaction, tasks)
            done += len(tasks)
    return done
