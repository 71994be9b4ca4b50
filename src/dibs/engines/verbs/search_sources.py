"""Where a search finds tasks that may match: ranges of ids, unfinished tasks by state, members of a workflow.

A source is read downwards by id, a bounded stretch at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from dibs.core.ids import is_id
from dibs.core.states import State
from dibs.engines.decisions.blocks import (
    HIGHEST,
    NEIGHBOURS,
    WIDE,
    Span,
    block_of,
    common,
    created_trait,
    first_id,
    joined,
    key_trait,
    name_trait,
    partition_trait,
    slot_of,
    spans_of,
    tenant_trait,
    wide_worker_trait,
    worker_trait,
)
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.searching import Wanted, has_columns_only, is_track_meant, unfinished_states, wanted_by
from dibs.engines.port import IdRange, Read, Stretch, View
from dibs.engines.values import Query

__all__ = ["BLOCKS", "source_of"]

MOST_RANGES = 16
"""Ranges of ids that are read at once."""
MOST_BLOCKS = 1000
"""Blocks of a trait that are read at once."""
MOST_TRAITS = 500
"""Beyond that, the names that are asked for are no reason to leave a block out."""
MOST_SKEWED = 5000
"""Beyond that, ids say too little about the time of creation."""
FEW = 2000
"""Tasks that are read by their state alone, although more is asked of them."""
READ_THROUGH = 50_000
"""Entries of an index that is not in the order of ids: all are read to find the newest."""
UNORDERED = frozenset({State.PENDING, State.RUNNING})
"""States whose index is not in the order of ids."""


class Sketch(Struct, array_like=True, frozen=True):
    """What is known of a task before it is read."""

    id: str
    track: Any
    state: Any
    worker: Any


NEWEST_MEMBERS = Read("newest_members", Sketch, "task")
"""Takes the id to begin below or None, how many, whether unfinished, dead and finished ones are wanted, and a workflow:
its members, newest first."""
UNFINISHED_IN = Read("unfinished_in", str, "task")
"""Takes the id to begin below or None, how many, and (track, state) rows: tasks in these states, newest first."""
BLOCKS = Read("blocks", tuple[int, int], "block of trait")
"""Takes traits, the block to begin below, and how many: the newest blocks of each trait, as (its position, block)."""
BLOCKS_BETWEEN = Read("blocks_between", int, "block")
"""Takes the first and the last trait, and how many: the blocks of the traits between."""


class Source(Protocol):
    """Tasks that may match."""

    async def read(self, below: str | None, most: int) -> Stretch:
        """Those below an id, newest first; about so many rows are visited in each place."""
        ...


async def source_of(view: View, query: Query) -> Source:
    """What a query reads."""
    wanted = wanted_by(query, view.tracks)
    if query.workflow is not None:
        return Members(view, query.workflow, wanted)
    counts = [each for each in await view.counts_by_track() if is_counted(query, *each)] if query.states else []
    if query.states and wanted.tracks is not None:
        wanted = structs.replace(wanted, tracks=sorted({track.number for _, track, _ in counts}))
        if not wanted.tracks:
            return Nothing()
    states = rows_by_state(query, counts)
    if states is None:
        return Ranges(view, query, wanted)
    unfinished, rest = Unfinished(view, states), structs.replace(wanted, tasks=False)
    has_rest = rest.dead or rest.finished or rest.cancelled
    by_state = Both(unfinished, Ranges(view, query, rest)) if has_rest else unfinished
    return First(Ranges(view, query, wanted), by_state) if State.PENDING in query.states else by_state


class Nothing:
    """Counts tell that no task can match."""

    async def read(self, below: str | None, most: int) -> Stretch:
        return Stretch([], None, 0)


class Members:
    """The members of a workflow."""

    def __init__(self, view: View, workflow: str, wanted: Wanted) -> None:
        self.view, self.workflow, self.wanted = view, workflow, wanted

    async def read(self, below: str | None, most: int) -> Stretch:
        if not is_id(self.workflow):
            return Stretch([], None, 0)
        wanted = self.wanted
        places = (wanted.tasks, wanted.dead, wanted.finished or wanted.cancelled)
        found = await self.view.fetch(NEWEST_MEMBERS, below, most, *places, self.workflow)
        ids = [each.id for each in found.rows if self.may_match(each)]
        floor = found.last[0] if found.number == most and found.last is not None else None
        return Stretch(ids, floor, found.number)

    def may_match(self, each: Sketch) -> bool:
        """Most need not be read to know that they don't, and their payloads may be large."""
        tracks = self.wanted.tracks
        return each.state not in self.wanted.unwanted and (tracks is None or each.track in tracks)


