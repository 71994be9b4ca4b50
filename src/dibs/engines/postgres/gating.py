"""Where partitions are limited: which of their pending tasks are where claims look.

Of each partition (and stream and share) at most the best task is in front; the others are gated, out of the index that
claims read. A partition that is full has nothing in front at all. Every move of a pending or running task of such a
queue touches its partition, and at the end of the transaction those that were touched are put in order. The queue's
lock is held.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dibs.core.limits import Bucket, Scope, refill, tokens, until_token
from dibs.core.settings import Limit
from dibs.core.times import Duration
from dibs.engines.deciding.errands import Done, Errand, gone_on
from dibs.engines.deciding.facts import partition_key
from dibs.engines.deciding.rooms import Room
from dibs.engines.postgres.catalog import Queue
from dibs.engines.postgres.rooms import Rooms
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Transaction

__all__ = ["let_forward", "next_opening", "open_refilled", "regate_some", "touch_again"]

texts_decoder = msgspec.json.Decoder(list[str])

LOOK = 100
OPENINGS = 1000


async def let_forward(transaction: Transaction) -> None:
    """Put the partitions that were touched in order: the best tasks forward where there is room, all others behind."""
    touched, transaction.partitions = transaction.partitions, {}
    for name, partitions in touched.items():
        queue = transaction.catalog.queues.get(name)
        if queue is not None:
            await put_in_order(transaction, queue, list(partitions))


async def put_in_order(transaction: Transaction, queue: Queue, partitions: list[str]) -> None:
    rooms = Rooms(transaction, [queue])
    await rooms.know(partitions)
    by_partition: dict[str, Room | None] = {p: rooms.known[queue.name, Scope.PARTITION, p] for p in partitions}
    open_ones = [p for p, room in by_partition.items() if room is None or room.left != 0]
    shut = [p for p in partitions if p not in set(open_ones)]
    await transaction.write("gate", open_ones, shut, transaction.passed_over)
    opens: list[tuple[str, str, int | None]] = []
    for partition, room in by_partition.items():
        if room is not None and room.full is not None:
            opens.append((queue.name, partition.partition(" ")[2], opens_at(transaction, room)))
    if opens:
        await transaction.write("save_openings", *columns(opens, 3))


def opens_at(transaction: Transaction, room: Room) -> int | None:
    """When to look at a partition that has no token again: a little early, for rounding must not make it late."""
    wait = room.opens_in
    return None if wait is None else transaction.now + max(0, wait - wait // 1000 - 2)


async def open_refilled(transaction: Transaction, queues: Iterable[Queue]) -> None:
    """Partitions that may have got a token by now are put in order."""
    for queue in queues:
        limit = queue.settings.per_partition
        if limit is not None and limit.rate is not None:
            for row in await transaction.rows("openings_due", queue.name, transaction.now, OPENINGS):
                transaction.touch(queue.name, partition_key(queue.name, row["whose"]))
    if transaction.partitions:
        await let_forward(transaction)


async def next_opening(transaction: Transaction, queue: str, limit: Limit) -> Duration | None:
    """In how long a partition that has pending tasks gets a token."""
    rows = await transaction.rows("openings", queue, LOOK)
    buckets = [refill(Bucket(row["level"], row["at"]), limit, transaction.now) for row in rows]
    return min((until_token(bucket, limit) for bucket in buckets if tokens(bucket) == 0), default=None)


async def regate_some(transaction: Transaction, errands: list[Errand], most: int) -> Done:
    """A queue's limit on partitions has changed: all of them are looked at again, in order."""
    errand = errands[0]
    if transaction.settings(errand.about).per_partition is None:
        streams = [stream.number for stream in transaction.catalog.of_queue(errand.about)]
        done = await transaction.write("ungate", streams, most)
        return max(1, done), errands if done == most else errands[1:]
    after = errand.after or partition_key(errand.about, "")
    rows = await transaction.rows("partitions", partition_key(errand.about, ""), after, most)
    found = [row[0] for row in rows]
    if found:
        await transaction.write("guard", found)
    for partition in found:
        transaction.touch(errand.about, partition)
    return gone_on(errands, found, most)


async def touch_again(transaction: Transaction, errands: list[Errand], most: int) -> Done:
    """Put partitions in order at the end of this transaction, as a transaction without the lock could not."""
    for errand in errands:
        for partition in texts_decoder.decode(errand.about):
            transaction.touch(partition.partition(" ")[0], partition)
    return len(errands), []
