"""Which tasks a claim gives: the heads of kinds, lanes, shares and queues, merged, within their limits.

Works on what was read (`Pages`, `Headrooms`). If that is not enough, the answer is a `NeedMore`: the caller reads what
it names, and the choice goes on. The simulator brings its own `Entries`, which hold everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Protocol

from msgspec import Struct

from dibs.core.fairness import next_virtual_time, start_virtual_time
from dibs.core.limits import Scope
from dibs.core.priority import effective, merge_key
from dibs.core.times import Instant
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.headroom import Counted, Headroom, Whose
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.values import ClaimRequest

__all__ = [
    "GATE_BUDGET",
    "Choice",
    "Chosen",
    "Head",
    "Headrooms",
    "Key",
    "NeedMore",
    "Pages",
    "QueueCursor",
    "TurnOrder",
    "first_of",
    "startable",
]

GATE_BUDGET = 1000
"""Tasks that one claim gates, and turns without a task that it meets. The rest is left to the next claim."""

Key = tuple[int, str, str | None]
"""A track, a share, and the key of a partition if only its tasks are meant."""


class Head(Struct, array_like=True, frozen=True, order=True):
    """An entry of the pending index; entries compare in claim order within a lane."""

    rank: int
    id: str
    ready_at: Instant
    track: int
    partition_key: str | None = None

    @property
    def partition(self) -> Partition | None:
        return None if self.partition_key is None else Partition.parse(self.partition_key)


class NeedMore(Struct, frozen=True):
    """What must be read before tasks can be chosen: entries of `key`, turns of `queue`, or the load of `partition`.

    `after`: the task behind which the entries of a partition are needed.
    """

    key: Key | None = None
    after: Head | None = None
    queue: str = ""
    partition: Partition | None = None


class NotRead(Exception):
    """A choice needs something that was not read. It never leaves this module, which answers with `need`."""

    def __init__(self, need: NeedMore) -> None:
        super().__init__(need)
        self.need = need


class Headrooms:
    """The headroom under the limits of some queues, as far as it was read. A choice counts its starts here."""

    def __init__(self) -> None:
        self.known: dict[Whose, Headroom] = {}

    def of(self, queue: Queue, scope: Scope, whose: str) -> Headroom | None:
        """None if there is no such limit. Those of partitions are read when a choice comes to them."""
        found = self.known.get((queue.name, scope, whose))
        if found is None and scope is Scope.PARTITION and queue.settings.per_partition is not None:
            raise NotRead(NeedMore(partition=Partition(queue.name, whose)))
        return found

    def is_full(self, queue: Queue, scope: Scope, whose: str) -> bool:
        found = self.of(queue, scope, whose)
        return found is not None and found.left == 0

    def take(self, queue: Queue, name: str, partition: Partition | None) -> list[Counted]:
        """A task starts: it takes a slot and a token of each of its limits."""
        scopes = [(Scope.QUEUE, ""), (Scope.TASK, name)]
        if partition is not None:
            scopes.append((Scope.PARTITION, partition.name))
        counted: list[Counted] = []
        for scope, whose in scopes:
            headroom = self.of(queue, scope, whose)
            if headroom is not None:
                headroom.started += 1
                counted.append(((queue.name, scope, whose), headroom))
        return counted


class TurnOrder:
    """The shares of a queue that may have a task for the worker, in their order, as far as they were read."""

    def __init__(self, clock: int) -> None:
        self.clock = clock
        self.virtual_times: dict[str, int] = {}
        self.tracks: dict[str, list[int]] = {}
        """By share, the fair tracks in which it has a turn."""
        self.edge: tuple[int, str] | None = None
        """Shares that were not read come after this one; None: all were read."""
        self.is_truncated = False
        """No more of them will be read for this claim."""

    def is_known(self, start: int, share: str, clock: int) -> bool:
        """Whether no share that was not read can come before this one."""
        return self.edge is None or (clock <= self.edge[0] and (start, share) <= self.edge)


class Source(Protocol):
    """The entries of one key in order."""

    key: Key

    def next(self) -> Head | None:
        """Go on to the next entry. If it was not read, nothing changes."""
        ...


class Entries(Protocol):
    """The pending tasks to choose from, and the turns of fair queues."""

    turns: dict[str, TurnOrder]

    def source(self, key: Key, after: Head | None = None) -> Source:
        """Start at the first entry of a key. `after`: the task behind which the entries of a partition begin."""
        ...


class Pages:
    """The entries of the pending index that were read so far, and the turns of fair queues."""

    def __init__(self, skipped: Collection[str] = ()) -> None:
        self.skipped = skipped
        self.heads: dict[Key, list[Head]] = {}
        self.complete: set[Key] = set()
        self.turns: dict[str, TurnOrder] = {}

    def source(self, key: Key, after: Head | None = None) -> PagedSource:
        return PagedSource(self, key, after)


class PagedSource:
    """The entries of one key, as far as they were read."""

    __slots__ = ("after", "key", "pages", "position")

    def __init__(self, pages: Pages, key: Key, after: Head | None) -> None:
        self.pages = pages
        self.key = key
        self.after = after
        self.position = -1

    def next(self) -> Head | None:
        heads, position = self.pages.heads.get(self.key, ()), self.position + 1
        while position < len(heads) and heads[position].id in self.pages.skipped:
            position += 1
        if position < len(heads):
            self.position = position
            return heads[position]
        if self.key in self.pages.complete:
            return None
        raise NotRead(NeedMore(self.key, self.after))


class Chosen(Struct, frozen=True):
    """A task to give, its share, and the limits that it counts against."""

    head: Head
    share: str = ""
    counted: Sequence[Counted] = ()


class Lane:
    """One lane of one share: the entries of its tracks, merged."""

    def __init__(self, queue: Queue, number: int, order: int, sources: Iterable[Source]) -> None:
        self.queue = queue
        self.number = number
        self.order = order
        self.heap: list[tuple[Head, int, Source]] = []
        self.coming = list(sources)
        """Sources whose first entry was not asked for yet."""
        self.added = 0
        self.is_used = False
        """The first task was given. What comes next is asked when it matters: it may not have been read."""

    def settle_first(self) -> bool:
        """Find the first task; False if there is none."""
        if self.is_used:
            self.advance()
            self.is_used = False
        while self.coming:
            first = self.coming[-1].next()
            source = self.coming.pop()
            self.added += 1
            if first is not None:
                heappush(self.heap, (first, self.added, source))
        return bool(self.heap)

    @property
    def head(self) -> Head:
        return self.heap[0][0]

    @property
    def source(self) -> Source:
        return self.heap[0][2]

    def effective(self, now: Instant) -> float:
        return effective(self.head.rank, self.number, self.queue.settings, now)

    def key(self, now: Instant, in_order: bool) -> tuple[float, ...]:
        key = merge_key(self.effective(now), self.head.ready_at, self.order)
        return (self.order, *key, self.number) if in_order else (*key, self.number)

    def advance(self) -> None:
        """Continue with the next task."""
        _, number, source = self.heap[0]
        following = source.next()
        if following is None:
            heappop(self.heap)
        else:
            heapreplace(self.heap, (following, number, source))

    def end_source(self) -> None:
        """Take nothing more from where the first task came from."""
        heappop(self.heap)

    def take(self, wanted: int) -> list[Chosen]:
        """The first tasks, as far as they were read."""
        found: list[Chosen] = []
        while len(found) < wanted:
            try:
                if not self.settle_first():
                    break
            except NotRead:
                break
            found.append(Chosen(self.head))
            self.is_used = True
        return found


class QueueCursor:
    """The next task of one queue for one worker: from the first share in turn that has a task for it."""

    def __init__(
        self, entries: Entries, queue: Queue, order: int, tracks: Sequence[Track], headrooms: Headrooms | None
    ) -> None:
        self.entries = entries
        self.queue = queue
        self.order = order
        self.tracks = {track.number: track for track in tracks}
        self.by_lane: dict[int, list[Track]] = {}
        for track in sorted(tracks, key=lambda each: each.lane):
            self.by_lane.setdefault(track.lane, []).append(track)
        self.headrooms = headrooms if queue.settings.limits_starts else None
        self.whole = None if self.headrooms is None else self.headrooms.of(queue, Scope.QUEUE, "")
        self.lanes: dict[str, list[Lane]] = {}
        self.taken: set[str] = set()
        self.groups: set[Key] = set()
        self.blocked: dict[str, Partition] = {}
        """Tasks that may not start because their partition is full: they need not be read until it has headroom."""
        self.served: dict[str, int] = {}
        """The new virtual times of the shares that were served."""
        self.turns = entries.turns.get(queue.name)
        self.clock = 0 if self.turns is None else self.turns.clock
        self.virtual_times: dict[str, int] = {}
        self.heap: list[tuple[int, str]] = []
        """Starts in virtual time, and shares."""
        self.add_shares({"": 0} if self.turns is None else self.turns.virtual_times)

    @property
    def is_full(self) -> bool:
        """Whether the limit of the whole queue allows no more starts."""
        return self.whole is not None and self.whole.left == 0

    @property
    def is_stopped(self) -> bool:
        """Whether it met so many tasks that may not start that the rest is left to the next claim."""
        return len(self.blocked) >= GATE_BUDGET

    @property
    def is_truncated(self) -> bool:
        return self.is_stopped or (self.turns is not None and self.turns.is_truncated)

    def add_shares(self, virtual_times: Mapping[str, int]) -> None:
        for share, virtual_time in virtual_times.items():
            if share not in self.virtual_times:
                self.virtual_times[share] = virtual_time
                heappush(self.heap, (start_virtual_time(self.clock, virtual_time), share))

    def next_share(self) -> str | None:
        """The share whose turn it is."""
        turns = self.turns
        if turns is None:
            return self.heap[0][1] if self.heap else None
        if len(turns.virtual_times) > len(self.virtual_times):
            self.add_shares(turns.virtual_times)
        while self.heap:
            recorded, share = self.heap[0]
            start = start_virtual_time(self.clock, self.virtual_times[share])
            if start != recorded:
                heapreplace(self.heap, (start, share))
            elif turns.is_known(start, share, self.clock):
                return share
            else:
                break
        if turns.edge is None or turns.is_truncated:
            return None
        raise NotRead(NeedMore(queue=self.queue.name))

    def lane(self, now: Instant) -> Lane | None:
        """The lane that gives next; its first task may start."""
        while not self.is_stopped and (share := self.next_share()) is not None:
            if share not in self.lanes:
                self.lanes[share] = self.open_lanes(share)
            lanes = self.lanes[share] = [lane for lane in self.lanes[share] if self.has_first(lane)]
            if lanes:
                return lanes[0] if len(lanes) == 1 else min(lanes, key=lambda each: each.key(now, in_order=False))
            heappop(self.heap)
        return None

    def open_lanes(self, share: str) -> list[Lane]:
        fair = () if self.turns is None else self.turns.tracks.get(share, ())
        lanes = []
        for number, tracks in self.by_lane.items():
            sources = [
                self.entries.source((track.number, share, None))
                for track in tracks
                if (track.number in fair if track.fair else share == "")
            ]
            if sources:
                lanes.append(Lane(self.queue, number, self.order, sources))
        return lanes

    def has_first(self, lane: Lane) -> bool:
        """Advance a lane to a task that may start; False if there is none, or the bound is reached."""
        while lane.settle_first() and not self.is_stopped:
            if self.headrooms is None or self.may_start(lane, self.headrooms):
                return True
        return False

    def may_start(self, lane: Lane, headrooms: Headrooms) -> bool:
        """Whether limits on its name and partition allow the first task to start; else the lane goes on."""
        head, settings = lane.head, self.queue.settings
        partition = None if settings.per_partition is None else head.partition
        if settings.per_task and headrooms.is_full(self.queue, Scope.TASK, self.tracks[head.track].name):
            lane.end_source()
        elif head.id in self.taken:  # it was read both as a head and behind another
            lane.is_used = True
        elif partition is None or not headrooms.is_full(self.queue, Scope.PARTITION, partition.name):
            return True
        elif lane.source.key[2] is None:
            self.blocked[head.id] = partition
            lane.is_used = True
        else:
            lane.end_source()
        return False

    def take(self, lane: Lane) -> Chosen:
        """Give the first task of a lane."""
        head, share = lane.head, self.heap[0][1]
        lane.is_used = True
        counted: Sequence[Counted] = ()
        if self.headrooms is not None:
            counted = self.headrooms.take(self.queue, self.tracks[head.track].name, head.partition)
            self.follow(lane, head, share, self.headrooms)
        if self.queue.settings.fair:
            self.clock = start_virtual_time(self.clock, self.virtual_times[share])
            self.virtual_times[share] = self.served[share] = next_virtual_time(self.queue.settings, share, self.clock)
        return Chosen(head, share, counted)

    def follow(self, lane: Lane, head: Head, share: str, headrooms: Headrooms) -> None:
        """If the partition of a given task has headroom left, the tasks behind it may start too."""
        partition = head.partition
        if partition is None or self.queue.settings.per_partition is None:
            return
        self.taken.add(head.id)
        group = (head.track, share, head.partition_key)
        if group not in self.groups and not headrooms.is_full(self.queue, Scope.PARTITION, partition.name):
            self.groups.add(group)
            lane.coming.append(self.entries.source(group, head))

    def end(self, lane: Lane) -> None:
        """Take nothing more from this lane in this claim."""
        self.lanes[self.heap[0][1]].remove(lane)


def startable(headrooms: Headrooms, queue: Queue, tracks: list[Track]) -> list[Track]:
    """The tracks whose tasks may start by the limits on the queue and on their names."""
    if not queue.settings.limits_starts:
        return tracks
    if headrooms.is_full(queue, Scope.QUEUE, ""):
        return []
    return [track for track in tracks if not headrooms.is_full(queue, Scope.TASK, track.name)]


class Choice:
    """The tasks to give, most urgent first."""

    def __init__(self, cursors: Sequence[QueueCursor], request: ClaimRequest, now: Instant) -> None:
        self.cursors = list(cursors)
        self.request = request
        self.now = now
        self.wanted = request.limit + request.prefetch
        self.below = [0] * len(request.floors)
        self.chosen: list[Chosen] = []

    def go_on(self) -> list[Chosen] | NeedMore:
        """All of them, or what must be read first."""
        try:
            if (lane := self.only_lane()) is not None:
                self.chosen += lane.take(self.wanted - len(self.chosen))
            while len(self.chosen) < self.wanted and self.choose_next():
                pass
        except NotRead as error:
            return error.need
        return self.chosen

    def only_lane(self) -> Lane | None:
        """The lane of a queue that has no other, no limits and no shares: nothing needs to be compared."""
        if len(self.cursors) != 1 or self.request.floors:
            return None
        cursor = self.cursors[0]
        if cursor.headrooms is not None or cursor.turns is not None:
            return None
        lane = cursor.lane(self.now)
        return lane if lane is not None and len(cursor.lanes[""]) == 1 else None

    def choose_next(self) -> bool:
        """Choose one more task, or find that a lane or queue gives no more; False if none does."""
        found = [(lane, cursor) for cursor in self.cursors if (lane := cursor.lane(self.now)) is not None]
        if not found:
            return False
        lane, cursor = found[0] if len(found) == 1 else min(found, key=self.order)
        under = self.floors_above(lane) if self.below else ()
        if cursor.is_full or (cursor.headrooms is not None and len(self.chosen) >= self.request.limit):
            self.cursors.remove(cursor)
        elif any(self.below[i] >= self.request.floors[i].below for i in under):
            cursor.end(lane)
        else:
            self.chosen.append(cursor.take(lane))
            for i in under:
                self.below[i] += 1
        return True

    def floors_above(self, lane: Lane) -> list[int]:
        """The floors that the first task of a lane is under."""
        effective = lane.effective(self.now)
        return [i for i, floor in enumerate(self.request.floors) if effective < floor.effective]

    def order(self, candidate: tuple[Lane, QueueCursor]) -> tuple[float, ...]:
        return candidate[0].key(self.now, self.request.in_order)


def first_of(cursor: QueueCursor, found: list[str], now: Instant, most: int, until: str | None) -> NeedMore | None:
    """Add the next pending tasks of a queue in the order of claims, at most up to `until`; what must be read first."""
    try:
        while len(found) < most and (not found or found[-1] != until) and (lane := cursor.lane(now)) is not None:
            found.append(cursor.take(lane).head.id)
    except NotRead as error:
        return error.need
    return None
