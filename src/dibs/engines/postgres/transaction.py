"""The port of this engine: a connection inside a transaction, the catalog, and what is to be done after the commit."""

from __future__ import annotations

from collections import Counter as Totals
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from dibs.core.states import State
from dibs.core.task import LeasedTask, TaskRecord
from dibs.core.times import Instant
from dibs.engines.catalog import TrackKey
from dibs.engines.decisions import facts
from dibs.engines.decisions.blocks import END, claimed_pairs
from dibs.engines.decisions.choosing import Chosen, Head
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.headroom import ungated_ahead
from dibs.engines.decisions.records import Place
from dibs.engines.decisions.searching import Wanted
from dibs.engines.decisions.transaction import Queue
from dibs.engines.figures import Counter
from dibs.engines.port import Found, IdRange, Read, Row, Stored, Stretch, stretch_of
from dibs.engines.postgres.catalog import Catalog, Missing, Stale, arrives_in_order
from dibs.engines.postgres.pool import Connection
from dibs.engines.postgres.rows import TaskRow, columns, ended_columns, real_ids, record_of, task_columns
from dibs.engines.postgres.statements import statement
from dibs.engines.postgres.tokens import Tokens
from dibs.engines.store_transaction import StoreSnapshot, StoreTransaction, TaskMoved
from dibs.engines.topics import EVENTS
from dibs.engines.unreadable import UNREADABLE, problem_of, unreadable_task
from dibs.engines.values import ClaimRequest, UnreadableTask
from dibs.observe.events import EventType

__all__ = ["Snapshot", "Transaction", "Unread", "leased_tasks"]


class Unread(Exception):
    """Some of the chosen tasks can't be read, and are set aside: the claim chooses again.

    An exception, because it must roll back the leases that the transaction has written.
    """


STATES = frozenset(State)
START = "00000000-0000-0000-0000-000000000000"
SINGLE = (int, str)
"""Types of rows that are one column."""


def arguments(parameters: Iterable[Any]) -> list[Any]:
    """Parameters as a statement takes them: rows as one array a column, Structs as JSON."""
    found: list[Any] = []
    for value in parameters:
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            found += [[stored_form(each) for each in column] for column in zip(*value, strict=True)]
        elif isinstance(value, list):
            found.append([stored_form(each) for each in value])
        else:
            found.append(stored_form(value))
    return found


def stored_form(value: object) -> object:
    return encode(value) if isinstance(value, Struct) else value


