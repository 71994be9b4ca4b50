"""What a verb that only reads works on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import SECOND, Instant
from dibs.engines import port
from dibs.engines.catalog import Catalog
from dibs.engines.decisions.choosing import Head
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.records import Place
from dibs.engines.decisions.searching import Wanted
from dibs.engines.port import Found, IdRange, Read, Stored, Stretch, stretch_of
from dibs.engines.redis import codec, rows, statements
from dibs.engines.redis.client import Client
from dibs.engines.redis.draft import LAST, START, Draft, Range, pairs
from dibs.engines.redis.keys import Keys
from dibs.engines.redis.rows import StoredTask
from dibs.engines.redis.statements import READS
from dibs.engines.redis.tables import Row, Tables
from dibs.engines.store_transaction import StoreSnapshot
from dibs.engines.unreadable import UNREADABLE, problem_of, unreadable_task
from dibs.engines.values import UnreadableTask

__all__ = ["CatalogChanged", "Snapshot", "counted", "read_clock"]

STATES = frozenset(State)
AT_ONCE = 500


class CatalogChanged(Exception):
    """Queues or tracks have changed since this transaction began. `track`: one that its catalog lacks."""

    def __init__(self, track: int | None = None) -> None:
        super().__init__(track)
        self.track = track


class Snapshot(StoreSnapshot[Catalog]):
    """What a verb that only reads works on."""

    knows_all = False
    """Whether the catalog was just read: tracks that it lacks do not exist."""

    def __init__(self, client: Client, keys: Keys, catalog: Catalog, now: Instant) -> None:
        self.keys = keys
        self.catalog = catalog
        self.now = now
        self.draft = Draft(client)
        self.tables = Tables(self.draft, keys)

    async def fetch(self, read: Read[port.Row], *parameters: Any) -> Found[port.Row]:
        return self.converted(read, await READS[read.name](self, *parameters))

    def converted(self, read: Read[port.Row], stored: Sequence[Any]) -> Found[port.Row]:
        """Rows as a read declares them; those that are not so are logged."""
        found: list[port.Row] = []
        unread: list[Row] = []
        for row in stored:
            try:
                found.append(msgspec.convert(row, read.row))
            except UNREADABLE as error:
                columns = tuple(row) if isinstance(row, list | tuple) else (row,)
                keys = " ".join(str(columns[key]) for key in read.keys if key < len(columns))
                self.aside.log_once(read.what, keys, problem_of(error))
                unread.append(columns)
        last = None
        if stored:
            last = tuple(stored[-1]) if isinstance(stored[-1], list | tuple) else (stored[-1],)
        return Found(found, len(stored), last, unread)

    # Tasks.

    async def find_tasks(self, ids: Sequence[str], *, guard: bool = False) -> dict[str, StoredTask]:
        """The tasks of these ids that exist, wherever they are."""
        found: dict[str, StoredTask] = {}
        for at in range(0, len(ids), AT_ONCE):
            part = ids[at : at + AT_ONCE]
            for task_id, reply in zip(part, await self.look(part), strict=True):
                if reply is not None:
                    found[task_id] = self.seen_task(task_id, reply)
        return found

    async def look(self, ids: Sequence[str]) -> list[Any]:
        return list(await self.draft.client.run("find", self.keys("store"), *ids, writes=False))

    def seen_task(self, task_id: str, reply: list[Any]) -> StoredTask:
        place, value, day, *run = reply
        running, score, lease = (*run, None, None, None)[:3]
        expires_at = None if score is None else int(float(score))
        return StoredTask(task_id, Place(place.decode()), value, day, running, expires_at, lease)

    async def find(self, ids: Sequence[str]) -> dict[str, Stored]:
        return {task_id: self.decoded(task) for task_id, task in (await self.find_tasks(list(ids))).items()}

    def decoded(self, task: StoredTask) -> Stored:
        """The record of a task, if it can be read."""
        try:
            return self.record(task)
        except UNREADABLE as error:
            return self.set_aside(task, problem_of(error))

    def record(self, task: StoredTask) -> TaskRecord:
        return rows.record_of(task, self.track_of_task(task))

    def track_of_task(self, task: StoredTask) -> Track:
        number = rows.track_of(task)
        track = self.catalog.tracks.get(number)
        if track is None and number not in self.aside.tracks and not self.knows_all:
            raise CatalogChanged(number)  # it may be newer than this copy of the catalog
        if track is None:
            raise LookupError(f"it is in track {number}, which does not exist")
        return track

    def records(self, tasks: Iterable[StoredTask]) -> list[TaskRecord]:
        """The records of those that can be read."""
        return [record for task in tasks if isinstance(record := self.decoded(task), TaskRecord)]

    def set_aside(self, task: StoredTask, problem: str) -> UnreadableTask:
        """Log a task that can't be read, and skip it from now on unless it has ended."""
        _, place, state, number, *_ = rows.purge_row(self.keys, task)
        track = self.catalog.tracks.get(number) if isinstance(number, int) else None
        if track is None or track.queue not in self.catalog.unreadable:  # otherwise the queue was logged
            self.aside.log_once("task", task.id, problem)
        has_ended = place is not Place.TASKS
        if not has_ended:
            self.aside.skip_task(task.id, number)
        worker = None
        if task.lease is not None:
            try:
                worker = rows.decode_lease(task.lease).worker
            except UNREADABLE:
                worker = None
        return unreadable_task(task.id, track, state, has_ended, worker, problem)

    async def look_again(self) -> None:
        """Read again what was set aside: it may have been repaired or deleted."""
        ids = list(self.aside.tasks)
        found = await self.find_tasks(ids)
        self.aside.forget(ids)
        self.records(found.values())  # sets those aside that still can't be read

    async def running_tasks(self, first: int = 0, last: int = -1) -> list[StoredTask]:
        """All running tasks, in the order in which their leases end."""
        ids = [each.decode() for each in await self.draft.client.call("ZRANGE", self.keys("inflight"), first, last)]
        found = await self.find_tasks(ids)
        return [found[each] for each in ids if each in found and found[each].is_running]

    async def days(self) -> list[int]:
        """The days that have finished tasks."""
        found = await self.draft.all_values(self.keys(statements.DAYS.name))
        return sorted(int(day) for day in found if day.isdecimal())

    # Counts.

    async def all_counts(self) -> list[tuple[str, int | str, int]]:
        """Every count, without those of tracks that do not exist."""
        reply = await self.draft.client.call("HGETALL", self.keys("counts"))
        found: dict[tuple[str, int | str], int] = {}
        for field, value in pairs(reply):
            try:
                found[counted(field)] = int(value)
            except UNREADABLE as error:
                self.aside.log_once("count of", field.decode(errors="replace"), problem_of(error))
        for (what, whose), change in self.changed_counts():
            found[what, whose] = found.get((what, whose), 0) + change
        tracks = self.catalog.tracks
        return [(what, whose, n) for (what, whose), n in found.items() if isinstance(whose, str) or whose in tracks]

    def changed_counts(self) -> Iterable[tuple[tuple[str, int | str], int]]:
        """What this transaction has counted."""
        return ()

    async def counts_by_track(self) -> list[tuple[State, Track, int]]:
        tracks = self.catalog.tracks
        found = await self.all_counts()
        return [
            (State(what), tracks[whose], n) for what, whose, n in found if what in STATES and isinstance(whose, int)
        ]

    async def every_count(self) -> list[tuple[str, Track | str, int]]:
        tracks, found = self.catalog.tracks, await self.all_counts()
        return [(what, whose if isinstance(whose, str) else tracks[whose], n) for what, whose, n in found if n]

    async def pending_by_track(self) -> dict[int, int]:
        found = await self.all_counts()
        return {whose: n for what, whose, n in found if what == State.PENDING and isinstance(whose, int) and n > 0}

    async def depth(self, queue: str) -> int:
        pending = await self.pending_by_track()
        return sum(pending.get(track.number, 0) for track in self.catalog.of_queue(queue))

    async def running_by_name(self, queue: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for state, track, n in await self.counts_by_track():
            if state is State.RUNNING and track.queue == queue:
                found[""] = found.get("", 0) + n
                found[track.name] = found.get(track.name, 0) + n
        return found

    async def unshared(self, queue: str) -> int:
        pending = await self.pending_by_track()
        return sum(pending.get(track.number, 0) for track in self.catalog.of_queue(queue) if not track.fair)

    # The pending index.

    def all_tracks(self, queue: str) -> Sequence[Track]:
        return self.catalog.of_queue(queue)

    def open_tracks(self, queue: str) -> Sequence[Track]:
        return self.catalog.of_queue(queue)

    async def tracks_with_pending(self, queue: str) -> list[Track]:
        pending = await self.pending_by_track()
        return [track for track in self.catalog.of_queue(queue) if track.number in pending]

    async def clock(self, queue: str) -> tuple[int, int]:
        clocks = await self.tables.one(statements.CLOCKS, queue)
        unnamed = await self.tables.one(statements.SHARES, queue, "")
        return (clocks[0][1] if clocks else 0), (max(0, unnamed[0][2]) if unnamed else 0)

    async def read_tracks(self, after: Sequence[tuple[Any, ...]], most: int, with_gated: bool) -> list[Found[Head]]:
        gates = "01" if with_gated else "0"
        asked: list[Range] = []
        for track, share, rank, task_id in after:
            for gate in gates:
                begins = f"{gate}{codec.text_of(share)}".encode()
                low = b"(" + begins + f"{codec.rank_text(rank)}{task_id}".encode() + codec.END
                asked.append((self.keys.pending(track), low, codec.up_to(begins), most, False))
        found = await self.draft.ranges(asked)
        width = len(gates)
        return [
            self.heads(track, [each for members in found[width * at : width * at + width] for each in members], most)
            for at, (track, *_) in enumerate(after)
        ]

    def heads(self, track: int, members: Iterable[bytes], most: int) -> Found[Head]:
        entries: list[Head] = []
        for member in members:
            try:
                each = rows.pending_entry(member)
            except UNREADABLE as error:
                self.aside.log_once("entry of track", track, problem_of(error))
            else:
                entries.append(Head(each.rank, each.id, each.ready_at, track, each.partition))
        entries = sorted(entries)[:most]
        last = (entries[-1].rank, entries[-1].id) if entries else None
        return Found([each for each in entries if each.id not in self.aside.tasks], len(entries), last)

    async def read_groups(self, after: Sequence[tuple[Any, ...]], most: int) -> list[Found[Head]]:
        asked = []
        for partition, track, share, rank, task_id in after:
            prefix = (partition, State.PENDING, track, share)
            asked.append((prefix, (*prefix, rank, task_id, codec.RANKS)))
        found = await self.tables.indexes(statements.PARTITIONS, asked, most=most)
        return [
            Found(
                [Head(row[4], row[5], row[6], row[2], row[0]) for row in entries if row[5] not in self.aside.tasks],
                len(entries),
                (entries[-1][4], entries[-1][5]) if entries else None,
            )
            for entries in found
        ]

    # Searching.

    async def newest(self, ranges: Sequence[IdRange], most: int, wanted: Wanted) -> list[Stretch]:
        return [stretch_of(await self.newest_in(each, most, wanted), most) for each in ranges]

    async def newest_in(self, asked: IdRange, most: int, wanted: Wanted) -> list[tuple[str | None, int | None]]:
        found: list[tuple[str | None, int | None]] = []
        for sets in await self.searched(wanted):
            ids = await self.newest_ids(sets, asked, most)
            found += [(each, None) for each in await self.that_match(ids, wanted)]
            found.append((ids[-1] if ids else None, len(ids)))
        return found

    async def searched(self, wanted: Wanted) -> list[list[str]]:
        """For each place, the ordered sets that have its ids."""
        found = []
        if wanted.tasks:
            found.append([self.keys("tasks_ids")])
        if wanted.dead:
            found.append([self.keys("dead_ids")])
        if wanted.cancelled:
            found.append([self.keys("cancelled")])
        if wanted.finished:
            found.append([self.keys.finished_ids(day) for day in await self.days()])
        return found

    async def newest_ids(self, sets: Sequence[str], asked: IdRange, most: int) -> list[str]:
        lowest, below = asked
        high = LAST if below is None else b"(" + below.encode()
        low = START if lowest is None else b"[" + lowest.encode()
        found = await self.draft.ranges([(key, high, low, most, True) for key in sets])
        ids = [each for members in found for each in members]
        if len(sets) > 1:
            ids.sort(reverse=True)
        return [each.decode() for each in ids[:most]]

    async def that_match(self, ids: Sequence[str], wanted: Wanted) -> list[str]:
        """Those of some tasks that may be what is wanted."""
        columns = (wanted.tracks, wanted.worker, wanted.created_after, wanted.created_before)
        if not wanted.unwanted and not wanted.needles and all(each is None for each in columns):
            return [*ids]
        tasks = await self.find_tasks(ids)
        return [each for each in ids if each in tasks and is_wanted(tasks[each], wanted)]


async def read_clock(client: Client) -> Instant:
    seconds, micros = await client.call("TIME")
    return int(seconds) * SECOND + int(micros)


def is_wanted(task: StoredTask, wanted: Wanted) -> bool:
    """What can't be read may be wanted: that is decided by others."""
    try:
        row, parts, *_ = rows.columns_of(task)
    except UNREADABLE:
        return True
    columns = parts.columns
    return (
        row.state not in wanted.unwanted
        and (wanted.tracks is None or row.track in wanted.tracks)
        and (wanted.worker is None or row.worker == wanted.worker)
        and (wanted.created_after is None or columns.created_at >= wanted.created_after)
        and (wanted.created_before is None or columns.created_at < wanted.created_before)
        and all(needle.encode() in bytes(columns.facts) for needle in wanted.needles)
    )


def counted(field: bytes) -> tuple[str, int | str]:
    """What a count is of: a track, as `TRACK WHAT`, or a queue, as JSON."""
    if field[:1] == b"[":
        what, queue = msgspec.json.decode(field, type=tuple[str, str])
        return what, queue
    track, _, what = field.decode().partition(" ")
    return what, int(track)
