"""Which tasks a claim gives: the heads of kinds, lanes, shares and queues, merged, within their limits."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import chain, groupby

from dibs.core.limits import Scope
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.sqlite.fairness import TurnOrder, clock_of, save_turns
from dibs.engines.sqlite.headroom import Headrooms
from dibs.engines.sqlite.heads import Head, read_group, read_track, read_turns
from dibs.engines.sqlite.ordering import SMALLEST_CHUNK, Lane, chunk_for, lanes_of
from dibs.engines.sqlite.partitions import GATE_BUDGET, gate
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import COUNT_LIMIT, ClaimRequest

__all__ = ["QueueCursor", "choose"]


class QueueCursor:
    """The next task of one queue for one worker: from the first share in turn that has a task for it."""

    def __init__(
        self, transaction: Transaction, queue: Queue, order: int, tracks: list[Track], headrooms: Headrooms, wanted: int
    ) -> None:
        self.transaction = transaction
        self.queue = queue
        self.order = order
        self.headrooms = headrooms
        self.limited = queue.settings.limits_starts
        self.headroom = headrooms.of(queue.name, Scope.QUEUE, "")
        self.names = queue.settings.per_task
        self.tracks = [track for track in tracks if self.has_headroom(track.name)]
        self.wanted = wanted
        self.chunk = chunk_for(wanted, len(self.tracks))
        self.lanes: dict[str, list[Lane]] = {}
        self.firsts: dict[str, list[Head]] = {}
        self.idle: dict[int, list[str]] = {}
        self.shares: dict[str, str] = {}
        """The shares of the taken tasks, by id, without those of the share without a name."""
        self.taken: set[str] = set()
        self.groups: set[tuple[Partition, int, str]] = set()
        self.blocked: dict[str, None] = {}
        self.passed = 0
        self.is_truncated = False
        """Too many turns had nothing to give: the rest is left to the next claim."""
        self.stopped = False
        """Too many tasks were passed over: the rest is left to the next claim."""
        self.turns = self.open_turns()

    @property
    def is_over(self) -> bool:
        """Whether it gives nothing more. No share gets a second turn before the turns that were left."""
        return (
            self.stopped
            or self.passed >= COUNT_LIMIT
            or (self.is_truncated and self.turns.share in self.turns.virtual_times)
        )

    @property
    def is_full(self) -> bool:
        return self.headroom is not None and self.headroom.is_full

    def has_headroom(self, name: str) -> bool:
        headroom = self.headrooms.of(self.queue.name, Scope.TASK, name) if self.names else None
        return headroom is None or not headroom.is_full

    def foretell(self, heads: list[Head]) -> None:
        """Read the partitions of tasks that are about to be checked, all at once."""
        self.headrooms.know(self.queue, {each: None for head in heads if (each := head.partition) is not None})

    def open_turns(self) -> TurnOrder:
        fair = [track.number for track in self.tracks if track.fair]
        if not fair and not self.queue.settings.fair:
            return TurnOrder(self.queue)
        clock, virtual_time = clock_of(self.transaction, self.queue.name)
        if fair:
            self.transaction.run("reset_passed", to_json(fair), clock)
        sources = [self.turns_of(track) for track in fair]
        if len(fair) < len(self.tracks):
            sources.append(iter([(virtual_time if virtual_time > clock else 0, "")]))
        return TurnOrder(self.queue, clock, (turn for turn, _ in groupby(merge(*sources))))

    def turns_of(self, track: int) -> Iterator[tuple[int, str]]:
        """The turns of a track, keeping the first task of each; turns without tasks are noted."""
        for turns in read_turns(self.transaction, track, self.chunk + 2):
            if self.limited:
                self.foretell([turn.head for turn in turns if turn.head is not None])
            idle = self.idle.setdefault(track, [])
            for turn in turns:
                if turn.head is None:
                    idle += [] if turn.is_kept else [turn.share]
                else:
                    self.firsts.setdefault(turn.share, []).append(turn.head)
                    yield turn.virtual_time, turn.share
            if len(idle) >= GATE_BUDGET:
                self.is_truncated = True
                return

    def lane(self, now: Instant) -> Lane | None:
        """The lane that gives next; its first task may start."""
        while (share := self.turns.share) is not None and not self.is_over:
            if share not in self.lanes:
                self.lanes[share] = self.open_lanes(share)
            lanes = self.lanes[share]
            lanes[:] = [lane for lane in lanes if self.goes_on(lane)]
            if lanes:
                return lanes[0] if len(lanes) == 1 else min(lanes, key=lambda each: each.key(now, in_order=False))
            self.passed += 1
            self.turns.end()
        return None

    def open_lanes(self, share: str) -> list[Lane]:
        tracks = self.transaction.catalog.tracks
        sources: list[tuple[Track, Iterator[Head]]] = [
            (tracks[first.track], chain([first], self.read(first.track, share, SMALLEST_CHUNK, first)))
            for first in self.firsts.pop(share, ())
        ]
        if share == "":
            plain = [track for track in self.tracks if not track.fair]
            sources += [(track, self.read(track.number, share, self.chunk)) for track in plain]
        return lanes_of(self.queue, self.order, sources)

    def read(self, track: int, share: str, chunk: int, after: Head | None = None) -> Iterator[Head]:
        if self.limited:
            return read_track(self.transaction, track, share, False, chunk, after, self.foretell)
        return read_track(self.transaction, track, share, False, chunk, after)

    def goes_on(self, lane: Lane) -> bool:
        """Advance a lane to a task that may start; False if there is none, or the bound is reached."""
        if lane.is_used:
            lane.is_used = False
            lane.advance()
        if not self.limited:
            return bool(lane.heap)
        tracks = self.transaction.catalog.tracks
        while lane.heap and not self.stopped:
            head = lane.head
            if self.names and not self.has_headroom(tracks[head.track].name):
                lane.drop()
            elif (partition := head.partition) is None or self.may_start(head, partition):
                return True
            else:
                lane.advance()
        return False

    def may_start(self, head: Head, partition: Partition) -> bool:
        """Whether a task's partition has headroom. If not, it need not be checked again until it has."""
        if head.id in self.taken or head.id in self.blocked:  # it was read both as a head and behind another
            return False
        headroom = self.headrooms.of(self.queue.name, Scope.PARTITION, partition.name)
        if headroom is None or not headroom.is_full:
            return True
        self.blocked[head.id] = None
        if headroom.has_no_token:
            self.transaction.mark_changed(partition)
        self.stopped = len(self.blocked) >= GATE_BUDGET
        return False

    def take(self, lane: Lane) -> Head:
        """Give the first task of a lane."""
        head, share = lane.head, self.turns.share or ""
        if share:
            self.shares[head.id] = share
        if self.limited:
            self.start(lane, head, share)
        lane.is_used = True
        self.turns.served()
        return head

    def start(self, lane: Lane, head: Head, share: str) -> None:
        """A task takes its slots and tokens. If its partition has headroom left, the next task in it may start too."""
        name = self.transaction.catalog.tracks[head.track].name
        partition = head.partition
        for headroom in self.headrooms.of_task(self.queue.name, name, partition):
            headroom.started += 1
        room = None if partition is None else self.headrooms.of(self.queue.name, Scope.PARTITION, partition.name)
        if partition is None or room is None:
            return
        self.taken.add(head.id)
        if room.is_full:
            return
        self.transaction.mark_changed(partition)
        group = (partition, head.track, share)
        if group not in self.groups:
            self.groups.add(group)
            chunk = min(self.wanted, room.left or self.wanted)
            lane.add(read_group(self.transaction, head, share, chunk))

    def end(self, lane: Lane) -> None:
        """Take nothing more from this lane in this claim."""
        self.lanes[self.turns.share or ""].remove(lane)

    def finish(self, tracks: list[int]) -> None:
        """Write what the claim found. `tracks`: all fair ones of the queue that have pending tasks."""
        if self.blocked:
            gate(self.transaction, self.blocked)
        for track, shares in self.idle.items():
            if shares:
                self.transaction.run("delete_turns", track, to_json(shares))
        save_turns(self.transaction, self.queue.name, self.turns, tracks)


