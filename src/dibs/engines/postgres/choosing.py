"""Which tasks a claim gives: the heads of kinds, lanes, shares and queues, merged, within their limits.

Works on what was read (`Pages`, `Headrooms`) and changes neither. If that is not enough, the answer is a `NeedMore`;
the caller reads what it names and chooses again from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace

from msgspec import Struct

from dibs.core.fairness import next_virtual_time, start_virtual_time
from dibs.core.limits import Scope
from dibs.core.priority import effective, merge_key
from dibs.core.times import Instant
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.headroom import Headroom, Whose
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.head_pages import Head, Key, NeedMore, NotRead, Pages
from dibs.engines.postgres.headroom import Headrooms
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.values import ClaimRequest

__all__ = ["Chosen", "QueueCursor", "choose", "next_ids"]


class Chosen(Struct, frozen=True):
    """A task to give, its share, and the limits that it counts against."""

    head: Head
    share: str
    headrooms: list[tuple[Whose, Headroom]]


class Lane:
    """One lane of one share: the entries of its tracks, merged."""

    def __init__(self, queue: Queue, number: int, order: int, sources: Iterable[Iterator[Head]]) -> None:
        self.queue = queue
        self.number = number
        self.order = order
        self.heap: list[tuple[Head, int, Iterator[Head]]] = []
        self.added = 0
        for source in sources:
            self.add(source)

    def add(self, source: Iterator[Head]) -> None:
        first = next(source, None)
        self.added += 1
        if first is not None:
            heappush(self.heap, (first, self.added, source))

    @property
    def head(self) -> Head:
        return self.heap[0][0]

    def effective(self, now: Instant) -> float:
        return effective(self.head.rank, self.number, self.queue.settings, now)

    def key(self, now: Instant, in_order: bool) -> tuple[float, ...]:
        key = merge_key(self.effective(now), self.head.ready_at, self.order)
        return (self.order, *key, self.number) if in_order else (*key, self.number)

    def advance(self) -> None:
        """Continue with the next task."""
        _, number, source = self.heap[0]
        following = next(source, None)
        if following is None:
            heappop(self.heap)
        else:
            heapreplace(self.heap, (following, number, source))


class QueueCursor:
    """The next task of one queue for one worker: from the first share in turn that has a task for it."""

    def __init__(
        self, pages: Pages, queue: Queue, order: int, tracks: list[Track], headrooms: Headrooms | None
    ) -> None:
        self.pages = pages
        self.queue = queue
        self.order = order
        self.tracks = tracks
        self.names = {track.number: track.name for track in tracks}
        self.headrooms = headrooms
        self.lanes: dict[str, list[Lane]] = {}
        self.taken: set[str] = set()
        self.groups: set[Key] = set()
        self.blocked: dict[Partition, None] = {}
        self.served: dict[str, int] = {}
        turns = pages.turns.get(queue.name)
        self.turns = turns
        self.clock = turns.clock if turns is not None else 0
        self.virtual_times = (
            {share: virtual_time for virtual_time, share in turns.virtual_times} if turns is not None else {}
        )
        if turns is None or any(not track.fair for track in tracks):
            self.virtual_times.setdefault("", 0)
        self.heap = [
            (start_virtual_time(self.clock, virtual_time), share) for share, virtual_time in self.virtual_times.items()
        ]
        heapify(self.heap)

    def next_share(self) -> str | None:
        """The share whose turn it is."""
        while self.heap:
            recorded, share = self.heap[0]
            start = start_virtual_time(self.clock, self.virtual_times[share])
            if start != recorded:
                heapreplace(self.heap, (start, share))
            elif self.turns is not None and not self.turns.is_known(start, share, self.clock):
                raise NotRead(NeedMore(queue=self.queue.name))
            else:
                return share
        if self.turns is not None and not self.turns.is_complete:
            raise NotRead(NeedMore(queue=self.queue.name))
        return None

    def lane(self, now: Instant) -> Lane | None:
        """The lane that gives next; its first task may start."""
        while (share := self.next_share()) is not None:
            if share not in self.lanes:
                self.lanes[share] = self.open_lanes(share)
            lanes = self.lanes[share] = [lane for lane in self.lanes[share] if self.goes_on(lane)]
            if lanes:
                return lanes[0] if len(lanes) == 1 else min(lanes, key=lambda each: each.key(now, in_order=False))
            heappop(self.heap)
        return None

    def open_lanes(self, share: str) -> list[Lane]:
        by_number: dict[int, list[Iterator[Head]]] = {}
        for track in self.tracks:
            if track.fair or share == "":
                source = self.pages.of((track.number, share, None))
                by_number.setdefault(track.lane, []).append(source)
        return [Lane(self.queue, number, self.order, sources) for number, sources in sorted(by_number.items())]

    def goes_on(self, lane: Lane) -> bool:
        """Advance a lane to a task that may start; False if there is none."""
        while lane.heap:
            if self.headrooms is None or self.may_start(lane.head):
                return True
            lane.advance()
        return False

    def may_start(self, head: Head) -> bool:
        """Whether the limits on a task's name and partition allow a start."""
        assert self.headrooms is not None
        if head.id in self.taken:
            return False
        if self.headrooms.is_full(self.queue, Scope.TASK, self.names[head.track]):
            return False
        if head.partition is not None and self.headrooms.is_full(self.queue, Scope.PARTITION, head.partition.name):
            self.blocked[head.partition] = None
            return False
        return True

    def take(self, lane: Lane) -> Chosen:
        """Give the first task of a lane, and advance to the next."""
        head, share = lane.head, self.heap[0][1]
        counted: list[tuple[Whose, Headroom]] = []
        if self.headrooms is not None:
            counted = self.headrooms.take(self.queue, self.names[head.track], head.partition)
            self.follow(lane, head, share)
        lane.advance()
        if self.queue.settings.fair:
            self.clock = start_virtual_time(self.clock, self.virtual_times[share])
            self.virtual_times[share] = self.served[share] = next_virtual_time(self.queue.settings, share, self.clock)
        return Chosen(head, share, counted)

    def follow(self, lane: Lane, head: Head, share: str) -> None:
        """If the partition of a given task has headroom left, the tasks behind it may start too."""
        assert self.headrooms is not None
        if head.partition is None or self.queue.settings.per_partition is None:
            return
        self.taken.add(head.id)
        group = (head.track, share, head.partition)
        if group not in self.groups and not self.headrooms.is_full(self.queue, Scope.PARTITION, head.partition.name):
            self.groups.add(group)
            lane.add(self.pages.of(group, head))

    def end(self, lane: Lane) -> None:
        """Take nothing more from this lane in this claim."""
        self.lanes[self.heap[0][1]].remove(lane)

    async def finish(self) -> None:
        """Write what the choice found: full partitions, and the turns that were taken."""
        transaction = self.pages.snapshot
        assert isinstance(transaction, Transaction)
        for partition in self.blocked:
            transaction.mark_changed(partition)
        if self.served:
            await transaction.write("save_clock", self.queue.name, self.clock)
            virtual_times = [(self.queue.name, share, virtual_time) for share, virtual_time in self.served.items()]
            await transaction.write("save_virtual_times", *columns(virtual_times, 3))


