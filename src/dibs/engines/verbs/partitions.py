"""Where partitions are limited: which of their pending tasks claims read.

Pending tasks of such a queue may be *gated*: apart from what claims read. In each partition with headroom the best
task of each track and share, its head, is ungated. What must hold after each transaction:

- If a partition has headroom, the best pending task of each track and share in it is not gated.
- If it has no token and pending tasks, `refill_at` says when it has one.

More tasks may be ungated (some of each group are ahead, and all stay so when their partition becomes full): a claim
checks the headroom of each candidate, and gates those that may not start. So a full partition delays no other, however
deep it is: nearly all of its tasks are gated, and as many are ungated as slots become free. And one that is never full
gates nothing, unless so many tasks wait that claims would read too far: then some are ungated at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from dibs.core.limits import Bucket, refill, until_token
from dibs.core.settings import Limit
from dibs.core.times import Duration, Instant
from dibs.engines.decisions.choosing import GATE_BUDGET
from dibs.engines.decisions.headroom import Headroom, headroom_of, most_ahead
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.steps import Done, Step, gone_on
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import Port, Read, View
from dibs.engines.verbs.reading import PARTITION_LOADS

__all__ = [
    "mark_changed_again",
    "next_refill",
    "open_refilled",
    "partition_headrooms",
    "pass_over",
    "promote_heads",
    "reorder_some",
]

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
    pending: bool | int


GATED_HEADS = Read("gated_heads", Gated, "task")
"""Takes keys of partitions, how many may run at once (None: any), how many to take at most and ids to skip: for each
track and share in those partitions that have a free slot, if its best pending task is gated, the first gated ones: at
least one, and so many as may soon be wanted."""
GATED_OF = Read("gated_of", Gated, "task")
"""Takes tracks and how many: some gated tasks."""
PARTITIONS = Read("partitions", str, "partition")
"""Takes a queue, the key to begin after and how many: keys of its partitions, in order."""
PARTITIONS_OF = Read("partitions_of", str, "partition")
"""Takes ids: the keys of the partitions of those that are pending."""
REFILLS = Read("refills", Refill, "limit of partition")
"""Takes a queue and how many: partitions that will get a token, soonest first."""
REFILLS_DUE = Read("refills_due", str, "limit of partition")
"""Takes a queue, now and how many: partitions that have a token by now."""

texts_decoder = msgspec.json.Decoder(list[str])


async def promote_heads(port: Port) -> None:
    """Ungate the heads of the partitions that have changed, where there is headroom."""
    changed, port.partitions = port.partitions, {}
    for queue, partitions in changed.items():
        limit = port.settings(queue).per_partition
        if limit is not None:
            free = list(partitions) if limit.rate is None else await with_tokens(port, queue, limit, list(partitions))
            if free:
                asked = ([each.key for each in free], limit.max_concurrent, most_ahead(limit), port.passed_over)
                await ungate(port, await port.read(GATED_HEADS, *asked), guarded=True)


async def with_tokens(port: Port, queue: str, limit: Limit, partitions: list[Partition]) -> list[Partition]:
    """Those of some partitions that have a token; for the others, save when they will."""
    headrooms = await partition_headrooms(port, queue, limit, partitions)
    empty = [
        (*each, headroom.full.level, headroom.full.at, port.now + refills_in)
        for each, headroom in headrooms.items()
        if headroom.full is not None and (refills_in := headroom.refills_in) is not None
    ]
    if empty:
        await port.write("save_refills", empty)
    return [each for each, headroom in headrooms.items() if not headroom.has_no_token]


async def partition_headrooms(
    view: View, queue: str, limit: Limit, partitions: Sequence[Partition]
) -> dict[Partition, Headroom]:
    """What the limit of one queue still allows in some of its partitions. An unreadable bucket counts as new."""
    found = {}
    for load in await view.read(PARTITION_LOADS, [each.key for each in partitions], queue):
        bucket = Bucket(load.level, load.at) if isinstance(load.level, int) and isinstance(load.at, int) else None
        if bucket is None and (load.level, load.at) != (None, None):
            view.aside.log_once(PARTITION_LOADS.what, load.partition, "its bucket is not made of whole numbers")
        found[Partition.parse(load.partition)] = headroom_of(limit, load.running, bucket, view.now)
    return found


async def ungate(port: Port, tasks: Sequence[Gated], *, guarded: bool) -> None:
    """`guarded`: moving these tasks still concerns others."""
    if tasks:
        await port.write("ungate", [task.id for task in tasks], guarded)
        for task in tasks:
            port.give_turn(task.track, task.share)


async def open_refilled(port: Port, queues: Iterable[Queue]) -> bool:
    """Mark the partitions that have a token by now as changed; True if there may be more of them."""
    left = GATE_BUDGET
    for queue in queues:
        limit = queue.settings.per_partition
        if limit is not None and limit.rate is not None and left > 0:
            due = await port.read(REFILLS_DUE, queue.name, port.now, left)
            if due:
                await port.write("forget_refills", queue.name, due)
            for name in due:
                port.mark_changed(Partition(queue.name, name))
            left -= len(due)
    return left == 0


async def pass_over(port: Port, queues: Iterable[Queue]) -> None:
    """Where partitions are limited, mark those as changed whose tasks are set aside: others may go before them."""
    limited = {queue.name for queue in queues if queue.settings.per_partition is not None}
    if limited and port.aside.tasks:
        for key in await port.read(PARTITIONS_OF, port.passed_over):
            partition = Partition.parse(key)
            if partition.queue in limited:
                port.mark_changed(partition)


async def next_refill(port: Port, queue: str, limit: Limit) -> Duration | None:
    """In how long a partition that has pending tasks gets a token. Refills that no task waits for are deleted."""
    while True:
        found = await port.read(REFILLS, queue, REFILLS_READ)
        idle = [each.partition for each in found if not each.pending]
        if idle:
            await port.write("forget_refills", queue, idle)
        buckets = [refill(Bucket(each.level, each.at), limit, port.now) for each in found if each.pending]
        if buckets or len(found) < REFILLS_READ:
            return min((until_token(bucket, limit) for bucket in buckets), default=None)


async def reorder_some(port: Port, steps: list[Step], most: int) -> Done:
    """A queue's limit on partitions has changed: reorder all of them, some at a time."""
    step = steps[0]
    queue = step.about
    if port.settings(queue).per_partition is None:
        tasks = await port.read(GATED_OF, [track.number for track in port.all_tracks(queue)], most)
        await ungate(port, tasks, guarded=port.settings(queue).fair)
        return max(1, len(tasks)), steps if len(tasks) == most else steps[1:]
    found = await port.read(PARTITIONS, queue, step.after or Partition(queue, "").key, most)
    await port.guard(found)
    for key in found:
        port.mark_changed(Partition.parse(key))
    return gone_on(steps, found, most)


async def mark_changed_again(port: Port, steps: list[Step], most: int) -> Done:
    """Mark partitions as changed for a transaction that could not reorder them without the lock."""
    for step in steps:
        for key in texts_decoder.decode(step.about):
            port.mark_changed(Partition.parse(key))
    return len(steps), []
