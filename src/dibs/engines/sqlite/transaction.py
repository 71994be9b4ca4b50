"""The port of this engine: a connection inside a transaction, the catalog, and what is to be told afterwards."""

from __future__ import annotations

import sqlite3
from collections import Counter as Totals
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from math import isfinite
from typing import Any, TypeVar

from msgspec import Struct

from dibs.core.fairness import LATEST
from dibs.core.states import State
from dibs.core.task import LeasedTask, TaskRecord
from dibs.core.times import Duration, Instant, day_of
from dibs.engines import port
from dibs.engines.catalog import Catalog, TrackKey
from dibs.engines.decisions.choosing import Head
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import MIXED, Track, decode_facts, leased_task
from dibs.engines.decisions.records import Place
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import Found, Read, Stored
from dibs.engines.sql_transaction import SqlSnapshot, SqlTransaction
from dibs.engines.sqlite.row_decoder import BATCH_ERRORS, RowDecoder, TaskDecoder, columns_of, is_spoiled, text_or_bytes
from dibs.engines.sqlite.rows import Row, decode_rows, ended_columns, record_of, row_from, task_columns
from dibs.engines.sqlite.statements import row_by_row, statement
from dibs.engines.unreadable import UNREADABLE, problem_of, readable, unreadable_task
from dibs.engines.values import ClaimRequest, Counter, UnreadableTask

__all__ = ["ROWS", "Snapshot", "Transaction", "decoder_of"]

ROWS = 20
"""Tasks per `enqueue_many`. More at once gain nothing."""

STATES = frozenset(State)

Value = TypeVar("Value")
Key = int | str
RawRows = list[tuple[Any, ...]]

QUEUES = RowDecoder(tuple[str, object, object, object], "queue")
TRACKS = RowDecoder(tuple[int, object, object, object, object, object, object], "track")
COUNTS = RowDecoder(tuple[str, int | str, int], "count of", 0, 1)
PENDING = RowDecoder(tuple[int, int], "count of pending tasks in track")
WORKERS = RowDecoder(str, "worker")
TURNS = RowDecoder(tuple[int, str], "turn of tag")
HEADS = TaskDecoder(Head, "task", 1)
DOCUMENTS = RowDecoder(tuple[int | str, str], "")
"""Names, and the JSON stored under them."""


class Given(Struct, array_like=True, frozen=True):
    """The columns of a chosen row that its head lacks."""

    id: str
    lease: int
    lease_for: Duration
    args: str
    facts: str


GIVEN = TaskDecoder(Given, "task")


def parameter(value: object) -> object:
    """A parameter as a statement takes it: lists and rows as JSON, Structs as the text of theirs. Rows are alike."""
    if not isinstance(value, list):
        return text_of(value)
    if value and isinstance(value[0], tuple):
        has_struct = any(isinstance(each, Struct) for each in value[0])
        return to_json([tuple(map(text_of, row)) for row in value] if has_struct else value)
    return to_json([text_of(each) for each in value])


def text_of(value: object) -> object:
    return to_json(value) if isinstance(value, Struct) else value


def decoder_of(read: Read[Value]) -> RowDecoder[Value]:
    found: RowDecoder[Value] = cached_decoder(read)
    return found


@cache
def cached_decoder(read: Read[Any]) -> Any:
    return RowDecoder(read.row, read.what, *read.keys)