def choose(
    cursors: list[QueueCursor], request: ClaimRequest, headrooms: Headrooms, now: Instant
) -> list[Chosen] | NeedMore:
    """The tasks to give, most urgent first."""
    try:
        return most_urgent(cursors, request, headrooms, now)
    except NotRead as error:
        return error.need


def most_urgent(cursors: list[QueueCursor], request: ClaimRequest, headrooms: Headrooms, now: Instant) -> list[Chosen]:
    below = [0] * len(request.floors)
    chosen: list[Chosen] = []
    cursors = list(cursors)
    while len(chosen) < request.limit + request.prefetch:
        found = [(lane, cursor) for cursor in cursors if (lane := cursor.lane(now)) is not None]
        if not found:
            break
        lane, cursor = min(found, key=lambda each: each[0].key(now, request.in_order))
        under = [i for i, floor in enumerate(request.floors) if lane.effective(now) < floor.effective]
        limited = cursor.queue.settings.limits_starts
        if headrooms.is_full(cursor.queue, Scope.QUEUE, "") or (limited and len(chosen) >= request.limit):
            cursors.remove(cursor)
        elif any(below[i] >= request.floors[i].below for i in under):
            cursor.end(lane)
        else:
            chosen.append(cursor.take(lane))
            for i in under:
                below[i] += 1
    return chosen


def first_heads(cursor: QueueCursor, now: Instant, most: int) -> list[Head] | NeedMore:
    """The first pending tasks of a queue in the order in which claims would give them, without limits."""
    found: list[Head] = []
    try:
        while len(found) < most and (lane := cursor.lane(now)) is not None:
            found.append(cursor.take(lane).head)
    except NotRead as error:
        return error.need
    return found


async def next_ids(snapshot: Snapshot, queue: Queue, most: int, until: str | None) -> list[str]:
    """The next tasks of a queue in claim order, including gated ones."""
    tracks = [track for track in snapshot.catalog.of_queue(queue.name) if not track.retired]
    pages = Pages(snapshot, most, with_gated=True)
    await pages.open([(0, queue)], {queue.name: tracks})
    while True:
        found = first_heads(QueueCursor(pages, queue, 0, tracks, None), snapshot.now, most)
        if not isinstance(found, NeedMore):
            return [head.id for head in found]
        await pages.read_more(found)
