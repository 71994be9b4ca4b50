"""The port of this engine: a connection inside a transaction, the catalog, and what is to be told afterwards."""

from __future__ import annotations

import sqlite3
from collections import Counter as Totals
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import isfinite
from typing import Any, TypeVar

from msgspec import Struct

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant, day_of
from dibs.engines import port
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.records import Place
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import FairQueue, Found, Read, Stored
from dibs.engines.sql_transaction import SqlSnapshot, SqlTransaction
from dibs.engines.sqlite.catalog import Catalog, Track, TrackKey
from dibs.engines.sqlite.fairness import clock_of
from dibs.engines.sqlite.row_decoder import BATCH_ERRORS, RowDecoder, columns_of, is_spoiled, text_or_bytes
from dibs.engines.sqlite.rows import Row, decode_rows, ended_columns, record_of, row_from, task_columns
from dibs.engines.sqlite.statements import row_by_row, statement
from dibs.engines.unreadable import UNREADABLE, UnreadableRows, problem_of, readable, unreadable_task
from dibs.engines.values import Counter, UnreadableTask

__all__ = ["ROWS", "Snapshot", "Transaction", "decoder_of"]

ROWS = 20
"""Tasks per `enqueue_many`. More at once gain nothing."""

SAME_VIRTUAL_TIME = -1
"""For a share whose virtual time stays while its pending tasks change."""

STATES = frozenset(State)

Value = TypeVar("Value")
Key = int | str
RawRows = list[tuple[Any, ...]]

COUNTS = RowDecoder(tuple[str, int | str, int], "count of", 0, 1)
PENDING = RowDecoder(tuple[int, int], "count of pending tasks in track")
WORKERS = RowDecoder(str, "worker")
DOCUMENTS = RowDecoder(tuple[int | str, str], "")
"""Names, and the JSON stored under them."""


def parameter(value: object) -> object:
    """A parameter as a statement takes it: lists and rows as JSON, Structs as the text of theirs."""
    if isinstance(value, Struct):
        return to_json(value)
    if isinstance(value, list):
        return to_json([tuple(map(text_of, row)) if isinstance(row, tuple) else text_of(row) for row in value])
    return value


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

    def row(self, name: str, *parameters: Any) -> Any:
        """The only row of the statement `name`, or None."""
        return self.connection.execute(statement(name), parameters).fetchone()

    def value(self, name: str, *parameters: Any) -> Any:
        """The only value of the only row of the statement `name`."""
        return self.row(name, *parameters)[0]

    def refresh(self, generation: int | None = None) -> None:
        """Make the catalog current; must come first in every transaction."""
        current: int = self.value("generation") if generation is None else generation
        self.catalog.refresh(self, current)

    # Rows that may be invalid: decoded together if all are valid, and one by one if not.

    @property
    def aside(self) -> UnreadableRows:
        """What this process can't read."""
        return self.catalog.aside

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self.catalog.queues

    @property
    def tracks(self) -> Mapping[int, Track]:
        return self.catalog.tracks

    @property
    def unreadable_queues(self) -> Mapping[str, str]:
        return self.catalog.unreadable

    async def fetch(self, read: Read[port.Row], *parameters: Any) -> Found[port.Row]:
        decoder = decoder_of(read)

        def together(text: str) -> Found[port.Row]:
            rows = decoder.decode(text)
            return Found(rows, len(rows), columns_of(rows[-1]) if rows else None)

        def one_by_one(rows: RawRows) -> Found[port.Row]:
            unread: RawRows = []
            found = decoder.one_by_one(rows, self.aside, unread)
            return Found(found, len(rows), rows[-1] if rows else None, unread)

        return self.together_or_each(together, one_by_one, read.name, *map(parameter, parameters))

    async def find(self, ids: Sequence[str]) -> dict[str, Stored]:
        return {task_id: self.decoded(row) for task_id, row in self.find_rows(list(ids)).items()}

    def many(self, decoder: RowDecoder[Value], name: str, *parameters: Any) -> list[Value]:
        """The rows that the statement `name` gathers, without unreadable ones."""
        return self.together_or_each(
            decoder.decode, lambda rows: decoder.one_by_one(rows, self.aside), name, *parameters
        )

    def page(
        self, decoder: RowDecoder[Value], name: str, *parameters: Any
    ) -> tuple[list[Value], tuple[Any, ...] | None]:
        """Like `many`, where the last parameter is the limit; and the last row as stored, if there may be more.

        The next page begins after that row, whether or not it can be read.
        """

        def one_by_one(rows: RawRows) -> tuple[list[Value], tuple[Any, ...] | None]:
            return decoder.one_by_one(rows, self.aside), rows[-1] if len(rows) == parameters[-1] else None

        def together(text: str) -> tuple[list[Value], tuple[Any, ...] | None]:
            found = decoder.decode(text)
            return found, columns_of(found[-1]) if len(found) == parameters[-1] else None

        return self.together_or_each(together, one_by_one, name, *parameters)

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
            task_id, track, state, worker, finished_at = (columns[each] for each in (0, 1, 2, 10, 13))
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
        asked = to_json(ids)
        try:
            return {row.id: row for place in self.row("find", asked) for row in decode_rows(place)}
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

    async def fair_queue(self, queue: str) -> FairQueue:
        pending = self.pending_by_track()
        unshared = sum(pending.get(track.number, 0) for track in self.catalog.by_queue[queue] if not track.fair)
        return FairQueue(*clock_of(self, queue), unshared)