# Unfinished tasks by state.


def is_counted(query: Query, state: State, track: Track, n: int) -> bool:
    """Whether there are tasks of a track in one of the states asked for."""
    return n > 0 and state in query.states and is_track_meant(query, track.queue, track.name)


def rows_by_state(query: Query, counted: Sequence[tuple[State, Track, int]]) -> list[tuple[int, State]] | None:
    """The tracks that have tasks in the unfinished states asked for; None if reading ranges of ids costs less.

    Counts tell how many tasks there are.
    """
    states = unfinished_states(query)
    if not states:
        return None
    counts = [(track.number, state, n) for state, track, n in counted if state in states]
    total, unordered = sum(n for _, _, n in counts), sum(n for _, state, n in counts if state in UNORDERED)
    if unordered > READ_THROUGH or (total > FEW and not is_about_states(query)):
        return None
    return [(track, state) for track, state, _ in counts]


def is_about_states(query: Query) -> bool:
    """Whether all that is found by state, queue and name matches."""
    labels = (query.key, query.tenant, query.partition, query.worker, query.created_after, query.created_before)
    return has_columns_only(query) and all(each is None for each in labels)


class Unfinished:
    """Unfinished tasks in some states."""

    def __init__(self, view: View, rows: list[tuple[int, State]]) -> None:
        self.view, self.rows = view, rows

    async def read(self, below: str | None, most: int) -> Stretch:
        if not self.rows:
            return Stretch([], None, 0)
        found = await self.view.fetch(UNFINISHED_IN, below, most, self.rows)
        floor = found.last[0] if found.number == most and found.last is not None else None
        return Stretch(found.rows, floor, found.number)


class Both:
    """Two sources as one."""

    def __init__(self, *sources: Source) -> None:
        self.sources = sources

    async def read(self, below: str | None, most: int) -> Stretch:
        found = [await source.read(below, most) for source in self.sources]
        floor = max((each.floor or "" for each in found), default="")
        ids = {task_id for each in found for task_id in each.ids if task_id >= floor}
        return Stretch(sorted(ids, reverse=True), floor or None, sum(each.visited for each in found))


class First:
    """A source for the first stretch, which often suffices, and another for the rest."""

    def __init__(self, first: Source, rest: Source) -> None:
        self.first: Source | None = first
        self.rest = rest

    async def read(self, below: str | None, most: int) -> Stretch:
        source, self.first = self.first or self.rest, None
        return await source.read(below, most)


# Ranges of ids.