class Snapshot(SqlSnapshot):
    """A consistent look at the store."""

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, now: Instant) -> None:
        self.connection = connection
        self.catalog = catalog
        self.now = now
        self.pending: dict[int, int] | None = None
        """How many pending tasks each track has, without empty ones, if a claim has read that."""

    def row(self, name: str, *parameters: Any) -> Any:
        """The only row of the statement `name`, or None."""
        return self.connection.execute(statement(name), parameters).fetchone()

    def value(self, name: str, *parameters: Any) -> Any:
        """The only value of the only row of the statement `name`."""
        return self.row(name, *parameters)[0]

    def refresh(self, generation: int | None = None) -> None:
        """Make the catalog current; must come first in every transaction."""
        current: int = self.value("generation") if generation is None else generation
        if not self.catalog.is_current(current):
            self.catalog.forget()
            for queue in self.many(QUEUES, "queues"):
                self.catalog.know_queue(*queue)
            for track in self.many(TRACKS, "tracks"):
                self.catalog.know_track(*track)
            self.catalog.generation = current

    # Rows that may be invalid: decoded together if all are valid, and one by one if not.

    async def fetch(self, read: Read[port.Row], *parameters: Any) -> Found[port.Row]:
        return self.found(decoder_of(read), read.name, *map(parameter, parameters))

    def found(self, decoder: RowDecoder[Value], name: str, *parameters: Any) -> Found[Value]:
        """The rows that the statement `name` gathers."""

        def together(text: str) -> Found[Value]:
            rows = decoder.decode(text)
            return Found(rows, len(rows), columns_of(rows[-1]) if rows else None)

        def one_by_one(rows: RawRows) -> Found[Value]:
            unread: RawRows = []
            found = decoder.one_by_one(rows, self.aside, unread)
            return Found(found, len(rows), rows[-1] if rows else None, unread)

        return self.together_or_each(together, one_by_one, name, *parameters)

    async def find(self, ids: Sequence[str]) -> dict[str, Stored]:
        return {task_id: self.decoded(row) for task_id, row in self.find_rows(list(ids)).items()}

    def many(self, decoder: RowDecoder[Value], name: str, *parameters: Any) -> list[Value]:
        """The rows that the statement `name` gathers, without unreadable ones."""
        return self.together_or_each(
            decoder.decode, lambda rows: decoder.one_by_one(rows, self.aside), name, *parameters
        )

    def together_or_each(
        self, together: Callable[[Any], Value], one_by_one: Callable[[RawRows], Value], name: str, *parameters: Any
    ) -> Value:
        """The JSON of the statement `name` passed to `together`, or else its rows passed to `one_by_one`."""
        try:
            return together(self.value(name, *parameters))
        except BATCH_ERRORS as error:
            if not is_spoiled(error):
                raise
        return one_by_one(self.each(row_by_row(name), parameters))

    def each(self, text: str, parameters: Iterable[Any]) -> RawRows:
        """The rows of a statement as they are stored, whatever that is."""
        before, self.connection.text_factory = self.connection.text_factory, text_or_bytes
        try:
            return self.connection.execute(text, tuple(parameters)).fetchall()
        finally:
            self.connection.text_factory = before

    def documents(
        self, what: str, decode: Callable[[str | bytes], Value], name: str, *parameters: Any
    ) -> Iterator[tuple[Key, Value]]:
        """The (name, JSON) pairs of the statement `name`, decoded, without unreadable ones."""
        decoder = RowDecoder(DOCUMENTS.kind, what, decode=DOCUMENTS.decode)
        return readable(self.aside, what, self.many(decoder, name, *parameters), decode)

    def tasks(self, name: str, *parameters: Any) -> list[Row | UnreadableTask]:
        """The rows of tasks that the statement `name` gathers."""

        def together(text: str) -> list[Row | UnreadableTask]:
            return [*decode_rows(text)]

        def one_by_one(rows: RawRows) -> list[Row | UnreadableTask]:
            return [self.row_from(columns) for columns in rows]

        return self.together_or_each(together, one_by_one, name, *parameters)

    def row_from(self, columns: tuple[Any, ...]) -> Row | UnreadableTask:
        try:
            return row_from(columns)
        except UNREADABLE as error:
            task_id, track, state, worker, finished_at = (columns[each] for each in (0, 1, 2, 10, 14))
            return self.set_aside(task_id, track, state, finished_at is not None, worker, problem_of(error))

    def set_aside(self, task_id: Any, track: Any, state: Any, ended: bool, worker: Any, problem: str) -> UnreadableTask:
        """Log a task that can't be read, and skip it from now on unless it has ended."""
        found = self.catalog.tracks.get(track) if isinstance(track, int) else None
        if found is None or found.queue not in self.catalog.unreadable:  # otherwise the queue was logged
            self.aside.log_once("task", task_id, problem)
        if isinstance(task_id, str) and not ended:
            self.aside.skip_task(task_id, track)
        return unreadable_task(task_id, found, state, ended, worker, problem)

    def decoded(self, row: Row | UnreadableTask) -> Stored:
        """The record of a row, if it can be read."""
        if isinstance(row, UnreadableTask):
            return row
        try:
            return self.record(row)
        except UNREADABLE as error:
            ended = row.finished_at is not None
            return self.set_aside(row.id, row.track, row.state, ended, row.worker, problem_of(error))

    def records(self, rows: Iterable[Row | UnreadableTask]) -> list[TaskRecord]:
        """The records of those that can be read."""
        return [record for row in rows if isinstance(record := self.decoded(row), TaskRecord)]

    def record(self, row: Row) -> TaskRecord:
        track = self.catalog.tracks.get(row.track)
        if track is None:
            raise LookupError(f"it is in track {row.track}, which is not there")
        return record_of(row, track)

    def find_rows(self, ids: list[str]) -> dict[str, Row | UnreadableTask]:
        """The rows of those tasks that exist, wherever they are."""
        if not ids:
            return {}
        asked = to_json(ids)
        try:
            places = self.row("find", asked, min(ids), max(ids))
            return {row.id: row for place in places for row in decode_rows(place)}
        except BATCH_ERRORS as error:
            if not is_spoiled(error):
                raise
            rows = [self.row_from(columns) for columns in self.each(statement("find_each"), (asked,))]
            return {row.id: row for row in rows}

    def look_again(self) -> None:
        """Read again what was set aside: it may have been repaired or deleted."""
        if self.aside.start_recheck():
            ids = list(self.aside.tasks)
            self.aside.forget(ids)
            self.records(self.find_rows(ids).values())  # sets those aside that still can't be read

    def pending_by_track(self) -> dict[int, int]:
        """How many pending tasks each track has, without empty ones."""
        return dict(self.many(PENDING, "pending_by_track"))

    async def counts_by_track(self) -> list[tuple[State, Track, int]]:
        tracks = self.catalog.tracks
        return [
            (State(what), tracks[whose], n)
            for what, whose, n in self.all_counts()
            if what in STATES and isinstance(whose, int)
        ]

    def all_counts(self) -> list[tuple[str, int | str, int]]:
        """Every count, without those of tracks that do not exist. A fractional number is rounded."""
        tracks = self.catalog.tracks

        def one_by_one(rows: RawRows) -> list[tuple[str, int | str, int]]:
            broken = [row for row in rows if isinstance(row[2], float) and isfinite(row[2]) and row[2] % 1]
            rounded = [(what, whose, round(n)) for what, whose, n in broken]
            return COUNTS.one_by_one([*rows, *rounded], self.aside)

        found = []
        for what, whose, n in self.together_or_each(COUNTS.decode, one_by_one, "counts"):
            if what in STATES and isinstance(whose, str):
                self.aside.log_once("count of", f"{what} {whose!r}", "that is not a track")
            elif isinstance(whose, str) or whose in tracks:
                found.append((what, whose, n))
        return found

    async def queue_counts(self) -> list[tuple[str, str, int]]:
        tracks = self.catalog.tracks
        return [
            (what, whose if isinstance(whose, str) else tracks[whose].queue, n) for what, whose, n in self.all_counts()
        ]

    async def depth(self, queue: str) -> int:
        pending = self.pending_by_track()
        return sum(pending.get(track.number, 0) for track in self.catalog.of_queue(queue))

    async def running_by_name(self, queue: str) -> dict[str, int]:
        return {name: n for (of_queue, name), n in self.running().items() if of_queue == queue}

    def running(self) -> Totals[tuple[str, str]]:
        """How many tasks run, by queue and name; all of a queue under the empty name."""
        found: Totals[tuple[str, str]] = Totals()
        for what, whose, n in self.all_counts():
            if what == State.RUNNING:
                track = self.catalog.tracks[int(whose)]
                found[track.queue, ""] += n
                found[track.queue, track.name] += n
        return found

    # The pending index.

    def all_tracks(self, queue: str) -> Sequence[Track]:
        return self.catalog.by_queue.get(queue, ())

    def open_tracks(self, queue: str) -> list[Track]:
        pending = self.pending_by_track() if self.pending is None else self.pending
        return [track for track in self.all_tracks(queue) if track.number in pending]

    async def tracks_with_pending(self, queue: str) -> list[Track]:
        return [track for track in self.open_tracks(queue) if self.pending is None or self.pending[track.number] > 0]

    async def unshared(self, queue: str) -> int:
        pending = self.pending_by_track()
        return sum(pending[track.number] for track in self.open_tracks(queue) if not track.fair)

    async def clock(self, queue: str) -> tuple[int, int]:
        """A clock that can't be read is taken to be at the highest virtual time: all tenants restart equal from there.

        At 0, tenants without a virtual time would go first until they had caught up. The next turn writes it.
        """
        stored = self.each(statement("clock"), (queue,))
        clock, unnamed = stored[0] if stored else (0, 0)
        if not is_virtual_time(unnamed):
            self.aside.log_once("share", f"{queue} ''", f"its virtual time is {unnamed!r}")
            unnamed = 0
        if not is_virtual_time(clock):
            self.aside.log_once("clock of queue", queue, f"it is {clock!r}")
            clock = self.value("highest_virtual_time", queue, LATEST)
        return clock, unnamed

    async def read_tracks(self, after: Sequence[tuple[Any, ...]], most: int, with_gated: bool) -> list[Found[Head]]:
        read = self.read_all if with_gated else self.read_open
        return [read(each, most) for each in after]

    def read_open(self, after: tuple[Any, ...], most: int) -> Found[Head]:
        return self.found(HEADS, "read_track", *after, most, 0)

    def read_all(self, after: tuple[Any, ...], most: int) -> Found[Head]:
        found, gated = (self.found(HEADS, "read_track", *after, most, each) for each in (0, 1))
        rows = sorted([*found.rows, *gated.rows])[:most]
        last = columns_of(rows[-1]) if rows else found.last or gated.last
        return Found(rows, min(found.number + gated.number, most), last)

    async def read_groups(self, after: Sequence[tuple[object, ...]], most: int) -> list[Found[Head]]:
        return [self.found(HEADS, "read_group", *each, most) for each in after]


