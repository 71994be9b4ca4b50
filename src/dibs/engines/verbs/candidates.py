"""What a choice of tasks works on, read in growing pages: entries of the pending index, turns, and loads of limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dibs.core.fairness import start_virtual_time
from dibs.core.limits import Bucket, Scope, limit_of
from dibs.engines.decisions.choosing import GATE_BUDGET, Head, Headrooms, Key, NeedMore, Pages, TurnOrder
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.headroom import headroom_of
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import Found, Port, View
from dibs.engines.values import COUNT_LIMIT
from dibs.engines.verbs.partitions import partition_headrooms
from dibs.engines.verbs.reading import BUCKETS, TENANTS

__all__ = ["LOWEST", "LOWEST_ID", "Candidates", "ClaimCandidates", "headrooms_of"]

SMALLEST_PAGE = 8
LARGEST_PAGE = 1000
Group = tuple[int, str, str]
"""A track, a share, and the key of a partition."""
LOWEST = -(2**62)
"""Below every rank."""
LOWEST_ID = "00000000-0000-0000-0000-000000000000"


async def headrooms_of(view: View, queues: Sequence[Queue]) -> Headrooms:
    """The headroom under the limits of whole queues and of task names. That of partitions is read when needed."""
    headrooms = Headrooms()
    for queue in queues:
        whose = [(Scope.QUEUE, ""), *((Scope.TASK, name) for name in queue.settings.per_task)]
        limits = {each: limit for each in whose if (limit := limit_of(queue.settings, *each)) is not None}
        rates = [(queue.name, *each) for each, limit in limits.items() if limit.rate is not None]
        found = await view.read(BUCKETS, rates) if rates else []
        buckets = {(each.scope, each.whose): Bucket(each.level, each.at) for each in found}
        slots = any(limit.max_concurrent is not None for limit in limits.values())
        running: Mapping[str, int] = await view.running_by_name(queue.name) if slots else {}
        for each, limit in limits.items():
            headroom = headroom_of(limit, running.get(each[1], 0), buckets.get(each), view.now)
            headrooms.known[queue.name, *each] = headroom
    return headrooms


class Candidates:
    """What was read so far to see what is next, whatever limits say. `tracks`: of each queue, those to choose from."""

    with_gated = True
    largest = COUNT_LIMIT

    def __init__(self, view: View, tracks: Mapping[str, Sequence[Track]], wanted: int) -> None:
        self.view = view
        self.tracks = tracks
        self.wanted = wanted
        self.pages = Pages(frozenset(view.passed_over))
        self.page = min(max(SMALLEST_PAGE, wanted // max(1, sum(map(len, tracks.values())))), self.largest)
        self.last: dict[Key, tuple[object, ...]] = {}
        """Rank and id behind which the next page of a key begins."""

    async def open(self, queues: Sequence[Queue]) -> None:
        """Read the first page of everything that may be next."""
        plain: list[Key] = []
        for queue in queues:
            tracks = self.tracks[queue.name]
            plain += [(track.number, "", None) for track in tracks if not track.fair]
            if queue.settings.fair or any(track.fair for track in tracks):
                await self.read_turns(queue.name, self.wanted + 2)
        if plain:
            await self.read(plain, self.page)

    async def read_turns(self, queue: str, most: int) -> None:
        """Read the first turns of a fair queue, and the best tasks of their shares."""
        clock, unnamed = await self.view.clock(queue)
        fair = [track.number for track in self.tracks[queue] if track.fair]
        turns = self.pages.turns.setdefault(queue, TurnOrder(clock))
        await self.add_turns(turns, queue, fair, most)
        if len(fair) < len(self.tracks[queue]):  # tasks that were ranked before the queue was fair have no share
            turns.virtual_times.setdefault("", unnamed if unnamed > clock else 0)
        keys: list[Key] = [(track, share, None) for share, tracks in turns.tracks.items() for track in tracks]
        if new := [key for key in keys if key not in self.pages.heads]:
            await self.read(new, min(self.wanted // len(turns.tracks) + 1, self.largest))

    async def add_turns(self, turns: TurnOrder, queue: str, fair: list[int], most: int) -> None:
        """The first shares that have pending tasks, gated or not."""
        found = await self.view.fetch(TENANTS, queue, turns.clock, most) if fair else Found([], 0, None)
        turns.virtual_times |= {each.share: each.virtual_time for each in found.rows}
        turns.tracks = dict.fromkeys(turns.virtual_times, fair)
        last = found.rows[-1] if found.number >= most and found.rows else None
        turns.edge = None if last is None else (start_virtual_time(turns.clock, last.virtual_time), last.share)

    async def read(self, keys: list[Key], page: int) -> None:
        """The next page of each of these tracks and shares."""
        asked = [(*key[:2], *self.last.get(key, (LOWEST, LOWEST_ID))) for key in keys]
        self.keep(keys, await self.view.read_tracks(asked, page, self.with_gated), page)

    def keep(self, keys: Sequence[Key], founds: Sequence[Found[Head]], page: int) -> None:
        for key, found in zip(keys, founds, strict=True):
            self.pages.heads.setdefault(key, []).extend(found.rows)
            if found.last is not None:
                self.last[key] = found.last[:2]
            if found.number < page:
                self.pages.complete.add(key)

    async def read_more(self, need: NeedMore) -> None:
        """Read what a choice needs."""
        if need.queue:
            await self.read_turns(need.queue, 4 * len(self.pages.turns[need.queue].virtual_times) + SMALLEST_PAGE)
        elif need.key is not None:
            await self.read(self.alike(need.key), self.next_page(need.key))

    def next_page(self, key: Key) -> int:
        """As many entries as were read so far, so that a deep read takes few of them."""
        return min(max(SMALLEST_PAGE, len(self.pages.heads.get(key, ()))), self.largest)

    def alike(self, key: Key) -> list[Key]:
        """What is read together with a key: its own track, or all shares of its queue, which take turns."""
        queue = self.view.tracks[key[0]].queue
        if not self.view.tracks[key[0]].fair:
            return [key]
        pairs = ((track, share) for share, tracks in self.pages.turns[queue].tracks.items() for track in tracks)
        return [each for pair in pairs if (each := (*pair, None)) not in self.pages.complete]


class ClaimCandidates(Candidates):
    """What was read so far for one claim."""

    with_gated = False
    largest = LARGEST_PAGE

    def __init__(
        self,
        port: Port,
        queues: Sequence[Queue],
        tracks: Mapping[str, Sequence[Track]],
        wanted: int,
        headrooms: Headrooms,
    ) -> None:
        super().__init__(port, tracks, wanted)
        self.port = port
        self.limited = {queue.name: queue for queue in queues if queue.settings.per_partition is not None}
        self.headrooms = headrooms
        self.idle: dict[int, list[str]] = {}
        """By track, the shares whose turns have no task."""

    async def add_turns(self, turns: TurnOrder, queue: str, fair: list[int], most: int) -> None:
        """The first turns of the tracks that the worker can run, and whose names are not at their limits by now."""
        startable = [track for track in fair if not self.is_full(self.view.tracks[track])]
        found = await self.port.first_turns(startable, turns.clock, most) if startable else {}
        last = [each.rows[-1] for each in found.values() if each.number >= most and each.rows]
        turns.edge = min(((start_virtual_time(turns.clock, each[0]), each[1]) for each in last), default=None)
        for track, each in found.items():
            for virtual_time, share in each.rows:
                if turns.edge is None or (start_virtual_time(turns.clock, virtual_time), share) <= turns.edge:
                    turns.virtual_times.setdefault(share, virtual_time)
                    tracks = turns.tracks.setdefault(share, [])
                    if track not in tracks:
                        tracks.append(track)

    def is_full(self, track: Track) -> bool:
        headroom = self.headrooms.known.get((track.queue, Scope.TASK, track.name))
        return headroom is not None and headroom.is_full

    async def read_turns(self, queue: str, most: int) -> None:
        """Also note the turns that have no task. If there are too many of them, the rest is left to the next claim."""
        await super().read_turns(queue, most)
        turns = self.pages.turns[queue]
        idle = [
            (track, share) for share, tracks in turns.tracks.items() for track in tracks if self.is_idle(track, share)
        ]
        for track in {track for track, _ in idle}:
            self.idle[track] = [share for of, share in idle if of == track]
        turns.is_truncated = turns.edge is not None and len(idle) >= GATE_BUDGET

    def is_idle(self, track: int, share: str) -> bool:
        return (track, share, None) not in self.last

    async def read(self, keys: list[Key], page: int) -> None:
        """Also read the loads of the partitions of these candidates, and what is behind them, if that may start too."""
        await super().read(keys, page)
        for queue in self.limited.values():
            firsts: dict[Group, Head] = {
                (*key[:2], head.partition_key): head
                for key in keys
                for head in reversed(self.pages.heads[key])
                if head.partition_key is not None and head.partition_key.startswith(f"{queue.name} ")
            }
            await self.know(queue, [Partition.parse(key[2]) for key in firsts])
            soonest = sorted(firsts, key=firsts.__getitem__)[: self.wanted]
            await self.read_groups({key: firsts[key] for key in soonest if self.may_follow(queue, key)})

    async def know(self, queue: Queue, partitions: Iterable[Partition]) -> None:
        known, limit = self.headrooms.known, queue.settings.per_partition
        new = [each for each in dict.fromkeys(partitions) if (queue.name, Scope.PARTITION, each.name) not in known]
        if limit is not None and new:
            for each, headroom in (await partition_headrooms(self.view, queue.name, limit, new)).items():
                known[queue.name, Scope.PARTITION, each.name] = headroom

    def may_follow(self, queue: Queue, group: Group) -> bool:
        """Whether more than one task of a partition may start."""
        left = self.headrooms.known[queue.name, Scope.PARTITION, Partition.parse(group[2]).name].left
        return left is None or left > 1

    async def read_groups(self, firsts: Mapping[Group, Head]) -> None:
        """What is behind tasks in their partitions, gated or not."""
        new: dict[Key, Head] = {key: head for key, head in firsts.items() if key not in self.pages.heads}
        if new:
            await self.read_behind(new, min(self.wanted // len(new) + 1, self.largest))

    async def read_behind(self, after: Mapping[Key, Head], page: int) -> None:
        asked = [
            (partition, track, share, *self.last.get((track, share, partition), (head.rank, head.id)))
            for (track, share, partition), head in after.items()
        ]
        self.keep([*after], await self.view.read_groups(asked, page), page)

    async def read_more(self, need: NeedMore) -> None:
        if need.partition is not None:
            await self.know(self.limited[need.partition.queue], [need.partition])
        elif need.key is not None and need.after is not None:
            await self.read_behind({need.key: need.after}, self.next_page(need.key))
        else:
            await super().read_more(need)
