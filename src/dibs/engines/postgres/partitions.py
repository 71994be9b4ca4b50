"""Where partitions are limited: which of their pending tasks are in the index that claims read.

Of each partition, track and share at most the best task, the head, is in that index; the others are gated, outside it.
A full partition has no head in it at all. Every move of a pending or running task of such a queue marks its partition
as changed, and the end of the transaction reorders the changed partitions, with the queue's lock held.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dibs.core.limits import Bucket, Scope, refill, tokens, until_token
from dibs.core.settings import Limit
from dibs.core.times import Duration
from dibs.engines.decisions.headroom import Headroom
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.steps import Done, Step, gone_on
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.headroom import Headrooms
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Transaction

__all__ = ["mark_changed_again", "next_refill", "open_refilled", "promote_heads", "reorder_some"]

texts_decoder = msgspec.json.Decoder(list[str])

REFILLS_READ = 100
"""Refills that are read to find the next one."""
REFILLS = 1000
"""Partitions of a queue that one claim opens because they have a token again."""


async def promote_heads(transaction: Transaction) -> None:
    """Reorder the partitions that have changed: ungate the heads where there is headroom, and gate all others."""
    touched, transaction.partitions = transaction.partitions, {}
    for name, partitions in touched.items():
        queue = transaction.catalog.queues.get(name)
        if queue is not None:
            await reorder(transaction, queue, list(partitions))


async def reorder(transaction: Transaction, queue: Queue, partitions: list[Partition]) -> None:
    headrooms = Headrooms(transaction, [queue])
    await headrooms.know(partitions)
    by_partition = {each: headrooms.known[each.queue, Scope.PARTITION, each.name] for each in partitions}
    full = {each for each, headroom in by_partition.items() if headroom is not None and headroom.is_full}
    with_headroom = [each.key for each in partitions if each not in full]
    await transaction.write("gate", with_headroom, [each.key for each in full], transaction.passed_over)
    refills: list[tuple[str, str, int | None]] = []
    for partition, headroom in by_partition.items():
        if headroom is not None and headroom.full is not None:
            refills.append((partition.queue, partition.name, refill_at(transaction, headroom)))
    if refills:
        await transaction.write("save_refills", *columns(refills, 3))


def refill_at(transaction: Transaction, headroom: Headroom) -> int | None:
    """When to check a partition without a token again: a little early, because rounding must not make it late."""
    wait = headroom.refills_in
    return None if wait is None else transaction.now + max(0, wait - wait // 1000 - 2)


async def open_refilled(transaction: Transaction, queues: Iterable[Queue]) -> None:
    """Reorder the partitions that may have a token by now."""
    for queue in queues:
        limit = queue.settings.per_partition
        if limit is not None and limit.rate is not None:
            for row in await transaction.rows("refills_due", queue.name, transaction.now, REFILLS):
                transaction.mark_changed(Partition(queue.name, row["whose"]))
    if transaction.partitions:
        await promote_heads(transaction)


async def next_refill(transaction: Transaction, queue: str, limit: Limit) -> Duration | None:
    """In how long a partition that has pending tasks gets a token."""
    rows = await transaction.rows("refills", queue, REFILLS_READ)
    buckets = [refill(Bucket(row["level"], row["at"]), limit, transaction.now) for row in rows]
    return min((until_token(bucket, limit) for bucket in buckets if tokens(bucket) == 0), default=None)


async def reorder_some(transaction: Transaction, follow_ups: list[Step], most: int) -> Done:
    """A queue's limit on partitions has changed: reorder all of them, some at a time."""
    follow_up = follow_ups[0]
    if transaction.settings(follow_up.about).per_partition is None:
        tracks = [track.number for track in transaction.catalog.of_queue(follow_up.about)]
        done = await transaction.write("ungate", tracks, most)
        return max(1, done), follow_ups if done == most else follow_ups[1:]
    start = Partition(follow_up.about, "").key
    rows = await transaction.rows("partitions", start, follow_up.after or start, most)
    found = [row[0] for row in rows]
    if found:
        await transaction.write("guard", found)
    for key in found:
        transaction.mark_changed(Partition.parse(key))
    return gone_on(follow_ups, found, most)


async def mark_changed_again(transaction: Transaction, follow_ups: list[Step], most: int) -> Done:
    """Mark partitions as changed for a transaction that could not reorder them without the lock."""
    for follow_up in follow_ups:
        for key in texts_decoder.decode(follow_up.about):
            transaction.mark_changed(Partition.parse(key))
    return len(follow_ups), []
