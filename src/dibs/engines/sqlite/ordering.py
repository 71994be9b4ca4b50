"""Pending tasks in claim order: tracks merge into lanes, lanes into shares and queues.

Reads only what is needed: about the wanted number of entries plus one chunk per track, however deep the queue is.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice

from dibs.core.priority import effective, merge_key
from dibs.core.times import Instant
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.transaction import Queue
from dibs.engines.sqlite.fairness import TurnOrder, all_shares
from dibs.engines.sqlite.heads import LARGEST_CHUNK, Head, read_track
from dibs.engines.sqlite.transaction import Snapshot

__all__ = ["SMALLEST_CHUNK", "Lane", "chunk_for", "lanes_of", "next_ids"]

SMALLEST_CHUNK = 8


class Lane:
    """One lane of a share, with its first task: merges several sources of heads, each in order."""

    def __init__(self, queue: Queue, number: int, order: int, sources: list[Iterator[Head]]) -> None:
        self.queue = queue
        self.number = number
        self.order = order
        firsts = [(next(source, None), n, source) for n, source in enumerate(sources)]
        self.heap = [(head, n, source) for head, n, source in firsts if head is not None]
        self.sources = len(sources)
        self.is_used = False
        """The first task was given. The next one is read on demand."""
        heapify(self.heap)

    @property
    def head(self) -> Head:
        return self.heap[0][0]

    def effective(self, now: Instant) -> float:
        return effective(self.heap[0][0].rank, self.number, self.queue.settings, now)

    def key(self, now: Instant, in_order: bool) -> tuple[float, ...]:
        key = merge_key(self.effective(now), self.heap[0][0].ready_at, self.order)
        return (self.order, *key, self.number) if in_order else (*key, self.number)

    def advance(self) -> bool:
        """Continue with the next task; False if there is none."""
        _, n, source = self.heap[0]
        following = next(source, None)
        if following is None:
            heappop(self.heap)
        else:
            heapreplace(self.heap, (following, n, source))
        return bool(self.heap)

    def drop(self) -> None:
        """Drop the source of the first task."""
        heappop(self.heap)

    def add(self, source: Iterator[Head]) -> None:
        """Add a source, none of whose tasks goes before the first one."""
        head = next(source, None)
        if head is not None:
            heappush(self.heap, (head, self.sources, source))
            self.sources += 1

    def take(self, wanted: int) -> list[Head]:
        """Remove and return the first tasks."""
        found: list[Head] = []
        while len(self.heap) > 1 and len(found) < wanted:
            found.append(self.heap[0][0])
            self.advance()
        if self.heap and len(found) < wanted:
            head, _, source = self.heap[0]
            found += [head, *islice(source, wanted - len(found) - 1)]
        return found


def chunk_for(wanted: int, tracks: int) -> int:
    """A track seldom gives much more than its share: read that first, and more when it runs out."""
    return min(max(SMALLEST_CHUNK, wanted // max(tracks, 1)), LARGEST_CHUNK)


def lanes_of(queue: Queue, order: int, sources: list[tuple[Track, Iterator[Head]]]) -> list[Lane]:
    """The lanes formed by these tracks of one queue, without empty ones."""
    by_number: dict[int, list[Iterator[Head]]] = {}
    for track, source in sources:
        by_number.setdefault(track.lane, []).append(source)
    lanes = [Lane(queue, number, order, members) for number, members in sorted(by_number.items())]
    return [lane for lane in lanes if lane.heap]


def in_claim_order(snapshot: Snapshot, queue: Queue, wanted: int) -> Iterator[Head]:
    """Pending tasks of a queue in the order of claims by a worker that runs all tasks, without limits."""
    pending = snapshot.pending_by_track()
    tracks = [track for track in snapshot.catalog.by_queue[queue.name] if track.number in pending]
    chunk = chunk_for(wanted, len(tracks))
    lanes: dict[str, list[Lane]] = {}
    turns = all_shares(snapshot, queue, tracks) if any(track.fair for track in tracks) else TurnOrder(queue)
    while (share := turns.share) is not None:
        if share not in lanes:
            sources = [
                (track, read_track(snapshot, track.number, share, gated, chunk))
                for track in tracks
                for gated in (False, True)
                if track.fair or share == ""
            ]
            lanes[share] = lanes_of(queue, 0, sources)
        if not lanes[share]:
            turns.end()
            continue
        lane = min(lanes[share], key=lambda each: each.key(snapshot.now, in_order=False))
        yield lane.head
        if not lane.advance():
            lanes[share].remove(lane)
        turns.served()


async def next_ids(snapshot: Snapshot, queue: Queue, most: int, until: str | None) -> list[str]:
    """The next tasks of a queue in claim order, including gated ones, at most up to `until`."""
    found: list[str] = []
    for head in islice(in_claim_order(snapshot, queue, most), most):
        found.append(head.id)
        if head.id == until:
            break
    return found
