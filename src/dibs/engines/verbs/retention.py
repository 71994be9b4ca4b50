"""Retention: the chores that delete what is over, in bounded, resumable steps.

Queues keep their tasks for different times, so deletable rows can lie between rows that are kept: a step visits a
bounded number of rows and remembers where it stopped.
"""

from __future__ import annotations

from collections import Counter as Totals
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, structs
from msgspec.json import decode

from dibs.core.limits import Bucket, Scope, limit_of, refill
from dibs.core.policy import CHORE_BATCH, KEEP_AUDIT, KEEP_MINUTES, KEEP_STEPS, KEEP_WORKERS, VISIT_BATCH
from dibs.core.states import State
from dibs.core.times import DAY, MINUTE, Duration, Instant, day_of
from dibs.engines.decisions.blocks import YOUNG, slot_of
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.records import Place
from dibs.engines.decisions.steps import Done, Step, StepKind
from dibs.engines.port import Found, Port, Read, View
from dibs.engines.unreadable import readable
from dibs.engines.verbs.search_sources import BLOCKS

__all__ = [
    "BUCKETS_AFTER",
    "IdCursor",
    "Sweep",
    "cursor_of",
    "expired_queues",
    "gone_past",
    "limited",
    "prune_audit",
    "prune_blocks",
    "prune_buckets",
    "prune_dead",
    "prune_finished",
    "prune_keys",
    "prune_shares",
    "prune_stats",
    "prune_steps",
    "prune_workers",
    "prune_workflows",
]

Cursor = TypeVar("Cursor", bound=Struct)


# Cursors. What each is by default is the start.


class DayCursor(Struct, array_like=True, frozen=True):
    day: int = -1
    id: str | None = None


class IdCursor(Struct, array_like=True, frozen=True):
    id: str | None = None


class KeyCursor(Struct, array_like=True, frozen=True):
    held_until: Instant = -1
    queue: str = ""
    key: str = ""


class BucketCursor(Struct, array_like=True, frozen=True):
    queue: str = ""
    scope: str = ""
    whose: str = ""


class ShareCursor(Struct, array_like=True, frozen=True):
    queue: str = ""
    share: str = ""


class BlockCursor(Struct, array_like=True, frozen=True):
    trait: str = ""
    block: int = -1


# Rows. Their first columns are a cursor.


class Ended(Struct, array_like=True, frozen=True):
    id: str
    track: int
    state: State


class Key(Struct, array_like=True, frozen=True):
    held_until: Instant
    queue: str
    key: str
    is_free: bool | int


class StoredShare(Struct, array_like=True, frozen=True):
    """A share. `is_idle`: nothing is pending, and the clock has passed its virtual time."""

    queue: str
    share: str
    is_idle: bool | int


class StoredBucket(Struct, array_like=True, frozen=True):
    queue: str
    scope: Scope
    whose: str
    level: int
    at: Instant
    refill_at: Instant | None


class StoredWorkflow(Struct, array_like=True, frozen=True):
    id: str
    is_empty: bool | int


class StoredBlock(Struct, array_like=True, frozen=True):
    """A pair of the index of id blocks. `is_empty`: the block has no task and is not young."""

    trait: str
    block: int
    is_empty: bool | int


SWEPT = "swept"
"""The trait whose block is the day on which the index of id blocks was last gone through to its end."""

ENDED_KEYS = Read("ended_keys", Key, "key", (1, 2))
"""Takes now, a cursor and how many: the keys whose window is over. They are free if their task has ended."""
SHARES_AFTER = Read("shares_after", StoredShare, "share", (0, 1))
"""Takes a cursor and how many: shares, in order."""
BUCKETS_AFTER = Read("buckets_after", StoredBucket, "limit of", (0, 1, 2))
"""Takes a cursor and how many: token buckets, in order."""
BLOCKS_AFTER = Read("blocks_after", StoredBlock, "block of trait", (0, 1))
"""Takes a cursor, the first and the last block that must stay, and how many: pairs of the index of id blocks."""
WORKFLOWS_AFTER = Read("workflows_after", StoredWorkflow, "workflow")
"""Takes an id or None, and how many: workflows by id."""
ENDED = {place: Read(f"{place}_of_day", Ended, "task") for place in (Place.DEAD, Place.FINISHED)}
"""Takes a day, an id or None, and how many: tasks that ended on that day, by id."""
NEXT_DAY = {place: Read(f"next_{place}_day", int, "day") for place in (Place.DEAD, Place.FINISHED)}
"""Takes a day: the first from there on with ended tasks, if there is any."""


