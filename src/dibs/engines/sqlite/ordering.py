"""Pending tasks in claim order, read from the index in chunks: streams merge into lanes, lanes into queues.

Only as much is read as is asked for: about the wanted number of entries plus one chunk per stream, however deep the
queue is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge

import msgspec
from msgspec import Struct

from dibs.core.priority import effective, merge_key
from dibs.core.times import Instant
from dibs.engines.sqlite.catalog import Queue, Stream
from dibs.engines.sqlite.transaction import Snapshot

__all__ = ["Head", "Lane", "in_claim_order", "lanes_of"]

SMALLEST_CHUNK = 8
LARGEST_CHUNK = 1000


class Head(Struct, array_like=True, frozen=True, order=True):
    """An entry of the pending index; they compare as claims order them within a lane."""

    rank: int
    id: str
    ready_at: Instant
    stream: int


heads_decoder = msgspec.json.Decoder(list[Head])


class Lane(Struct):
    """One lane of a queue with its foremost task."""

    queue: Queue
    number: int
    order: int
    tasks: Iterator[Head]
    head: Head

    def effective(self, now: Instant) -> float:
        return effective(self.head.rank, self.number, self.queue.settings, now)

    def key(self, now: Instant, in_order: bool) -> tuple[float, ...]:
        key = merge_key(self.effective(now), self.head.ready_at, self.order)
        return (self.order, *key, self.number) if in_order else (*key, self.number)

    def advance(self) -> bool:
        """Go on to the next task; False if there is none."""
        following = next(self.tasks, None)
        if following is not None:
            self.head = following
        return following is not None


def lanes_of(snapshot: Snapshot, queue: Queue, order: int, streams: Iterable[Stream], wanted: int) -> list[Lane]:
    """The lanes that these streams of one queue form, empty ones left out."""
    by_number: dict[int, list[Stream]] = {}
    for stream in streams:
        by_number.setdefault(stream.lane, []).append(stream)
    lanes = []
    for number, members in sorted(by_number.items()):
        # A stream seldom gives much more than its share: ask for that first, and for more when it runs out.
        chunk = min(max(SMALLEST_CHUNK, wanted // len(members)), LARGEST_CHUNK)
        heads = [read_stream(snapshot, stream.number, chunk) for stream in members]
        tasks = heads[0] if len(heads) == 1 else merge(*heads)
        head = next(tasks, None)
        if head is not None:
            lanes.append(Lane(queue, number, order, tasks, head))
    return lanes


def read_stream(snapshot: Snapshot, stream: int, chunk: int) -> Iterator[Head]:
    """The entries of one stream in order."""
    rank, task_id = -(2**62), ""
    while True:
        heads = heads_decoder.decode(snapshot.value("read_stream", stream, rank, task_id, chunk))
        yield from heads
        if len(heads) < chunk:
            return
        rank, task_id = heads[-1].rank, heads[-1].id
        chunk = min(2 * chunk, LARGEST_CHUNK)


def in_claim_order(snapshot: Snapshot, queue: Queue, wanted: int) -> Iterator[Head]:
    """Pending tasks of a queue as claims would give them to a worker that can run everything."""
    lanes = lanes_of(snapshot, queue, 0, snapshot.catalog.by_queue[queue.name], wanted)
    while lanes:
        lane = min(lanes, key=lambda each: each.key(snapshot.now, in_order=False))
        yield lane.head
        if not lane.advance():
            lanes.remove(lane)