class Ranges:
    """All tasks, or those in the blocks of ids that have all traits asked for.

    The first stretch is read without asking for blocks: it often suffices.
    """

    def __init__(self, view: View, query: Query, wanted: Wanted) -> None:
        self.view, self.wanted = view, wanted
        self.groups, self.created = groups_of(view, query), created_span(view, query)
        self.spans: list[Span] = []
        self.complete_to = HIGHEST + 1
        """The spans of all blocks from this one on are known."""
        self.is_first = True
        self.width = 1
        """How many ranges are read next: many only if they turn out to be small."""

    async def read(self, below: str | None, most: int) -> Stretch:
        if self.is_first or not (self.groups or self.created):
            self.is_first = False
            (found,) = await self.view.newest([(None, below)], most, self.wanted)
            return found
        ranges = await self.next_ranges(below)
        if not ranges:
            return Stretch([], None, 0)
        each_most = max(most // len(ranges), 1)
        return self.joined(ranges, await self.view.newest(ranges, each_most, self.wanted))

    def joined(self, ranges: Sequence[IdRange], found: Sequence[Stretch]) -> Stretch:
        """The stretches down to the first that is not complete."""
        ids: list[str] = []
        visited = sum(each.visited for each in found)
        for each in found:
            ids += each.ids
            if each.floor is not None:
                self.width = 1
                return Stretch(ids, each.floor, visited)
        self.width = min(4 * self.width, MOST_RANGES)
        is_last = self.complete_to <= 0 and ranges[-1][0] == first_id(self.spans[-1][0])
        return Stretch(ids, None if is_last else ranges[-1][0], visited)

    async def next_ranges(self, below: str | None) -> list[IdRange]:
        """The next ranges of ids below one; none at the end."""
        top = HIGHEST if below is None else block_of(below)
        while True:
            spans = [(first_id(low), first_id(min(high, top) + 1)) for low, high in self.spans if low <= top]
            ranges = [(low, high if below is None else min(high, below)) for low, high in spans]
            found: list[IdRange] = [(low, high) for low, high in ranges if low < high]
            if found or self.complete_to <= 0:
                return found[: self.width]
            await self.read_blocks(min(self.complete_to, top + 1))

    async def read_blocks(self, below: int) -> None:
        """Find the next blocks that have a trait of each group."""
        spans, floors = [(0, below - 1)], [] if self.groups else [0]
        if self.created is not None:
            created = await self.created_spans(self.created)
            spans = spans if created is None else common(spans, created)
        for group in self.groups:
            found, lowest = await self.blocks_of(group, below)
            floors.append(lowest)
            # What is not known yet of a frequent trait must not keep a rare one from being found far below.
            spans = common(spans, [*found, (0, lowest - 1)] if lowest > 0 else found)
        floor = min(floors)
        self.spans = [(max(low, floor), high) for low, high in spans if high >= floor]
        self.complete_to = floor

    async def blocks_of(self, group: Group, below: int) -> tuple[list[Span], int]:
        """The blocks of some traits, and from which block on they are all of them."""
        rows = await self.view.read(BLOCKS, [*group.traits, *group.wide], below, MOST_BLOCKS)
        by_trait: dict[int, list[int]] = {}
        for trait, block in rows:
            by_trait.setdefault(trait, []).append(block)
        lowest = max((min(each) for each in by_trait.values() if len(each) >= MOST_BLOCKS), default=0)
        return [(max(low, lowest), high) for low, high in group.spans(by_trait) if high >= lowest], lowest

    async def created_spans(self, created: Span) -> list[Span] | None:
        """Where tasks of the time asked for can be; None: anywhere."""
        first, last = created
        skewed = await self.view.read(BLOCKS_BETWEEN, created_trait(first), created_trait(last), MOST_SKEWED)
        if len(skewed) >= MOST_SKEWED:
            return None
        near = (max(first - NEIGHBOURS, 0), min(last + NEIGHBOURS, HIGHEST))
        above, below = (near[1] + 1, HIGHEST), (0, near[0] - 1)
        outside = common(spans_of(set(skewed), WIDE), [each for each in (above, below) if each[0] <= each[1]])
        return sorted([near, *outside], reverse=True)


class Group(Struct, frozen=True):
    """The traits of which a block must have one, for one condition, and wide ones."""

    traits: list[str]
    wide: tuple[str, ...] = ()

    def spans(self, by_trait: Mapping[int, Collection[int]]) -> list[Span]:
        """The spans of the blocks of each trait; the wide ones are the last."""
        few, many = set[int](), set[int]()
        for number, blocks in by_trait.items():
            (few if number < len(self.traits) else many).update(blocks)
        return joined(spans_of(few), spans_of(many, WIDE))


def groups_of(view: View, query: Query) -> list[Group]:
    """What the index of id blocks knows of a query."""
    groups: list[Group] = []
    if query.queues or query.names:
        tracks = {(track.queue, track.name) for track in view.tracks.values()}
        names = [name_trait(*each) for each in sorted(tracks) if is_track_meant(query, *each)]
        groups += [Group(names)] if len(names) <= MOST_TRAITS else []
    if query.worker is not None:
        groups.append(Group([worker_trait(query.worker)], (wide_worker_trait(query.worker),)))
    if query.tenant:
        groups.append(Group([tenant_trait(query.tenant)]))
    if query.partition is not None:
        groups.append(Group([partition_trait(query.partition)]))
    if query.key is not None:
        groups.append(Group([key_trait(query.key)]))
    return groups


def created_span(view: View, query: Query) -> Span | None:
    """The blocks of ids that are made in the time asked for; None if that is always."""
    before = None if query.created_before is None or query.created_before > view.now else query.created_before
    if query.created_after is None and before is None:
        return None
    first = 0 if query.created_after is None else slot_of(query.created_after)
    return first, HIGHEST if before is None else slot_of(before)