def cursor_of(port: Port, step: Step, kind: type[Cursor]) -> Cursor:
    """Where the last step of a chore stopped; the start if that can't be read."""
    stored = [(step.about, step.after)] if step.after else []
    found = readable(port.aside, "cursor of chore", stored, lambda each: decode(each, type=kind))
    return next((cursor for _, cursor in found), kind())


def gone_past(steps: list[Step], found: Found[Any], kind: type[Cursor]) -> list[Step]:
    """Let the next step of a chore begin after these rows: what is unfinished then.

    Whether the rest of a row can be read does not matter. If no row has valid first columns, the chore is at its end:
    such values sort after all others.
    """
    rows = [found.last, *map(structs.astuple, found.rows[-1:])] if found.number == CHORE_BATCH else []
    last = next((cursor for row in rows if (cursor := cursor_in(row, kind)) is not None), None)
    steps[0].after = "" if last is None else to_json(last)
    return [] if last is None else steps


def cursor_in(row: tuple[Any, ...] | None, kind: type[Cursor]) -> Cursor | None:
    try:
        return convert((row or ())[: len(kind.__struct_fields__)], kind)
    except ValidationError:
        return None


# Ended tasks.


def expired_queues(view: View, day: int, setting: str) -> set[str]:
    """The queues that keep nothing that ended on this day."""

    def is_over(queue: str) -> bool:
        keep: Duration = getattr(view.settings(queue), setting)
        return (day + 1) * DAY <= view.now - keep

    queues = {track.queue for track in view.tracks.values()}
    return {queue for queue in queues - view.unreadable_queues.keys() if is_over(queue)}  # else it is unknown how long


class Sweep:
    """One step through ended tasks, day by day, until enough rows have been visited or deleted."""

    def __init__(self, port: Port, steps: list[Step], place: Place, setting: str) -> None:
        self.port = port
        self.steps = steps
        self.place = place
        self.setting = setting
        self.visited = 0
        self.deleted = 0

    async def run(self) -> Done:
        cursor = cursor_of(self.port, self.steps[0], DayCursor)
        while found := await self.port.read(NEXT_DAY[self.place], cursor.day):
            day = found[0]
            if (day + 1) * DAY > self.port.now:
                break
            queues = expired_queues(self.port, day, self.setting)
            if queues and not await self.is_done(day, queues):
                if not await self.prune_day(day, cursor.id if day == cursor.day else None, queues):
                    return self.deleted, self.steps
                await self.end_day(day, queues)
            cursor = DayCursor(day + 1)
        return self.deleted, []

    async def is_done(self, day: int, queues: set[str]) -> bool:
        """Whether it is known that these queues have nothing left to delete on a day."""
        return False

    async def end_day(self, day: int, queues: set[str]) -> None:
        """These queues have nothing left to delete on a day."""

    async def prune_day(self, day: int, after: str | None, queues: set[str]) -> bool:
        """Delete expired tasks of one day; False if the bound was reached before its end."""
        doomed = {number for number, track in self.port.tracks.items() if track.queue in queues}
        while self.visited < VISIT_BATCH and self.deleted < CHORE_BATCH:
            asked = min(CHORE_BATCH - self.deleted, VISIT_BATCH - self.visited)
            found = await self.port.fetch(ENDED[self.place], day, after, asked)
            self.visited += found.number
            await self.delete(day, [row for row in found.rows if row.track in doomed])
            if found.number < asked or found.last is None:
                return True
            after = found.last[0]
        self.steps[0].after = to_json(DayCursor(day, after))
        return False

    async def delete(self, day: int, rows: list[Ended]) -> None:
        if not rows:
            return
        self.deleted += len(rows)
        ids = [row.id for row in rows]
        if self.place is Place.DEAD:
            await self.port.write("purge_dead", ids)
        else:
            await self.port.write("purge_finished", [(day, task_id) for task_id in ids])
        await self.port.write("delete_history", ids)
        self.port.steps.append(Step(StepKind.DELETE_EDGES, to_json(ids)))
        for (state, track), n in Totals((row.state, row.track) for row in rows).items():
            self.port.count(state, track, -n, day if self.place is Place.FINISHED else 0)


async def prune_finished(port: Port, steps: list[Step], most: int) -> Done:
    return await Sweep(port, steps, Place.FINISHED, "keep").run()


async def prune_dead(port: Port, steps: list[Step], most: int) -> Done:
    return await Sweep(port, steps, Place.DEAD, "keep_dead").run()


# All else.


