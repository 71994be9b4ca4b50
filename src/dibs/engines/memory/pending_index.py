"""The pending tasks of one queue, indexed so that a claim finds the best one that may start without reading others.

Tasks are in heaps by share, lane and kind. Where partitions are limited, a heap holds only the best task of each
partition; the others wait in the partition's own heap, and the next best follows when one leaves. A full partition is
*closed*: none of its tasks is in the heaps until a slot or a token is free. So neither a deep nor a full partition
delays a claim.

Every heap has lazy deletion: an entry counts only while it still describes its task.
"""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace

from dibs.core.fairness import next_virtual_time, start_virtual_time
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import Kind, TaskRecord

__all__ = ["Entry", "PendingIndex", "Place"]

Entry = tuple[int, str]
Place = tuple[str, int, Kind]
"""A share, a lane, a kind."""


class PendingIndex:
    """What a claim reads of one queue. `tasks` are all tasks of the store."""

    def __init__(self, queue: str, tasks: dict[str, TaskRecord]) -> None:
        self.queue = queue
        self.tasks = tasks
        self.heaps: dict[str, dict[tuple[int, Kind], list[Entry]]] = {}
        self.partition_heaps: dict[str, dict[Place, list[Entry]]] = {}
        self.closed: set[str] = set()
        self.without_tokens: set[str] = set()
        self.pending: Totals[str] = Totals()
        self.turns: list[Entry] = []
        self.in_turn: set[str] = set()
        self.virtual_times: dict[str, int] = {}
        self.clock = 0

    def add(self, record: TaskRecord, partitioned: bool) -> None:
        """A task has become pending, or has another rank."""
        place = (record.share, record.lane, record.kind)
        entry = (record.rank, record.id)
        if partitioned and record.spec.partition is not None:
            heap = self.partition_heaps.setdefault(record.spec.partition, {}).setdefault(place, [])
            heappush(heap, entry)
            if record.spec.partition in self.closed or self.head(record.spec.partition, place) != entry:
                return
        self.push(place, entry)

    def leave(self, record: TaskRecord) -> None:
        """A task is no longer pending, or not with this rank: push the next best of its partition."""
        place = (record.share, record.lane, record.kind)
        if record.spec.partition in self.partition_heaps and record.spec.partition not in self.closed:
            following = self.head(record.spec.partition or "", place)
            if following is not None:
                self.push(place, following)

    def push(self, place: Place, entry: Entry) -> None:
        share, lane, kind = place
        heappush(self.heaps.setdefault(share, {}).setdefault((lane, kind), []), entry)

    def count(self, record: TaskRecord, by: int) -> None:
        """Keep count of a share's pending tasks."""
        self.pending[record.share] += by
        if by > 0 and record.share not in self.in_turn:
            self.in_turn.add(record.share)
            heappush(
                self.turns, (start_virtual_time(self.clock, self.virtual_times.get(record.share, 0)), record.share)
            )

    def head(self, partition: str, place: Place) -> Entry | None:
        """The best task of a partition in one place."""
        heap = self.partition_heaps.get(partition, {}).get(place, [])
        while heap and not (self.describes(heap[0], place) and self.tasks[heap[0][1]].spec.partition == partition):
            heappop(heap)
        return heap[0] if heap else None

    def describes(self, entry: Entry, place: Place) -> bool:
        """Whether an entry is still true of its task."""
        record = self.tasks.get(entry[1])
        if record is None or record.state is not State.PENDING or record.rank != entry[0]:
            return False
        return (record.queue, record.share, record.lane, record.kind) == (self.queue, *place)

    def is_current(self, entry: Entry, place: Place) -> bool:
        """Whether an entry may be claimed: it is true, and its task is the best of its partition."""
        if not self.describes(entry, place):
            return False
        partition = self.tasks[entry[1]].spec.partition
        if partition is None or partition not in self.partition_heaps:
            return True
        return partition not in self.closed and self.head(partition, place) == entry

    def close(self, partition: str) -> None:
        """The partition is full."""
        self.closed.add(partition)

    def open(self, partition: str) -> None:
        """The partition may have headroom again: push its best tasks."""
        if partition not in self.closed:
            return
        self.closed.discard(partition)
        heaps = self.partition_heaps.get(partition, {})
        for place in list(heaps):
            entry = self.head(partition, place)
            if entry is None:
                del heaps[place]
            else:
                self.push(place, entry)
        if not heaps:
            self.partition_heaps.pop(partition, None)

    def in_order(self, share: str, lane: int, kind: Kind) -> Iterator[TaskRecord]:
        """Tasks of one kind in claim order; those still pending are put back when iteration ends."""
        place = (share, lane, kind)
        heap = self.heaps.get(share, {}).get((lane, kind), [])
        seen: dict[Entry, None] = {}
        try:
            while heap:
                entry = heappop(heap)
                if entry in seen or not self.is_current(entry, place):
                    continue
                seen[entry] = None
                record = self.tasks[entry[1]]
                yield record
                if record.spec.partition in self.partition_heaps and (
                    following := self.head(record.spec.partition or "", place)
                ):
                    heappush(heap, following)
        finally:
            for entry in seen:
                if self.is_current(entry, place):
                    heappush(heap, entry)

    def next_share(self) -> str | None:
        """The share whose turn it is."""
        while self.turns:
            virtual_time, share = self.turns[0]
            start = start_virtual_time(self.clock, self.virtual_times.get(share, 0))
            if not self.pending[share]:
                heappop(self.turns)
                self.in_turn.discard(share)
            elif virtual_time != start:
                heapreplace(self.turns, (start, share))
            else:
                return share
        return None

    def set_aside(self) -> Entry:
        """Take the share whose turn it is out of the order; the caller puts it back into `turns`."""
        return heappop(self.turns)

    def served(self, share: str, settings: QueueSettings) -> None:
        """A task of this share was claimed."""
        if settings.fair:
            self.clock = start_virtual_time(self.clock, self.virtual_times.get(share, 0))
            self.virtual_times[share] = next_virtual_time(settings, share, self.clock)