class Transaction(Snapshot, SqlTransaction):
    """A write transaction: counts, topics and what is to be followed up gather here.

    Its opener calls `steps.conclude`, which does the follow-ups and writes the counts, commits, and notifies.
    """

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, now: Instant) -> None:
        Snapshot.__init__(self, connection, catalog, now)
        SqlTransaction.__init__(self)
        self.changes: dict[tuple[str, int | str], int] = defaultdict(int)
        self.shares: dict[tuple[str, str], int] = {}
        self.virtual_times: dict[tuple[str, str], int] = {}
        self.turns: dict[tuple[int, str], None] = {}

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
                self.loaded[row.id] = row.track
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
        return self.run_each("save_task", [(*self.columns(new), old.lease, old.state) for old, new in moves])

    def run_each(self, name: str, rows: list[tuple[object, ...]]) -> int:
        """Run the statement `name` for each of these; how many rows it changed."""
        return self.connection.executemany(statement(name), rows).rowcount if rows else 0

    def columns(self, record: TaskRecord) -> tuple[object, ...]:
        return task_columns(record, self.loaded[record.id], self.is_gated(record))

    def is_gated(self, record: TaskRecord) -> bool:
        """Where partitions are limited, pending tasks are stored gated; `partitions` then ungates the heads."""
        waits = record.state is State.PENDING and record.spec.partition is not None
        return waits and self.settings(record.queue).per_partition is not None

    async def insert_ended(self, place: Place, records: Sequence[TaskRecord]) -> None:
        self.run(f"save_{place}", to_json([ended_columns(record, self.loaded[record.id]) for record in records]))
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

    def count_pending(self, number: int, share: str, change: int) -> None:
        """Count pending tasks of one share of a track. In a fair track, a share with new tasks gets a turn."""
        self.changes[State.PENDING, number] += change
        track = self.catalog.tracks[number]
        if track.fair:
            key = (track.queue, share)
            self.shares[key] = self.shares.get(key, 0) + change
            if change > 0:
                self.turns[number, share] = None

    async def flush(self) -> None:
        self.write_counts()

    def write_counts(self) -> None:
        """Write the counts that have changed."""
        changes = [(what, whose, change) for (what, whose), change in self.changes.items() if change]
        if len(changes) == 2:  # a single enqueue: without JSON it costs half
            self.run("count_two", *changes[0], *changes[1])
        elif changes:
            self.run("count", to_json(changes))
        self.changes.clear()
        if self.shares or self.virtual_times:
            keys = {**self.shares, **self.virtual_times}
            rows = [(*key, self.virtual_times.get(key, SAME_VIRTUAL_TIME), self.shares.get(key, 0)) for key in keys]
            self.run("save_shares", to_json(rows))
            self.shares.clear()
            self.virtual_times.clear()
        if self.turns:
            self.run("add_turns", to_json([(n, share, self.catalog.tracks[n].queue) for n, share in self.turns]))
            self.turns.clear()

    def record(self, row: Row) -> TaskRecord:
        """A task whose queue's settings can't be read is unreadable: nothing can be decided about it."""
        record = super().record(row)
        if record.queue in self.catalog.unreadable:
            raise ValueError("the settings of its queue can't be read")
        return record

    def make_queue(self, name: str) -> Queue:
        """The queue of this name, created if it does not exist."""
        queue = self.catalog.queues.get(name)
        return queue if queue is not None else self.put_queue(Queue(name))

    async def save_queue(self, queue: Queue) -> None:
        self.put_queue(queue)

    def put_queue(self, queue: Queue) -> Queue:
        self.check_queue(queue.name)
        self.run("save_queue", queue.name, queue.state, to_json(queue.settings), queue.epoch)
        self.catalog.put(queue)
        self.next_generation()
        return queue

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
        return self.track(record.queue, record.name, record.requires, record.lane, epoch, fair)

    def track(self, *key: *TrackKey) -> int:
        """The number of a track, created if it does not exist."""
        number = self.catalog.numbers.get(key)
        return self.add_track(*key) if number is None else number

    def add_track(self, queue: str, name: str, requires: tuple[str, ...], lane: int, epoch: int, fair: bool) -> int:
        number: int = self.value("add_track", queue, name, to_json(requires), lane, epoch, int(fair))
        self.catalog.add(Track(number, queue, name, requires, lane, epoch, fair))
        self.next_generation()
        return number