async def prune_keys(port: Port, steps: list[Step], most: int) -> Done:
    """Free the keys whose window is over and whose task has ended."""
    cursor = cursor_of(port, steps[0], KeyCursor)
    found = await port.fetch(ENDED_KEYS, port.now, *structs.astuple(cursor), CHORE_BATCH)
    free = [(key.queue, key.key) for key in found.rows if key.is_free]
    if free:
        await port.write("delete_keys", free)
    return len(free), gone_past(steps, found, KeyCursor)


async def prune_buckets(port: Port, steps: list[Step], most: int) -> Done:
    """Delete buckets that are full again, or whose limit is no longer set: both equal no bucket."""
    cursor = cursor_of(port, steps[0], BucketCursor)
    found = await port.fetch(BUCKETS_AFTER, *structs.astuple(cursor), CHORE_BATCH)
    idle = [(each.queue, each.scope, each.whose) for each in found.rows if is_idle(port, each)]
    if idle:
        await port.write("delete_buckets", idle)
    return len(idle), gone_past(steps, found, BucketCursor)


def is_idle(port: Port, stored: StoredBucket) -> bool:
    if stored.queue in port.unreadable_queues:  # its limits are unknown
        return False
    limit = limit_of(port.settings(stored.queue), stored.scope, stored.whose)
    if limit is None or limit.rate is None or stored.level < 0:  # a level below zero: it was never used
        return True
    if stored.refill_at is not None:  # tasks wait for it, and a claim has yet to promote them
        return False
    return refill(Bucket(stored.level, stored.at), limit, port.now) == refill(None, limit, port.now)


async def prune_workflows(port: Port, steps: list[Step], most: int) -> Done:
    """Delete workflows without tasks."""
    cursor = cursor_of(port, steps[0], IdCursor)
    found = await port.fetch(WORKFLOWS_AFTER, cursor.id, CHORE_BATCH)
    empty = [each.id for each in found.rows if each.is_empty]
    if empty:
        await port.write("delete_workflows", empty)
    return len(empty), gone_past(steps, found, IdCursor)


async def prune_blocks(port: Port, steps: list[Step], most: int) -> Done:
    """Delete from the index of id blocks what has no task left; once a day, because it goes through all of it."""
    today, present = day_of(port.now), slot_of(port.now)
    if not steps[0].after and any(day == today for _, day in await port.read(BLOCKS, [SWEPT], today + 1, 1)):
        return 0, []
    cursor = cursor_of(port, steps[0], BlockCursor)
    young = (present - YOUNG, present + YOUNG)
    found = await port.fetch(BLOCKS_AFTER, *structs.astuple(cursor), *young, CHORE_BATCH)
    empty = [(each.trait, each.block) for each in found.rows if each.is_empty]
    if empty:
        await port.write("delete_blocks", empty)
    unfinished = gone_past(steps, found, BlockCursor)
    if not unfinished:
        await port.write("add_blocks", [(SWEPT, today)])
    return len(empty), unfinished


async def prune_workers(port: Port, steps: list[Step], most: int) -> Done:
    return limited(steps, await port.write("prune_workers", port.now - KEEP_WORKERS, most), most)


async def prune_audit(port: Port, steps: list[Step], most: int) -> Done:
    return limited(steps, await port.write("prune_audit", port.now - KEEP_AUDIT, most), most)


async def prune_stats(port: Port, steps: list[Step], most: int) -> Done:
    return limited(steps, await port.write("prune_stats", port.now // MINUTE - KEEP_MINUTES, most), most)


async def prune_steps(port: Port, steps: list[Step], most: int) -> Done:
    return limited(steps, await port.write("prune_steps", port.now - KEEP_STEPS, most), most)


def limited(steps: list[Step], done: int, most: int) -> Done:
    """A chore that stops at its bound."""
    return done, steps if done >= most else []


async def prune_shares(port: Port, steps: list[Step], most: int) -> Done:
    """Delete shares without tasks that the clock has passed, and turns in tracks without pending tasks."""
    found = await port.fetch(SHARES_AFTER, *structs.astuple(cursor_of(port, steps[0], ShareCursor)), CHORE_BATCH)
    idle = [(each.queue, each.share) for each in found.rows if each.is_idle]
    if idle:
        await port.write("delete_shares", idle)
    unfinished = gone_past(steps, found, ShareCursor)
    fair = {track.number for track in port.tracks.values() if track.fair}
    occupied = (
        {track.number for name in port.queues for track in await port.tracks_with_pending(name)} if fair else fair
    )
    turns = [await port.write("forget_turns", number, CHORE_BATCH) for number in sorted(fair - occupied)]
    return len(idle) + sum(turns), steps if CHORE_BATCH in turns else unfinished
