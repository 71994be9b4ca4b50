"""The port of this engine: a connection inside a transaction, the catalog, and what is to be told afterwards."""

from __future__ import annotations

import sqlite3
from collections import Counter as Totals
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from dibs.core.states import State
from dibs.core.task import LeasedTask, TaskRecord
from dibs.core.times import Duration, Instant, day_of
from dibs.engines.catalog import Catalog, TrackKey
from dibs.engines.decisions.blocks import claimed_pairs
from dibs.engines.decisions.choosing import Chosen, Head
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import Track, decode_facts, leased_task, mixed_band
from dibs.engines.decisions.records import Place
from dibs.engines.decisions.transaction import Queue
from dibs.engines.figures import Counter
from dibs.engines.port import Found, Stored
from dibs.engines.sqlite.row_decoder import RowDecoder, TaskDecoder
from dibs.engines.sqlite.rows import Row, ended_columns, task_columns
from dibs.engines.sqlite.snapshot import Snapshot, parameter
from dibs.engines.sqlite.statements import statement
from dibs.engines.store_transaction import StoreTransaction
from dibs.engines.topics import EVENTS
from dibs.engines.unreadable import UNREADABLE, problem_of
from dibs.engines.values import ClaimRequest, UnreadableTask
from dibs.observe.events import EventType

__all__ = ["ROWS", "Transaction"]

ROWS = 20
"""Tasks per `enqueue_many`. More at once gain nothing."""

WORKERS = RowDecoder(str, "worker")
TURNS = RowDecoder(tuple[int, str], "turn of tag")


class Given(Struct, array_like=True, frozen=True):
    """The columns of a chosen row that its head lacks."""

    id: str
    lease: int
    lease_for: Duration
    args: str
    facts: str


GIVEN = TaskDecoder(Given, "task")


class Transaction(Snapshot, StoreTransaction[Catalog]):
    """A write transaction: counts, topics and what is to be followed up gather here.

    Its opener calls `steps.conclude`, which does the follow-ups and writes the counts, commits, and notifies.
    """

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, now: Instant) -> None:
        Snapshot.__init__(self, connection, catalog, now)
        StoreTransaction.__init__(self)
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
        self.run("delete_batches", until)
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
        return self.run_each("insert_task", [(*self.columns(record), record.created_at) for record in records])

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

    def count(self, what: State | Counter, track: int, change: int, day: int = 0) -> None:
        """Count tasks of a track by state, and what happened to them."""
        self.changes[what, track] += change

    def count_event(self, what: str, queue: str, change: int = 1) -> None:
        """Count what happened in a queue."""
        self.changes[what, queue] += change

    async def write_counts(self) -> None:
        changes = [(what, whose, change) for (what, whose), change in self.changes.items() if change]
        if len(changes) == 2:  # enqueueing tasks of one kind: without JSON it costs half
            self.run("count_two", *changes[0], *changes[1])
        elif len(changes) == 3:  # claiming or completing some
            self.run("count_three", *changes[0], *changes[1], *changes[2])
        elif changes:
            self.run("count", to_json(changes))
        self.changes.clear()

    # Events.

    def emit_tasks(self, event: EventType, ids: Sequence[str]) -> None:
        """Append one event for each of some unfinished tasks, as far as somebody wants it."""
        tracks = self.catalog.watched(event, self.now)
        if tracks is not None and self.run("task_events", event, self.now, to_json(ids), to_json(tracks)):
            self.topics.add(EVENTS)

    # Claims.

    async def first_turns(self, tracks: Sequence[int], clock: int, most: int) -> dict[int, Found[tuple[int, str]]]:
        self.run("reset_passed", to_json(tracks), clock)
        return {track: self.found(TURNS, "turn_order", track, most) for track in tracks}

    async def claimed_by(self, worker: str, sequence: int) -> list[Stored]:
        return [self.decoded(row) for row in self.tasks("claim_repeat", worker, sequence)]

    async def lease(self, request: ClaimRequest, chosen: Sequence[Chosen]) -> dict[str, LeasedTask] | None:
        heads = [each.head for each in chosen]
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
        trait, blocks = claimed_pairs(request.worker, [head.id for head in heads])
        self.note_blocks([trait], blocks)
        if self.catalog.watches:
            self.emit_tasks(EventType.TASK_STARTED, [head.id for head in heads])
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
        epoch, fair, band = (
            self.catalog.epoch(record.queue),
            self.settings(record.queue).fair,
            mixed_band(record.spec.priority),
        )
        return self.track(record.queue, record.name, record.requires, record.lane, epoch, fair, band)

    def track(self, *key: *TrackKey) -> int:
        """The number of a track, created if it does not exist."""
        number = self.catalog.numbers.get(key)
        return self.add_track(*key) if number is None else number

    def add_track(self, *key: *TrackKey) -> int:
        queue, name, requires, lane, epoch, fair, band = key
        number: int = self.value("add_track", queue, name, to_json(requires), lane, epoch, int(fair), band)
        self.catalog.add(Track(number, *key))
        self.next_generation()
        return number
