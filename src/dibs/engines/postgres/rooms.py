"""How much more the limits of queues, task names and partitions allow.

Slots are running tasks, counted in the index of leases or of partitions; tokens are in `buckets`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from dibs.core.limits import Bucket, LimitState, Scope, limit_of, limit_state, limits_for
from dibs.core.settings import Limit
from dibs.core.task import TaskRecord
from dibs.engines.deciding.facts import partition_key
from dibs.engines.deciding.rooms import Room, Whose, room_of
from dibs.engines.postgres.catalog import Queue
from dibs.engines.postgres.pages import Short
from dibs.engines.postgres.transaction import Snapshot

__all__ = ["Rooms", "limits"]


class Rooms:
    """The limits of some queues, as far as they have been looked at. A partition is known with its queue in front."""

    def __init__(self, snapshot: Snapshot, queues: Iterable[Queue]) -> None:
        self.snapshot = snapshot
        self.queues = {queue.name: queue for queue in queues if queue.settings.limits_starts}
        self.known: dict[Whose, Room | None] = {}

    @classmethod
    async def of(cls, snapshot: Snapshot, queues: Iterable[Queue]) -> Rooms:
        """The limits on queues and on names. Partitions are looked at when they are met."""
        rooms = cls(snapshot, queues)
        for queue in rooms.queues.values():
            await rooms.read_queue(queue)
        return rooms

    async def read_queue(self, queue: Queue) -> None:
        whose = [(Scope.QUEUE, ""), *((Scope.TASK, name) for name in queue.settings.per_task)]
        limited = [(scope, name, limit) for scope, name in whose if (limit := limit_of(queue.settings, scope, name))]
        if not limited:
            return
        streams = {stream.number: stream.name for stream in self.snapshot.catalog.of_queue(queue.name)}
        running = dict(await self.snapshot.rows("running_by_stream", list(streams)))
        rows = await self.snapshot.rows(
            "buckets", queue.name, [each[0] for each in limited], [each[1] for each in limited]
        )
        buckets = {(row["scope"], row["whose"]): Bucket(row["level"], row["at"]) for row in rows}
        for scope, name, limit in limited:
            count = sum(n for stream, n in running.items() if scope is Scope.QUEUE or streams[stream] == name)
            self.add((queue.name, scope, name), limit, count, buckets.get((scope, name)))

    def add(self, whose: Whose, limit: Limit, running: int, bucket: Bucket | None) -> None:
        self.known[whose] = room_of(limit, running, bucket, self.snapshot.now)

    async def know(self, partitions: Iterable[str]) -> None:
        """Look at partitions."""
        by_queue: dict[str, list[str]] = {}
        for partition in partitions:
            by_queue.setdefault(partition.partition(" ")[0], []).append(partition)
        for queue, keys in by_queue.items():
            limit = self.snapshot.settings(queue).per_partition
            for row in await self.snapshot.rows("partition_loads", keys, queue):
                whose = (queue, Scope.PARTITION, row["partition"])
                bucket = None if row["level"] is None else Bucket(row["level"], row["at"])
                if limit is None:
                    self.known[whose] = None
                else:
                    self.add(whose, limit, row["running"], bucket)

    def unknown(self, partitions: Iterable[str]) -> list[str]:
        """Those that have not been looked at."""
        return [each for each in partitions if (each.partition(" ")[0], Scope.PARTITION, each) not in self.known]

    def copy(self) -> Rooms:
        """One to choose with: starts are counted in it."""
        other = Rooms(self.snapshot, self.queues.values())
        other.known = {whose: room and structs.replace(room, started=0) for whose, room in self.known.items()}
        return other

    def room(self, queue: Queue, scope: Scope, whose: str) -> Room | None:
        key = (queue.name, scope, whose)
        if scope is Scope.PARTITION and key not in self.known:
            if queue.settings.per_partition is None:
                return None
            raise Short(partitions=(whose,))
        return self.known.get(key)

    def is_full(self, queue: Queue, scope: Scope, whose: str) -> bool:
        if queue.name not in self.queues:
            return False
        room = self.room(queue, scope, whose)
        return room is not None and room.is_full

    def take(self, queue: Queue, name: str, partition: str | None) -> list[tuple[Whose, Room]]:
        """A task starts: it takes a slot, and a token, of each limit it stands under."""
        if queue.name not in self.queues:
            return []
        counted: list[tuple[Whose, Room]] = []
        scopes = [(Scope.QUEUE, ""), (Scope.TASK, name), *([] if partition is None else [(Scope.PARTITION, partition)])]
        for scope, whose in scopes:
            room = self.room(queue, scope, whose)
            if room is not None:
                room.started += 1
                plain = whose.partition(" ")[2] if scope is Scope.PARTITION else whose
                counted.append(((queue.name, scope, plain), room))
        return counted


async def limits(snapshot: Snapshot, task_id: str) -> list[LimitState]:
    """The limits that the start of a task stands under."""
    row = (await snapshot.find([task_id])).get(task_id)
    record = None if row is None else snapshot.read(row)
    queue = None if record is None else snapshot.catalog.queues.get(record.queue)
    if not isinstance(record, TaskRecord) or queue is None:
        return []
    streams = {stream.number: stream.name for stream in snapshot.catalog.of_queue(queue.name)}
    running = dict(await snapshot.rows("running_by_stream", list(streams)))
    found = []
    for scope, whose, limit in limits_for(queue.settings, record.name, record.partition):
        if scope is Scope.PARTITION:
            loads = await snapshot.rows("partition_loads", [partition_key(queue.name, whose)], queue.name)
            count = loads[0]["running"]
        else:
            count = sum(n for stream, n in running.items() if scope is Scope.QUEUE or streams[stream] == whose)
        stored = await snapshot.rows("buckets", queue.name, [scope], [whose])
        bucket = Bucket(stored[0]["level"], stored[0]["at"]) if stored else None
        found.append(limit_state(scope, whose, limit, count, bucket, snapshot.now))
    return found
