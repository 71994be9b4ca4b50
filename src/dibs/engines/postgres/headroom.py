"""How much more the limits of queues, task names and partitions allow.

Slots are running tasks, counted in the index of leases or of partitions; tokens are in `buckets`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from dibs.core.limits import Bucket, Scope, limit_of
from dibs.core.settings import Limit
from dibs.engines.decisions.headroom import Headroom, Whose, headroom_of
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.head_pages import NeedMore, NotRead
from dibs.engines.postgres.transaction import Snapshot
from dibs.engines.verbs.reading import BUCKETS

__all__ = ["Headrooms"]


class Headrooms:
    """The limits of some queues, as far as they were read."""

    def __init__(self, snapshot: Snapshot, queues: Iterable[Queue]) -> None:
        self.snapshot = snapshot
        self.queues = {queue.name: queue for queue in queues if queue.settings.limits_starts}
        self.known: dict[Whose, Headroom | None] = {}

    @classmethod
    async def of(cls, snapshot: Snapshot, queues: Iterable[Queue]) -> Headrooms:
        """The limits on queues and on names. Those of partitions are read when a choice needs them."""
        headrooms = cls(snapshot, queues)
        for queue in headrooms.queues.values():
            await headrooms.read_queue(queue)
        return headrooms

    async def read_queue(self, queue: Queue) -> None:
        whose = [(Scope.QUEUE, ""), *((Scope.TASK, name) for name in queue.settings.per_task)]
        limited = [(scope, name, limit) for scope, name in whose if (limit := limit_of(queue.settings, scope, name))]
        if not limited:
            return
        running = await self.snapshot.running_by_name(queue.name)
        found = await self.snapshot.read(BUCKETS, [(queue.name, scope, name) for scope, name, _ in limited])
        buckets = {(each.scope, each.whose): Bucket(each.level, each.at) for each in found}
        for scope, name, limit in limited:
            self.add((queue.name, scope, name), limit, running.get(name, 0), buckets.get((scope, name)))

    def add(self, whose: Whose, limit: Limit, running: int, bucket: Bucket | None) -> None:
        self.known[whose] = headroom_of(limit, running, bucket, self.snapshot.now)

    async def know(self, partitions: Iterable[Partition]) -> None:
        """Read the headroom of some partitions."""
        by_queue: dict[str, list[str]] = {}
        for partition in partitions:
            by_queue.setdefault(partition.queue, []).append(partition.key)
        for queue, keys in by_queue.items():
            limit = self.snapshot.settings(queue).per_partition
            for row in await self.snapshot.rows("partition_loads", keys, queue):
                whose = (queue, Scope.PARTITION, Partition.parse(row["partition"]).name)
                bucket = None if row["level"] is None else Bucket(row["level"], row["at"])
                if limit is None:
                    self.known[whose] = None
                else:
                    self.add(whose, limit, row["running"], bucket)

    def unknown(self, partitions: Iterable[Partition]) -> list[Partition]:
        """The partitions among these that were not read."""
        return [each for each in partitions if (each.queue, Scope.PARTITION, each.name) not in self.known]

    def copy(self) -> Headrooms:
        """A copy for a choice, which counts its starts there."""
        other = Headrooms(self.snapshot, self.queues.values())
        other.known = {
            whose: headroom and structs.replace(headroom, started=0) for whose, headroom in self.known.items()
        }
        return other

    def headroom(self, queue: Queue, scope: Scope, whose: str) -> Headroom | None:
        key = (queue.name, scope, whose)
        if scope is Scope.PARTITION and key not in self.known:
            if queue.settings.per_partition is None:
                return None
            raise NotRead(NeedMore(partitions=(Partition(queue.name, whose),)))
        return self.known.get(key)

    def is_full(self, queue: Queue, scope: Scope, whose: str) -> bool:
        if queue.name not in self.queues:
            return False
        headroom = self.headroom(queue, scope, whose)
        return headroom is not None and headroom.is_full

    def take(self, queue: Queue, name: str, partition: Partition | None) -> list[tuple[Whose, Headroom]]:
        """A task starts: it takes a slot and a token of each of its limits."""
        if queue.name not in self.queues:
            return []
        counted: list[tuple[Whose, Headroom]] = []
        scopes = [(Scope.QUEUE, ""), (Scope.TASK, name)]
        if partition is not None:
            scopes.append((Scope.PARTITION, partition.name))
        for scope, whose in scopes:
            headroom = self.headroom(queue, scope, whose)
            if headroom is not None:
                headroom.started += 1
                counted.append(((queue.name, scope, whose), headroom))
        return counted