def is_virtual_time(stored: object) -> bool:
    return isinstance(stored, int) and -1 <= stored <= LATEST


class Transaction(Snapshot, SqlTransaction):
    """A write transaction: counts, topics and what is to be followed up gather here.

    Its opener calls `follow_ups.conclude`, which does the follow-ups and writes the counts, commits, and notifies.
    """

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, now: Instant) -> None:
        Snapshot.__init__(self, connection, catalog, now)
        SqlTransaction.__init__(self)
        self.changes: dict[tuple[str, int | str], int] = defaultdict(int)

    async def write(self, name: str, *parameters: Any) -> int:
        return self.run(name, *map(parameter, parameters))

    def run(self, name: str, *parameters: Any) -> int:
        """Run the statement `name`; how many rows it changed."""
        return self.connection.execute(statement(name), parameters).rowcount

    # Tasks.

    async def load(self, ids: Sequence[str]) -> Sequence[Stored]:
        return self.adopted(self.find_rows(list(ids)).values())

    async def load_by(self, name: str, *parameters: Any) -> Sequence[Stored]:
        return self.adopted(self.tasks(name, *map(parameter, parameters)))

    async def waiting_in(self, queue: str, most: int) -> Sequence[Stored]:
        tracks = [track.number for track in self.catalog.by_queue[queue]]
        rows = self.pending_of(tracks, most)
        for name in ("due_of", "blocked_of"):
            if len(rows) < most:
                rows += self.tasks(name, to_json(tracks), most - len(rows), to_json(self.passed_over))
        return self.adopted(rows)

    def pending_of(self, tracks: Iterable[int], most: int) -> list[Row | UnreadableTask]:
        """Some pending tasks of some tracks."""
        pending, passed = self.pending_by_track(), to_json(self.passed_over)
        rows: list[Row | UnreadableTask] = []
        for track in tracks:
            if track in pending and len(rows) < most:
                rows += self.tasks("pending_of", track, most - len(rows), passed)
        return rows

    async def expired(self, until: Instant, low: Instant, most: int) -> Sequence[Stored]:
        return self.adopted(self.tasks("expired", until, most, to_json(self.passed_over)))

    async def running_of(self, workers: Sequence[str], most: int) -> Sequence[Stored]:
        return self.adopted(self.tasks("running_of", to_json(workers), most, to_json(self.passed_over)))

    async def busy(self, workers: Sequence[str]) -> list[str]:
        return self.many(WORKERS, "has_running", to_json(workers), to_json(self.passed_over))

    async def too_late(self, low: Instant, most: int) -> Sequence[Stored]:
        return self.adopted(self.tasks("too_late", self.now, most, to_json(self.passed_over)))

    def adopted(self, rows: Iterable[Row | UnreadableTask]) -> list[Stored]:
        """The tasks of these rows, to be changed: where they are is remembered."""
        found = []
        for row in rows:
            if isinstance(row, Row):
                self.loaded[row.id], self.versions[row.id] = row.track, row.version
            found.append(self.decoded(row))
        return found

    def place(self, records: Sequence[TaskRecord]) -> None:
        for record in records:
            self.loaded[record.id] = self.track_of(record)

    def knows(self, track: int) -> bool:
        return track in self.catalog.tracks

    async def insert_tasks(self, records: Sequence[TaskRecord]) -> int:
        return self.run_each("insert_task", [self.columns(record) for record in records])

    async def update_tasks(self, moves: Sequence[tuple[TaskRecord, TaskRecord]]) -> int:
        return self.run_each("save_task", [(*self.columns(new), *self.fence(old)) for old, new in moves])

    def run_each(self, name: str, rows: list[tuple[object, ...]]) -> int:
        """Run the statement `name` for each of these; how many rows it changed."""
        return self.connection.executemany(statement(name), rows).rowcount if rows else 0

    def columns(self, record: TaskRecord) -> tuple[object, ...]:
        return task_columns(record, self.loaded[record.id], self.is_gated(record), self.next_version(record))

    def is_gated(self, record: TaskRecord) -> bool:
        """Where partitions are limited, pending tasks are stored gated; `partitions` then ungates the heads."""
        waits = record.state is State.PENDING and record.spec.partition is not None
        return waits and self.settings(record.queue).per_partition is not None

    async def insert_ended(self, place: Place, records: Sequence[TaskRecord]) -> None:
        rows = [ended_columns(record, self.loaded[record.id], self.next_version(record)) for record in records]
        self.run(f"save_{place}", to_json(rows))
        if place is Place.FINISHED:
            days: dict[int, list[str]] = {}
            for record in records:
                days.setdefault(day_of(record.finished_at or 0), []).append(record.id)
            for day, ids in days.items():
                self.run("save_day", day, min(ids), max(ids))

    # Counts.

    def count(self, what: State, track: int, change: int, day: int = 0) -> None:
        """Count tasks of a track by state."""
        self.changes[what, track] += change

    def count_event(self, what: Counter, queue: str, change: int = 1) -> None:
        """Count what happened in a queue."""
        self.changes[what, queue] += change

    async def write_counts(self) -> None:
        changes = [(what, whose, change) for (what, whose), change in self.changes.items() if change]
        if len(changes) == 2:  # a single enqueue: without JSON it costs half
            self.run("count_two", *changes[0], *changes[1])
        elif changes:
            self.run("count", to_json(changes))
        self.changes.clear()

    # Claims.

    async def first_turns(self, tracks: Sequence[int], most: int) -> dict[int, Found[tuple[int, str]]]:
        return {track: self.found(TURNS, "turn_order", track, most) for track in tracks}

    async def given(self, worker: str, sequence: int) -> list[Stored]:
        return [self.decoded(row) for row in self.tasks("claim_repeat", worker, sequence)]

    async def lease(self, request: ClaimRequest, heads: Sequence[Head]) -> dict[str, LeasedTask] | None:
        ids = to_json([head.id for head in heads])
        given = self.many(GIVEN, "claim_read", ids)
        if len(given) < len(heads):
            known = {row.id for row in given}
            for head in heads:
                if head.id not in known:
                    self.aside.skip_task(head.id, head.track)
            return None
        tasks = {}
        for head, row in zip(heads, given, strict=True):
            try:
                tasks[head.id] = self.leased_task(request, head, row)
            except UNREADABLE as error:
                self.set_aside(head.id, head.track, State.PENDING, False, None, problem_of(error))
        if len(tasks) < len(heads):
            return None
        taken = self.run("claim", self.now, request.worker, request.sequence, request.lease, ids)
        assert taken == len(heads), "the pending index names tasks that are not pending"
        if self.pending is not None:
            for number, n in Totals(head.track for head in heads).items():
                self.pending[number] -= n
        return tasks

    def leased_task(self, request: ClaimRequest, head: Head, row: Given) -> LeasedTask:
        track = self.catalog.tracks[head.track]
        return leased_task(
            decode_facts(row.facts),
            track,
            self.catalog.queues[track.queue].settings,
            id=head.id,
            lease=row.lease + 1,
            expires_at=self.now + (row.lease_for if request.lease is None else request.lease),
            ready_at=head.ready_at,
            rank=head.rank,
            args=row.args.encode(),
            now=self.now,
        )

    def record(self, row: Row) -> TaskRecord:
        """A task whose queue's settings can't be read is unreadable: nothing can be decided about it."""
        record = super().record(row)
        if record.queue in self.catalog.unreadable:
            raise ValueError("the settings of its queue can't be read")
        return record

    def make_queues(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.catalog.queues:
                self.put_queue(Queue(name))

    async def save_queue(self, queue: Queue) -> None:
        self.put_queue(queue)

    def put_queue(self, queue: Queue) -> None:
        self.check_queue(queue.name)
        self.run("save_queue", queue.name, queue.state, to_json(queue.settings), queue.epoch)
        self.catalog.put(queue)
        self.next_generation()

    async def delete_queue(self, name: str, most: int) -> bool:
        deleted = [self.run("forget_buckets", name, most), self.run("forget_shares", name, most)]
        fair = [track.number for track in self.catalog.by_queue[name] if track.fair]
        deleted += [self.run("forget_turns", number, most) for number in fair]
        if most in deleted:
            return False
        self.run("delete_queue", name)
        del self.catalog.queues[name]
        self.next_generation()
        return True

    def next_generation(self) -> None:
        self.run("next_generation")
        self.catalog.generation += 1

    def track_of(self, record: TaskRecord) -> int:
        """The number of the track that a task belongs to by its present rank."""
        epoch, fair = self.catalog.epoch(record.queue), self.settings(record.queue).fair
        return self.track(record.queue, record.name, record.requires, record.lane, epoch, fair, MIXED)

    def track(self, *key: *TrackKey) -> int:
        """The number of a track, created if it does not exist."""
        number = self.catalog.numbers.get(key)
        return self.add_track(*key) if number is None else number

    def add_track(self, *key: *TrackKey) -> int:
        queue, name, requires, lane, epoch, fair, _ = key
        number: int = self.value("add_track", queue, name, to_json(requires), lane, epoch, int(fair))
        self.catalog.add(Track(number, *key))
        self.next_generation()
        return number
