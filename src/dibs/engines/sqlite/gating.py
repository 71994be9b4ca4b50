"""Partitions with a limit: who is in front, and who waits behind.

Where partitions are limited, pending tasks come in *gated*: in the index, but apart from what claims read. In each
partition that has room the best task of each kind and share is let forward. What must hold after each transaction:

- If a partition has room, the best pending task of each stream and share in it is not gated.
- If it has no token and pending tasks, `opens_at` says when it has one.

More may be ungated than that (a task that was overtaken by a better one, or a partition that has become full): a claim
checks the room of each candidate, and gates those it meets in vain. So a full partition is in nobody's way, however
deep it is, and what is let forward is one task at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from dibs.core.limits import Bucket, refill, until_token
from dibs.core.settings import Limit
from dibs.core.times import Duration, Instant
from dibs.engines.deciding.encoding import to_json
from dibs.engines.deciding.errands import Done, Errand, gone_on
from dibs.engines.deciding.facts import partition_key
from dibs.engines.sqlite.catalog import Queue
from dibs.engines.sqlite.rooms import partition_rooms
from dibs.engines.sqlite.shapes import RowDecoder
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["GATE_BUDGET", "gate", "let_forward", "next_opening", "open_refilled", "regate_some"]

GATE_BUDGET = 1000
"""Tasks that one claim gates, and partitions that it opens."""

LOOK = 50
"""Openings that are looked at together for the next one that matters."""


class Gated(Struct, array_like=True, frozen=True):
    """A task behind the gate."""

    id: str
    stream: int
    share: str


class Opening(Struct, array_like=True, frozen=True):
    """A partition that gets a token, and its bucket. `pending`: some task waits for it."""

    partition: str
    level: int
    at: Instant
    pending: int


GATED = RowDecoder(Gated, "task")
OPENINGS = RowDecoder(Opening, "limit of partition")
texts_decoder = msgspec.json.Decoder(list[str])


def let_forward(transaction: Transaction) -> None:
    """In the partitions that were touched, let the best tasks forward where there is room."""
    for queue, touched in transaction.partitions.items():
        limit = transaction.settings(queue).per_partition
        if limit is not None:
            partitions = list(touched) if limit.rate is None else with_tokens(transaction, queue, limit, list(touched))
            if partitions:
                asked = (to_json(partitions), limit.max_concurrent, transaction.passed_over())
                ungate(transaction, transaction.many(GATED, "gated_heads", *asked))
    transaction.partitions.clear()


def with_tokens(transaction: Transaction, queue: str, limit: Limit, partitions: list[str]) -> list[str]:
    """Those of some partitions that have a token; of the others it is noted when they will."""
    rooms = partition_rooms(transaction, queue, limit, partitions)
    shut = [
        (queue, key[len(queue) + 1 :], room.full.level, room.full.at, transaction.now + opens_in, key)
        for key, room in rooms.items()
        if room.full is not None and (opens_in := room.opens_in) is not None
    ]
    if shut:
        transaction.write("save_openings", to_json(shut))
    return [key for key, room in rooms.items() if not room.has_no_token]


def ungate(transaction: Transaction, tasks: list[Gated]) -> None:
    if tasks:
        transaction.write("ungate", to_json([task.id for task in tasks]))
        for task in tasks:
            if transaction.catalog.streams[task.stream].fair:
                transaction.turns[task.stream, task.share] = None


def gate(transaction: Transaction, ids: Iterable[str]) -> None:
    """Tasks that a claim met in vain."""
    transaction.write("gate", to_json(list(ids)))


def open_refilled(transaction: Transaction, queues: Iterable[Queue]) -> bool:
    """Partitions that have got a token by now are touched; True if there may be more of them."""
    left = GATE_BUDGET
    for queue in queues:
        limit = queue.settings.per_partition
        if limit is not None and limit.rate is not None and left > 0:
            due = texts_decoder.decode(transaction.value("openings_due", queue.name, transaction.now, left))
            if due:
                transaction.write("forget_openings", to_json(due), queue.name)
            for partition in due:
                transaction.touch(queue.name, partition_key(queue.name, partition))
            left -= len(due)
    return left == 0


def next_opening(transaction: Transaction, queue: str, limit: Limit) -> Duration | None:
    """In how long a partition that has pending tasks gets a token. Openings that nobody waits for are forgotten."""
    while True:
        found = transaction.many(OPENINGS, "openings", queue, LOOK)
        idle = [opening.partition for opening in found if not opening.pending]
        if idle:
            transaction.write("forget_openings", to_json(idle), queue)
        buckets = [refill(Bucket(each.level, each.at), limit, transaction.now) for each in found if each.pending]
        if buckets or len(found) < LOOK:
            return min((until_token(bucket, limit) for bucket in buckets), default=None)


def regate_some(transaction: Transaction, errands: list[Errand], most: int) -> Done:
    """A queue's limit on partitions has changed: all of them are looked at again, in order."""
    errand = errands[0]
    if transaction.settings(errand.about).per_partition is None:
        done = ungate_all(transaction, errand.about, most)
        return max(1, done), errands if done == most else errands[1:]
    after = errand.after or partition_key(errand.about, "")
    found = texts_decoder.decode(transaction.value("partitions", errand.about, after, most))
    for partition in found:
        transaction.touch(errand.about, partition)
    return gone_on(errands, found, most)


def ungate_all(transaction: Transaction, queue: str, most: int) -> int:
    """Some tasks of a queue without such a limit are gated no longer."""
    done = 0
    for stream in transaction.catalog.by_queue[queue]:
        if done < most:
            tasks = transaction.many(GATED, "gated_of", stream.number, most - done)
            ungate(transaction, tasks)
            done += len(tasks)
    return done
