"""Limits by partition: a full one is set aside as a whole and costs nothing until its gate opens."""

from __future__ import annotations

from heapq import heappop, heappush

from dibs.core.settings import Limit
from dibs.core.times import Instant
from dibs.simulation.gates import Gate
from dibs.simulation.lanes import Entry, Places, is_stale
from dibs.simulation.turns import Share, TurnOrder

__all__ = ["PartitionedLane", "Partitions"]


class Stream:
    """The tasks of one partition in a lane."""

    __slots__ = ("heap", "is_parked", "lane", "partition")

    def __init__(self, lane: PartitionedLane, partition: str | None) -> None:
        self.lane = lane
        self.partition = partition
        self.heap: list[Entry] = []
        self.is_parked = False


class Partitions:
    """The gate of each partition, and the streams that found it closed."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._gates: dict[str, Gate] = {}
        self._parked: dict[str, list[Stream]] = {}
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

    def park(self, stream: Stream, now: Instant) -> None:
        """The stream waits until its gate may have opened."""
        partition = stream.partition
        assert partition is not None
        stream.is_parked = True
        parked = self._parked.setdefault(partition, [])
        if not parked and (at := self._gates[partition].opens_at(now)) is not None:
            heappush(self._wakes, (at, partition))
        parked.append(stream)

    def wake(self, now: Instant) -> None:
        """Streams whose token is due come forward."""
        while self._wakes and self._wakes[0][0] <= now:
            self._unpark(heappop(self._wakes)[1])

    def next_wake(self) -> Instant | None:
        """When the next token of a full partition is due."""
        return self._wakes[0][0] if self._wakes else None

    def _unpark(self, partition: str) -> None:
        for stream in self._parked.pop(partition, ()):
            stream.is_parked = False
            stream.lane.show(stream)


class PartitionedLane:
    """A lane of streams. The first entry of each stream that is not parked is always among the heads."""

    __slots__ = ("_heads", "_number", "_partitions", "_places", "_share", "_streams", "_turns")

    def __init__(self, number: int, places: Places, partitions: Partitions, share: Share, turns: TurnOrder) -> None:
        self._number = number
        self._places = places
        self._partitions = partitions
        self._share = share
        self._turns = turns
        self._streams: dict[str | None, Stream] = {}
        self._heads: list[tuple[int, int, Stream]] = []

    def push(self, entry: Entry, partition: str | None) -> None:
        stream = self._streams.get(partition)
        if stream is None:
            stream = self._streams[partition] = Stream(self, partition)
        heappush(stream.heap, entry)
        if stream.heap[0] is entry:
            self.show(stream)

    def show(self, stream: Stream) -> None:
        """Put the first entry of a stream among the heads, unless it is parked."""
        if stream.heap and not stream.is_parked:
            heappush(self._heads, (*stream.heap[0], stream))
            self._turns.enter(self._share)

    def head(self, now: Instant) -> Entry | None:
        while self._heads:
            rank, task, stream = self._heads[0]
            if stream.is_parked or not stream.heap or stream.heap[0] != (rank, task):
                heappop(self._heads)
            elif is_stale((rank, task), self._number, self._places):
                self.pop()
            elif self._partitions.is_full(stream.partition, now):
                heappop(self._heads)
                self._partitions.park(stream, now)
            else:
                return rank, task
        return None

    def pop(self) -> None:
        stream = heappop(self._heads)[2]
        heappop(stream.heap)
        self.show(stream)