def choose(cursors: list[QueueCursor], request: ClaimRequest, now: Instant) -> list[Head]:
    """The tasks to give, most urgent first."""
    wanted = request.limit + request.prefetch
    if len(cursors) == 1 and not request.floors and (lane := only_lane(cursors[0], now)) is not None:
        return lane.take(wanted)
    below = [0] * len(request.floors)
    chosen: list[Head] = []
    cursors = list(cursors)
    while len(chosen) < wanted:
        found = [(lane, cursor) for cursor in cursors if (lane := cursor.lane(now)) is not None]
        if not found:
            break
        lane, cursor = found[0] if len(found) == 1 else min(found, key=lambda e: e[0].key(now, request.in_order))
        if cursor.limited and (cursor.is_full or len(chosen) >= request.limit):
            cursors.remove(cursor)
            continue
        under = [i for i, floor in enumerate(request.floors) if lane.effective(now) < floor.effective]
        if any(below[i] >= request.floors[i].below for i in under):
            cursor.end(lane)
            continue
        chosen.append(cursor.take(lane))
        for i in under:
            below[i] += 1
    return chosen


def only_lane(cursor: QueueCursor, now: Instant) -> Lane | None:
    """The lane of a queue that has no other, no limits and no shares: nothing needs to be compared."""
    if cursor.limited or cursor.queue.settings.fair or any(track.fair for track in cursor.tracks):
        return None
    lane = cursor.lane(now)
    return lane if lane is not None and len(cursor.lanes[""]) == 1 else None
