"""The heads of the pending index, read in growing pages, and the order in which shares take turns."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from dibs.core.fairness import start_virtual_time
from dibs.core.times import Instant
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.rows import TaskRow, columns
from dibs.engines.postgres.transaction import Snapshot, Transaction

__all__ = ["Head", "Key", "NeedMore", "NotRead", "Pages"]

SMALLEST_PAGE = 8
LARGEST_PAGE = 1000
TURNS = 50
LOWEST = -(2**62)
"""Below every rank."""
LOWEST_ID = "00000000-0000-0000-0000-000000000000"

Key = tuple[int, str, Partition | None]
"""A track, a share, and a partition if only its tasks are meant."""


class Head(Struct, frozen=True, order=True):
    """An entry of the pending index; entries compare in claim order within a lane."""

    rank: int
    id: str
    ready_at: Instant
    track: int
    partition: Partition | None = None


class TurnOrder(Struct):
    """The shares of a queue that have pending tasks, in the order of their turns, as far as they were read."""

    clock: int
    virtual_times: list[tuple[int, str]]
    is_complete: bool

    def is_known(self, start: int, share: str, clock: int) -> bool:
        """Whether no share that was not read can come before this one."""
        if self.is_complete:
            return True
        virtual_time, last = self.virtual_times[-1]
        edge = start_virtual_time(self.clock, virtual_time)
        return clock <= edge and (start, share) <= (edge, last)


class NeedMore(Struct, frozen=True):
    """What must be read before tasks can be chosen: heads of `key`, turns of `queue`, or headroom of `partitions`."""

    key: Key | None = None
    after: Head | None = None
    queue: str = ""
    partitions: tuple[Partition, ...] = ()


class NotRead(Exception):
    """A choice needs something that was not read.

    Raised inside the iterators that lanes merge; it never leaves `choosing`, which answers with `need`.
    """

    def __init__(self, need: NeedMore) -> None:
        super().__init__(need)
        self.need = need


class Pages:
    """What was read so far."""

    def __init__(self, snapshot: Snapshot, wanted: int, with_gated: bool = False) -> None:
        self.snapshot = snapshot
        self.with_gated = with_gated
        self.page = min(max(SMALLEST_PAGE, wanted), LARGEST_PAGE)
        self.heads: dict[Key, list[Head]] = {}
        self.complete: set[Key] = set()
        self.turns: dict[str, TurnOrder] = {}
        self.tracks: dict[str, list[Track]] = {}

    async def open(self, queues: list[tuple[int, Queue]], tracks: dict[str, list[Track]]) -> None:
        """Read the first page of everything that may be next."""
        self.tracks = tracks
        wanted: list[Key] = []
        for _, queue in queues:
            mine = tracks[queue.name]
            wanted += [(track.number, "", None) for track in mine if not track.fair]
            if queue.settings.fair or any(track.fair for track in mine):
                await self.read_turns(queue.name, TURNS)
                wanted += self.keys_of_turns(queue.name)
        await self.read(wanted)

    def keys_of_turns(self, queue: str) -> list[Key]:
        fair = [track.number for track in self.tracks[queue] if track.fair]
        return [(number, share, None) for _, share in self.turns[queue].virtual_times for number in fair]

    async def read_turns(self, queue: str, most: int) -> None:
        clock = await self.snapshot.value("clock", queue) or 0
        if isinstance(self.snapshot, Transaction):
            await self.snapshot.write("reset_passed", queue, clock)
            rows = await self.snapshot.rows("turn_order", queue, most)
        else:
            rows = await self.snapshot.rows("turn_order_as_seen", queue, clock, most)
        self.turns[queue] = TurnOrder(clock, [(row["virtual_time"], row["share"]) for row in rows], len(rows) < most)

    async def read(self, keys: list[Key]) -> None:
        """The next page of each of these."""
        keys = [key for key in dict.fromkeys(keys) if key not in self.complete]
        if not keys:
            return
        asked = []
        for track, share, _ in keys:
            there = self.heads.setdefault((track, share, None), [])
            asked.append((track, share, *((there[-1].rank, there[-1].id) if there else (LOWEST, LOWEST_ID))))
        rows = await self.snapshot.rows("read_tracks", *columns(asked, 4), self.page, self.with_gated)
        found: dict[Key, int] = dict.fromkeys(keys, 0)
        for row in rows:
            key = (row["track"], row["share"], None)
            found[key] += 1
            self.heads[key].append(self.head_of(row))
        self.complete |= {key for key, count in found.items() if count < self.page}

    async def read_group(self, key: Key, after: Head) -> None:
        """The next page of a partition's tasks in one track and share, after a task."""
        there = self.heads.setdefault(key, [])
        last = there[-1] if there else after
        track, share, partition = key
        assert partition is not None
        rows = await self.snapshot.rows("read_group", partition.key, track, share, last.rank, last.id, self.page)
        there += [self.head_of(row) for row in rows]
        if len(rows) < self.page:
            self.complete.add(key)

    async def read_more(self, need: NeedMore) -> None:
        """Read the turns or heads that a choice needs."""
        if need.queue:
            await self.read_turns(need.queue, 4 * len(self.turns[need.queue].virtual_times))
            await self.read([key for key in self.keys_of_turns(need.queue) if key not in self.heads])
        elif need.key is not None:
            self.page = min(2 * self.page, LARGEST_PAGE)
            if need.key[2] is not None and need.after is not None:
                await self.read_group(need.key, need.after)
            else:
                await self.read([need.key])

    def partitions(self) -> set[Partition]:
        """The partitions of all tasks that were read."""
        return {head.partition for heads in self.heads.values() for head in heads if head.partition is not None}

    def of(self, key: Key, after: Head | None = None) -> Iterator[Head]:
        """The entries in order; raises `NotRead` at the end of what was read."""
        position, aside = 0, self.snapshot.aside
        while True:
            heads = self.heads.get(key, [])
            if position < len(heads):
                if heads[position].id not in aside.tasks and heads[position].track not in aside.crowded:
                    yield heads[position]
                position += 1
            elif key in self.complete:
                return
            else:
                raise NotRead(NeedMore(key, after))

    def head_of(self, row: TaskRow) -> Head:
        partition = None if row["partition"] is None else Partition.parse(row["partition"])
        head = Head(row["rank"], str(row["id"]), row["ready_at"], row["track"], partition)
        if row["ready_at"] is None:
            self.snapshot.aside.log_once("task", head.id, "it is pending, but has no ready_at")
            self.snapshot.aside.skip_task(head.id, head.track)
        return head
