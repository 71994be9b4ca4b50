"""One snapshot of the store: its rows, decoded together, or one by one if some of them can't be read."""

from __future__ import annotations

import sqlite3
from collections import Counter as Totals
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from math import isfinite
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dibs.core.fairness import LATEST
from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines import port
from dibs.engines.catalog import Catalog
from dibs.engines.decisions.choosing import Head
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.searching import Wanted
from dibs.engines.port import Found, IdRange, Read, Stored, Stretch, stretch_of
from dibs.engines.sqlite.row_decoder import BATCH_ERRORS, RowDecoder, TaskDecoder, columns_of, is_spoiled, text_or_bytes
from dibs.engines.sqlite.rows import Row, decode_rows, record_of, row_from
from dibs.engines.sqlite.statements import row_by_row, statement
from dibs.engines.store_transaction import StoreSnapshot
from dibs.engines.unreadable import UNREADABLE, problem_of, readable, unreadable_task
from dibs.engines.values import UnreadableTask

__all__ = ["RawRows", "Snapshot", "Value", "decoder_of", "parameter"]

STATES = frozenset(State)

Value = TypeVar("Value")
Key = int | str
RawRows = list[tuple[Any, ...]]

QUEUES = RowDecoder(tuple[str, object, object, object], "queue")
TRACKS = RowDecoder(tuple[int, object, object, object, object, object, object, object], "track")
WATCHES = RowDecoder(tuple[str, object, object], "subscriber")
COUNTS = RowDecoder(tuple[str, int | str, int], "count of", 0, 1)
PENDING = RowDecoder(tuple[int, int], "count of pending tasks in track")
NEWEST = RowDecoder(tuple[str | None, int | None], "task")
HEADS = TaskDecoder(Head, "task", 1)
pages_decoder = msgspec.json.Decoder(list[list[Head]])
DOCUMENTS = RowDecoder(tuple[int | str, str], "")
"""Names, and the JSON stored under them."""


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


class Snapshot(StoreSnapshot[Catalog]):
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
            for watch in self.many(WATCHES, "watches"):
                self.catalog.know_watch(self.now, *watch)
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

    async def newest(self, ranges: Sequence[IdRange], most: int, wanted: Wanted) -> list[Stretch]:
        """A statement for each range costs less than one for all of them."""
        asked = [parameter(each) for each in wanted.parameters()]
        return [
            stretch_of(self.many(NEWEST, "newest", below, lowest or "", most, *asked), most) for lowest, below in ranges
        ]

    async def every_count(self) -> list[tuple[str, Track | str, int]]:
        tracks = self.catalog.tracks
        return [(what, whose if isinstance(whose, str) else tracks[whose], n) for what, whose, n in self.all_counts()]

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
        if with_gated:
            return [self.read_all(each, most) for each in after]
        try:
            if len(after) == 1:  # the beginning of a claim from a plain queue
                return [page_of(HEADS.decode(self.value("read_track", *after[0], most, 0)))]
            return pages_of(self.value("read_tracks", to_json(after), most, 0))
        except BATCH_ERRORS:
            return [self.found(HEADS, "read_track", *each, most, 0) for each in after]

    def read_all(self, after: tuple[Any, ...], most: int) -> Found[Head]:
        found, gated = (self.found(HEADS, "read_track", *after, most, each) for each in (0, 1))
        rows = sorted([*found.rows, *gated.rows])[:most]
        last = columns_of(rows[-1]) if rows else found.last or gated.last
        return Found(rows, min(found.number + gated.number, most), last)

    async def read_groups(self, after: Sequence[tuple[object, ...]], most: int) -> list[Found[Head]]:
        try:
            return pages_of(self.value("read_groups", to_json(after), most))
        except BATCH_ERRORS:
            return [self.found(HEADS, "read_group", *each, most) for each in after]


def pages_of(text: str) -> list[Found[Head]]:
    """What was read in one step, which matters where shares or partitions are many."""
    return list(map(page_of, pages_decoder.decode(text)))


def page_of(rows: list[Head]) -> Found[Head]:
    return Found(rows, len(rows), (rows[-1].rank, rows[-1].id) if rows else None)


def is_virtual_time(stored: object) -> bool:
    return isinstance(stored, int) and -1 <= stored <= LATEST
