"""What the simulator's claims choose from: the pending tasks in heaps, those in full partitions gated."""

from __future__ import annotations

from heapq import heappop, heappush

from dibs.engines.decisions.choosing import Head, Key, TurnOrder


class Heap:
    """The tasks of one key. An entry of a task that has started or was ranked again is dropped when it comes first."""

    __slots__ = ("entries", "is_given", "key", "pending")

    def __init__(self, key: Key, pending: dict[str, Head]) -> None:
        self.key = key
        self.pending = pending
        self.entries: list[Head] = []
        self.is_given = False
        """A choice has seen the first entry. It is dropped when the choice goes on."""

    def next(self) -> Head | None:
        entries = self.entries
        if self.is_given:
            heappop(entries)
        while entries and self.pending.get(entries[0].id) is not entries[0]:
            heappop(entries)
        self.is_given = bool(entries)
        return entries[0] if entries else None


class Heaps:
    """The pending tasks by track and share. Those that were found in full partitions are apart, in their groups."""

    def __init__(self) -> None:
        self.pending: dict[str, Head] = {}
        self.turns: dict[str, TurnOrder] = {}
        self._heaps: dict[Key, Heap] = {}
        self._groups: dict[str, set[Key]] = {}
        """By the key of a partition, where it has gated tasks."""

    def source(self, key: Key, after: Head | None = None) -> Heap:
        """Start at the first task of a key. In a partition, those that are gated come after the others."""
        heap = self._heaps.get(key)
        if heap is None:
            heap = self._heaps[key] = Heap(key, self.pending)
        heap.is_given = False
        return heap

    def put(self, head: Head, share: str) -> None:
        """A task is pending, or has another rank."""
        self.pending[head.id] = head
        heappush(self.source((head.track, share, None)).entries, head)

    def has_any(self, track: int, share: str) -> bool:
        """Whether there is a task that is not gated."""
        return self.source((track, share, None)).next() is not None

    def gate(self, head: Head, share: str) -> None:
        """The partition of this task is full."""
        assert head.partition_key is not None
        key = (head.track, share, head.partition_key)
        heappush(self.source(key).entries, head)
        self._groups.setdefault(head.partition_key, set()).add(key)

    def ungate(self, partition_key: str) -> list[tuple[int, str]]:
        """Let claims see the first task of each group of a partition again; the tracks and shares of these."""
        groups = self._groups.get(partition_key, set())
        found: list[tuple[int, str]] = []
        for key in [*groups]:
            head = self.source(key).next()
            if head is None:
                groups.remove(key)
            else:
                heappop(self._heaps[key].entries)
                self.put(head, key[1])
                found.append(key[:2])
        return found