def plain(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row as every store gives it: ids are texts."""
    return tuple(str(value) if isinstance(value, UUID) else value for value in row)


def set_aside(catalog: Catalog, row: TaskRow, error: Exception) -> UnreadableTask:
    """Log a task that can't be read, and skip it from now on unless it has ended."""
    track, problem = catalog.tracks.get(row["track"]), problem_of(error)
    if track is None or track.queue not in catalog.unreadable:  # otherwise the queue was logged
        catalog.aside.log_once("task", row["id"], problem)
    ended = row["finished_at"] is not None
    if not ended:
        catalog.aside.skip_task(str(row["id"]), row["track"])
    return unreadable_task(row["id"], track, row["state"], ended, row["worker"], problem)


def leased_tasks(rows: Iterable[TaskRow], catalog: Catalog, now: Instant) -> tuple[list[LeasedTask], list[TaskRow]]:
    """Claimed tasks for the worker, and the rows of those that can't be read, which are set aside."""
    tasks, unreadable = [], []
    for row in rows:
        try:
            tasks.append(leased_task(row, catalog, now))
        except UNREADABLE as error:
            catalog.aside.log_once("task", row["id"], problem_of(error))
            catalog.aside.skip_task(str(row["id"]), row["track"])
            unreadable.append(row)
    return tasks, unreadable


def leased_task(row: TaskRow, catalog: Catalog, now: Instant) -> LeasedTask:
    """`moves.leased`, directly from the row."""
    track = catalog.track(row["track"])
    if row["ready_at"] is None:
        raise ValueError("it is pending, but has no ready_at")
    return facts.leased_task(
        facts.decode_facts(row["facts"]),
        track,
        catalog.settings(track.queue),
        id=str(row["id"]),
        lease=row["lease"],
        expires_at=row["lease_expires_at"],
        ready_at=row["ready_at"],
        rank=row["rank"],
        args=row["args"],
        now=now,
    )


class Snapshot(StoreSnapshot[Catalog]):
    """One snapshot of the store."""

    catalog: Catalog

    def __init__(self, connection: Connection, schema: str, catalog: Catalog, now: Instant) -> None:
        self.connection = connection
        self.schema = schema
        self.catalog = catalog
        self.now = now

    async def rows(self, name: str, *parameters: Any) -> list[Any]:
        """The rows of the statement `name`."""
        found: list[Any] = await self.connection.fetch(statement(name, self.schema), *parameters)
        return found

    async def row(self, name: str, *parameters: Any) -> Any:
        """The first row of the statement `name`, or None."""
        return await self.connection.fetchrow(statement(name, self.schema), *parameters)

    async def value(self, name: str, *parameters: Any) -> Any:
        """The first value of the first row of the statement `name`, or None."""
        return await self.connection.fetchval(statement(name, self.schema), *parameters)

    async def fetch(self, read: Read[Row], *parameters: Any) -> Found[Row]:
        rows = [plain(row) for row in await self.rows(read.name, *arguments(parameters))]
        found: list[Row] = []
        unread = []
        for row in rows:
            try:
                found.append(msgspec.convert(row[0] if read.row in SINGLE else row, read.row))
            except UNREADABLE as error:
                self.aside.log_once(read.what, " ".join(str(row[key]) for key in read.keys), problem_of(error))
                unread.append(row)
        return Found(found, len(rows), rows[-1] if rows else None, unread)

    async def find(self, ids: Sequence[str]) -> dict[str, Stored]:
        return {task_id: self.decoded(row) for task_id, row in (await self.find_rows(ids)).items()}

    def record(self, row: TaskRow) -> TaskRecord:
        return record_of(row, self.catalog.track(row["track"]))

    def decoded(self, row: TaskRow) -> Stored:
        """The record of a row; if it can't be read, it is logged, and skipped from now on."""
        try:
            return self.record(row)
        except UNREADABLE as error:
            return set_aside(self.catalog, row, error)

    def records(self, rows: Iterable[TaskRow]) -> list[TaskRecord]:
        """The records of the rows that can be read."""
        rows = [*rows]
        self.catalog.expect(row["track"] for row in rows)
        return [record for row in rows if isinstance(record := self.decoded(row), TaskRecord)]

    async def look_again(self) -> None:
        """Read again what was set aside: it may have been repaired or deleted."""
        ids = list(self.aside.tasks)
        found = await self.find_rows(ids)
        self.aside.forget(ids)
        self.records(found.values())  # sets aside those that still can't be read

    async def find_rows(self, ids: Sequence[str]) -> dict[str, TaskRow]:
        """The rows of those tasks that exist, in any place."""
        rows = await self.rows("find", real_ids(ids))
        self.catalog.expect(row["track"] for row in rows)
        return {str(row["id"]): row for row in rows}

    async def all_counts(self) -> list[tuple[str, int, str, int]]:
        """Every count that is not zero: what, track, queue, n."""
        rows = await self.rows("counts")
        self.catalog.expect(row["track"] for row in rows if row["track"])
        return [tuple(row) for row in rows if not row["track"] or self.knows(row["track"])]

    async def counts_by_track(self) -> list[tuple[State, Track, int]]:
        return [
            (State(what), self.catalog.track(track), n)
            for what, track, _, n in await self.all_counts()
            if track and what in STATES
        ]

    async def newest(self, ranges: Sequence[IdRange], most: int, wanted: Wanted) -> list[Stretch]:
        lows, highs = [low or START for low, _ in ranges], [high or END for _, high in ranges]
        *asked, one, two, three = wanted.parameters()
        needles = [None if each is None else each.encode() for each in (one, two, three)]
        found: list[list[tuple[str | None, int | None]]] = [[] for _ in ranges]
        for n, task_id, visited in await self.rows("newest", lows, highs, most, *asked, *needles):
            found[n - 1].append((None if task_id is None else str(task_id), visited))
        return [stretch_of(rows, most) for rows in found]

    async def every_count(self) -> list[tuple[str, Track | str, int]]:
        counts = await self.all_counts()
        return [(what, self.catalog.track(track) if track else queue, n) for what, track, queue, n in counts]

    async def depth(self, queue: str) -> int:
        found: int = await self.value("depth", [track.number for track in self.catalog.of_queue(queue)])
        return found

    async def running_by_name(self, queue: str) -> dict[str, int]:
        names = {track.number: track.name for track in self.catalog.of_queue(queue)}
        found: Totals[str] = Totals()
        for track, n in await self.rows("running_by_track", list(names)):
            found[""] += n
            found[names[track]] += n
        return found

    # The pending index.

    def all_tracks(self, queue: str) -> list[Track]:
        return self.catalog.of_queue(queue)

    def open_tracks(self, queue: str) -> list[Track]:
        return self.catalog.open_tracks(queue)

    async def tracks_with_pending(self, queue: str) -> list[Track]:
        numbers = [track.number for track in self.catalog.of_queue(queue)]
        return [self.catalog.track(row[0]) for row in await self.rows("tracks_with_pending", numbers)]

    async def unshared(self, queue: str) -> int:
        unfair = [track.number for track in self.catalog.of_queue(queue) if not track.fair]
        depth: int = await self.value("depth", unfair) if unfair else 0
        return depth

    async def clock(self, queue: str) -> tuple[int, int]:
        clock, unnamed = await self.row("clock", queue) or (0, 0)
        return clock, unnamed

    async def read_tracks(self, after: Sequence[tuple[Any, ...]], most: int, with_gated: bool) -> list[Found[Head]]:
        rows = await self.rows("read_tracks", *columns(after, 4), most, with_gated)
        return self.heads_of(rows, len(after))

    async def read_groups(self, after: Sequence[tuple[Any, ...]], most: int) -> list[Found[Head]]:
        return self.heads_of(await self.rows("read_groups", *columns(after, 5), most), len(after))

    def heads_of(self, rows: Iterable[Any], asked: int) -> list[Found[Head]]:
        """Entries of the pending index, for each of what was asked for. One without ready_at can't be claimed."""
        found: list[Found[Head]] = [Found([], 0, None) for _ in range(asked)]
        for n, rank, task_id, ready_at, track, partition in rows:
            each, head = found[n - 1], Head(rank, str(task_id), ready_at, track, partition)
            each.number, each.last = each.number + 1, (rank, head.id)
            if ready_at is None:
                self.aside.log_once("task", head.id, "it is pending, but has no ready_at")
                self.aside.skip_task(head.id, head.track)
            else:
                each.rows.append(head)
        return found

    def knows(self, track: int) -> bool:
        """Whether a track exists; raises `Stale` if it may be new."""
        return track not in self.aside.tracks and self.catalog.track(track) is not None


class Transaction(Snapshot, StoreTransaction[Catalog]):
    """A write transaction: gathers counts, topics and follow-ups.

    Its opener calls `steps.conclude`, which runs the follow-ups and writes the counts, commits, and then notifies.
    """

    def __init__(self, connection: Connection, schema: str, catalog: Catalog, now: Instant) -> None:
        Snapshot.__init__(self, connection, schema, catalog, now)
        StoreTransaction.__init__(self)
        self.changes: dict[tuple[str, int, str, int], int] = defaultdict(int)
        self.tokens: Tokens | None = None
        """Tokens of clients that are kept elsewhere."""

    async def rows(self, name: str, *parameters: Any) -> list[Any]:
        if name == "client_buckets" and self.tokens is not None:
            return self.tokens.rows([*zip(*parameters, strict=True)], self.catalog, self.now)
        return await super().rows(name, *parameters)

    async def write(self, name: str, *parameters: Any) -> int:
        if name == "save_buckets" and self.tokens is not None:
            parameters = (self.tokens.spend(parameters[0]),)
            if not parameters[0]:
                return 0
        status: str = await self.connection.execute(statement(name, self.schema), *arguments(parameters))
        return int(status.rpartition(" ")[2])

    # Tasks.

    async def load(self, ids: Sequence[str]) -> Sequence[Stored]:
        """Lock and read tasks, wherever they are by then, which may not be where they were at the beginning."""
        wanted = sorted(real_ids(ids))
        found = self.adopted(await self.rows("lock", wanted))
        missed = {*wanted} - {record.id for record in found}
        if missed and await self.find_rows(sorted(missed)):  # it has moved to another table since
            raise Stale
        return found

    async def load_by(self, name: str, *parameters: Any) -> Sequence[Stored]:
        return self.adopted(await self.rows(name, *arguments(parameters)))

    async def waiting_in(self, queue: str, most: int) -> Sequence[Stored]:
        tracks = [track.number for track in self.catalog.of_queue(queue)]
        return await self.load_by("waiting_locked", tracks, most, self.passed_over)

    async def expired(self, until: Instant, low: Instant, most: int) -> Sequence[Stored]:
        asked = (until, most, self.readable_tracks, low, self.passed_over)
        return self.adopted(await self.rows("expired", *asked))

    async def running_of(self, workers: Sequence[str], most: int) -> Sequence[Stored]:
        return self.adopted(await self.rows("running_of", workers, most, self.readable_tracks, self.passed_over))

    async def busy(self, workers: Sequence[str]) -> list[str]:
        rows = await self.rows("has_running", workers, self.readable_tracks, self.passed_over)
        return [row["worker"] for row in rows]

    async def too_late(self, low: Instant, most: int) -> Sequence[Stored]:
        return self.adopted(await self.rows("too_late", self.now, most, low, self.passed_over))

    @property
    def readable_tracks(self) -> list[int]:
        """The tracks of queues whose settings can be read."""
        catalog = self.catalog
        return [number for number, track in catalog.tracks.items() if track.queue not in catalog.unreadable]

    def adopted(self, rows: Sequence[TaskRow]) -> list[Stored]:
        """The tasks of rows that are locked, to be changed: where they are is remembered."""
        self.catalog.expect(row["track"] for row in rows)
        self.loaded.update((str(row["id"]), row["track"]) for row in rows)
        self.versions.update((str(row["id"]), row["version"]) for row in rows)
        return [self.decoded(row) for row in rows]

    def place(self, records: Sequence[TaskRecord]) -> None:
        numbers = self.tracks_of(records)
        self.loaded.update((record.id, numbers[self.key_of(record)]) for record in records)

    async def insert_tasks(self, records: Sequence[TaskRecord]) -> int:
        rows = [(*self.columns(record), ungated_ahead(self.settings(record.queue).per_partition)) for record in records]
        stored: int = await self.value("insert_tasks", *arguments([rows]))
        return stored

    async def update_tasks(self, moves: Sequence[tuple[TaskRecord, TaskRecord]]) -> int:
        return await self.write("save_tasks", [(*self.columns(new), *self.fence(old)) for old, new in moves])

    def columns(self, record: TaskRecord) -> tuple[object, ...]:
        track = self.loaded[record.id]
        return task_columns(record, track, self.gate_of(record, track), self.next_version(record))

    def gate_of(self, record: TaskRecord, track: int) -> int:
        """Where partitions are limited, pending tasks are stored gated; `partitions` then ungates the heads."""
        if record.spec.partition is not None and self.settings(record.queue).per_partition is not None:
            return 2 if record.state is State.PENDING else 1
        return 1 if self.catalog.track(track).fair else 0

    async def insert_ended(self, place: Place, records: Sequence[TaskRecord]) -> None:
        rows = [ended_columns(record, self.loaded[record.id], self.next_version(record)) for record in records]
        await self.write(f"save_{place}", rows)

    # Counts.

    def count(self, what: State | Counter, track: int, change: int, day: int = 0) -> None:
        """Count tasks of a track by state, finished ones also by the day of their end, and what happened to them."""
        self.changes[what, track, "", day] += change

    def count_event(self, what: str, queue: str, change: int = 1) -> None:
        """Count what happened in a queue."""
        self.changes[what, 0, queue, 0] += change

    async def write_counts(self) -> None:
        changes = [(*key, change) for key, change in self.changes.items() if change]
        if changes:
            await self.write("count", changes)
        self.changes.clear()

    # Claims.

    async def guard(self, partitions: Sequence[str]) -> None:
        """Completing a task that is not guarded takes no lock, and promotes nothing."""
        if partitions:
            await self.write("guard", partitions)

    async def first_turns(self, tracks: Sequence[int], clock: int, most: int) -> dict[int, Found[tuple[int, str]]]:
        found: dict[int, Found[tuple[int, str]]] = {track: Found([], 0, None) for track in tracks}
        for track, virtual_time, share in await self.rows("first_turns", tracks, clock, most):
            found[track].rows.append((virtual_time, share))
            found[track].number += 1
        return found

    async def claimed_by(self, worker: str, sequence: int) -> list[Stored]:
        rows = await self.rows("claim_repeat", worker, sequence, list(self.catalog.tracks))
        return [*self.records(rows)]

    async def lease(self, request: ClaimRequest, chosen: Sequence[Chosen]) -> dict[str, LeasedTask]:
        """Those that no other transaction has locked. Raises `Unread` if some can't be read.

        A transaction of the user's own holds no lock on queues: it may have moved a task since it was read.
        """
        wanted = {each.head.id: (each.head.track, each.share, each.head.partition_key) for each in chosen}
        rows = await self.rows("lease", self.now, request.worker, request.sequence, request.lease, list(wanted))
        if any((row["track"], row["share"], row["partition"]) != wanted[str(row["id"])] for row in rows):
            raise TaskMoved
        tasks, unreadable = leased_tasks(rows, self.catalog, self.now)
        if unreadable:
            raise Unread
        given = {task.id: task for task in tasks}
        if given:
            trait, blocks = claimed_pairs(request.worker, list(given))
            self.note_blocks([trait], blocks)
        watched = self.catalog.watched(EventType.TASK_STARTED, self.now)
        if watched is not None and given:
            await self.rows("task_events", EventType.TASK_STARTED, self.now, list(given), watched)
            self.topics.add(EVENTS)
        self.locked = [*self.locked, *(each for each in wanted if each not in given)]
        return given

    async def save_queue(self, queue: Queue) -> None:
        await self.write("save_queue", queue.name, queue.state, queue.settings, queue.epoch)
        await self.next_generation()
        self.catalog = self.catalog.with_queue(queue)

    async def delete_queue(self, name: str, most: int) -> bool:
        await self.write("delete_queue", name)
        await self.next_generation()
        return True

    async def next_generation(self) -> None:
        await self.write("next_generation")

    def record(self, row: TaskRow) -> TaskRecord:
        """A task whose queue's settings can't be read is unreadable: nothing can be decided about it."""
        record = super().record(row)
        if record.queue in self.catalog.unreadable:
            raise ValueError("the settings of its queue can't be read")
        return record

    def make_queues(self, names: Iterable[str]) -> None:
        """If some do not exist, they are created and the transaction is repeated."""
        if missing := sorted({*names} - self.catalog.queues.keys()):
            raise Missing(missing, [])

    def key_of(self, record: TaskRecord) -> TrackKey:
        """The track that a task belongs to by its present rank."""
        return self.catalog.track_key(
            record.queue,
            record.name,
            record.requires,
            record.lane,
            record.spec.priority,
            in_order=arrives_in_order(record),
        )

    def tracks_of(self, records: Iterable[TaskRecord]) -> dict[TrackKey, int]:
        """The numbers of the tracks of some tasks; raises `Missing` if some do not exist."""
        keys = {self.key_of(record): None for record in records}
        numbers = self.catalog.numbers
        missing = [key for key in keys if key not in numbers]
        if missing:
            raise Missing([], missing)
        return {key: numbers[key] for key in keys}
