"""Waiting tasks of one share and lane, in claim order.

A task that was ranked again also has entries at its old places. These differ from `Places`, and are dropped when they
become heads.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol

from dibs.core.times import Instant

__all__ = ["Entry", "Lane", "Places", "PlainLane", "is_stale"]

Entry = tuple[int, int]
"""(rank, task); smaller goes first."""

Places = dict[int, tuple[int, int]]
"""task → (lane, rank), of the tasks that have been ranked again."""


class Lane(Protocol):
    """What a share needs of its lanes."""

    def push(self, entry: Entry, partition: str | None) -> None: ...

    def head(self, now: Instant) -> Entry | None:
        """The first that may start now."""
        ...

    def pop(self) -> None:
        """Remove what `head` has just returned."""
        ...


class PlainLane:
    """A lane whose tasks may all start: a heap."""

    __slots__ = ("_heap", "_number", "_places")

    def __init__(self, number: int, places: Places) -> None:
        self._number = number
        self._places = places
        self._heap: list[Entry] = []

    def push(self, entry: Entry, partition: str | None) -> None:
        heappush(self._heap, entry)

    def head(self, now: Instant) -> Entry | None:
        heap = self._heap
        if self._places:
            while heap and is_stale(heap[0], self._number, self._places):
                heappop(heap)
        return heap[0] if heap else None

    def pop(self) -> None:
        heappop(self._heap)


def is_stale(entry: Entry, lane: int, places: Places) -> bool:
    """Whether the task has another place now."""
    rank, task = entry
    place = places.get(task)
    return place is not None and place != (lane, rank)
