"""How much more the limits of queues, task names and partitions allow.

Slots are running tasks: those of a queue or a name come from the counts, those of a partition are counted in its index.
Tokens are in dibs_buckets.
"""

from __future__ import annotations

from collections.abc import Iterable

from dibs.core.limits import Bucket, Scope, limit_of
from dibs.core.settings import Limit
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.headroom import Headroom, Whose, headroom_of
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.sqlite.transaction import Snapshot, Transaction, decoder_of
from dibs.engines.verbs import reading

__all__ = ["Headrooms", "partition_headrooms"]


BUCKETS = decoder_of(reading.BUCKETS)
LOADS = decoder_of(reading.PARTITION_LOADS)


class Headrooms:
    """What limits allow in one claim, read on demand."""

    def __init__(self, transaction: Transaction, queues: Iterable[Queue]) -> None:
        self.transaction = transaction
        self.headrooms: dict[Whose, Headroom | None] = {}
        limited = [queue for queue in queues if queue.settings.limits_starts]
        if limited:
            self.find(limited)

    def find(self, queues: list[Queue]) -> None:
        """Read what the limits of whole queues and of task names allow."""
        wanted = [(queue, Scope.QUEUE, "") for queue in queues]
        wanted += [(queue, Scope.TASK, name) for queue in queues for name in queue.settings.per_task]
        limits = [(queue, scope, whose, limit_of(queue.settings, scope, whose)) for queue, scope, whose in wanted]
        rates = [(queue.name, scope, whose) for queue, scope, whose, limit in limits if limit and limit.rate]
        buckets = find_buckets(self.transaction, rates) if rates else {}
        slots = any(limit and limit.max_concurrent for *_, limit in limits)
        running = self.transaction.running() if slots else {}
        for queue, scope, whose, limit in limits:
            key, runs = (queue.name, scope, whose), running.get((queue.name, whose), 0)
            if limit is not None:
                self.headrooms[key] = headroom_of(limit, runs, buckets.get(key), self.transaction.now)

    def know(self, queue: Queue, partitions: Iterable[Partition]) -> None:
        """Read the headroom of some partitions of one queue."""
        limit = queue.settings.per_partition
        new = [each for each in partitions if (queue.name, Scope.PARTITION, each.name) not in self.headrooms]
        if limit is not None and new:
            for each, headroom in partition_headrooms(self.transaction, queue.name, limit, new).items():
                self.headrooms[queue.name, Scope.PARTITION, each.name] = headroom

    def of(self, queue: str, scope: Scope, whose: str) -> Headroom | None:
        """None if there is no such limit."""
        return self.headrooms.get((queue, scope, whose))

    def of_task(self, queue: str, name: str, partition: Partition | None) -> list[Headroom]:
        """All limits on the start of a task."""
        found = [self.of(queue, Scope.QUEUE, ""), self.of(queue, Scope.TASK, name)]
        if partition is not None:
            found.append(self.of(queue, Scope.PARTITION, partition.name))
        return [headroom for headroom in found if headroom is not None]

    def save(self) -> None:
        """Write the spent tokens."""
        rows, partitions = [], []
        for (queue, scope, whose), headroom in self.headrooms.items():
            if headroom is None or headroom.full is None or not headroom.started:
                continue
            bucket = headroom.spent(headroom.started)
            if scope is Scope.PARTITION:
                refills_in = headroom.refills_in
                refill_at = None if refills_in is None else self.transaction.now + refills_in
                partitions.append((queue, Partition(queue, whose).key, bucket.level, bucket.at, refill_at))
            else:
                rows.append((queue, scope, whose, bucket.level, bucket.at, None))
        if rows:
            self.transaction.run("save_buckets", to_json(rows))
        if partitions:
            self.transaction.run("save_partition_buckets", to_json(partitions))


def partition_headrooms(
    snapshot: Snapshot, queue: str, limit: Limit, partitions: list[Partition]
) -> dict[Partition, Headroom]:
    """What the limit of one queue still allows in some of its partitions."""
    loads = snapshot.many(LOADS, "partition_loads", to_json([each.key for each in partitions]), queue)
    found = {}
    for load in loads:
        partition = Partition.parse(load.partition)
        rows = [] if load.at is None else [(queue, Scope.PARTITION, partition.name, load.level, load.at)]
        stored = BUCKETS.one_by_one(rows, snapshot.aside)
        bucket = Bucket(stored[0].level, stored[0].at) if stored else None
        found[partition] = headroom_of(limit, load.running, bucket, snapshot.now)
    return found


def find_buckets(snapshot: Snapshot, wanted: list[Whose]) -> dict[Whose, Bucket]:
    """Token buckets, without those that can't be read, which count as new."""
    found = snapshot.many(BUCKETS, "buckets", to_json(wanted))
    return {(each.queue, each.scope, each.whose): Bucket(each.level, each.at) for each in found}
