"""Limits by partition: a full partition is parked as a whole, and costs nothing until its gate opens."""

from __future__ import annotations

from heapq import heappop, heappush

from dibs.core.settings import Limit
from dibs.core.times import Instant
from dibs.simulation.gates import Gate
from dibs.simulation.lanes import Entry, Places, is_stale
from dibs.simulation.turns import Share, TurnOrder

__all__ = ["PartitionedLane", "Partitions"]


class PartitionHeap:
    """The tasks of one partition in a lane."""

    __slots__ = ("entries", "is_parked", "lane", "partition")

    def __init__(self, lane: PartitionedLane, partition: str | None) -> None:
        self.lane = lane
        self.partition = partition
        self.entries: list[Entry] = []
        self.is_parked = False


class Partitions:
    """The gate of each partition, and the heaps that wait for it."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._gates: dict[str, Gate] = {}
        self._parked: dict[str, list[PartitionHeap]] = {}
        self._wakes: list[tuple[Instant, str]] = []

    def is_full(self, partition: str | None, now: Instant) -> bool:
        return partition in self._gates and not self._gates[partition].is_open(now)

    def enter(self, partition: str, now: Instant) -> None:
        """A task of the partition starts."""
        gate = self._gates.get(partition)
        if gate is None:
            gate = self._gates[partition] = Gate(self._limit)
        gate.enter(now)

    def leave(self, partition: str) -> None:
        """A task of the partition has ended."""
        self._gates[partition].leave()
        self._unpark(partition)

    def park(self, heap: PartitionHeap, now: Instant) -> None:
        """The heap waits until its gate may have opened."""
        partition = heap.partition
        assert partition is not None
        heap.is_parked = True
        parked = self._parked.setdefault(partition, [])
        if not parked and (at := self._gates[partition].refill_at(now)) is not None:
            heappush(self._wakes, (at, partition))
        parked.append(heap)

    def wake(self, now: Instant) -> None:
        """Unpark the heaps whose token is due."""
        while self._wakes and self._wakes[0][0] <= now:
            self._unpark(heappop(self._wakes)[1])

    def next_wake(self) -> Instant | None:
        """When the next token of a full partition is due."""
        return self._wakes[0][0] if self._wakes else None

    def _unpark(self, partition: str) -> None:
        for heap in self._parked.pop(partition, ()):
            heap.is_parked = False
            heap.lane.show(heap)


class PartitionedLane:
    """A heap for each partition. The first entry of each heap that is not parked is always among the heads."""

    __slots__ = ("_heads", "_heaps", "_number", "_partitions", "_places", "_share", "_turns")

    def __init__(self, number: int, places: Places, partitions: Partitions, share: Share, turns: TurnOrder) -> None:
        self._number = number
        self._places = places
        self._partitions = partitions
        self._share = share
        self._turns = turns
        self._heaps: dict[str | None, PartitionHeap] = {}
        self._heads: list[tuple[int, int, PartitionHeap]] = []

    def push(self, entry: Entry, partition: str | None) -> None:
        heap = self._heaps.get(partition)
        if heap is None:
            heap = self._heaps[partition] = PartitionHeap(self, partition)
        heappush(heap.entries, entry)
        if heap.entries[0] is entry:
            self.show(heap)

    def show(self, heap: PartitionHeap) -> None:
        """Put the first entry of a heap among the heads, unless it is parked."""
        if heap.entries and not heap.is_parked:
            heappush(self._heads, (*heap.entries[0], heap))
            self._turns.enter(self._share)

    def head(self, now: Instant) -> Entry | None:
        while self._heads:
            rank, task, heap = self._heads[0]
            if heap.is_parked or not heap.entries or heap.entries[0] != (rank, task):
                heappop(self._heads)
            elif is_stale((rank, task), self._number, self._places):
                self.pop()
            elif self._partitions.is_full(heap.partition, now):
                heappop(self._heads)
                self._partitions.park(heap, now)
            else:
                return rank, task
        return None

    def pop(self) -> None:
        heap = heappop(self._heads)[2]
        heappop(heap.entries)
        self.show(heap)
