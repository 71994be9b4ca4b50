"""What the verbs work on: a connection inside a transaction, the catalog, and what is to be told afterwards."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from typing import Any

import msgspec

from dibs.core.settings import QueueSettings
from dibs.core.states import WAITING, State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import AuditEntry, Counter, ended_topic, work_topic
from dibs.engines.sqlite.catalog import Catalog, Queue, Stream, StreamKey
from dibs.engines.sqlite.rows import Row, decode_rows, record_of, to_json
from dibs.engines.sqlite.statements import statement

__all__ = ["Snapshot", "Transaction"]

Tallies = list[tuple[str, int | str, int]]
tallies_decoder: msgspec.json.Decoder[Tallies] = msgspec.json.Decoder(Tallies)


class Snapshot:
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
        """Make the catalog current; to be done first in every transaction."""
        current: int = self.value("generation") if generation is None else generation
        self.catalog.refresh(self.connection, current)

    def record(self, row: Row) -> TaskRecord:
        stream = self.catalog.streams[row.stream]
        return record_of(row, stream.queue, stream.name, stream.requires, stream.lane)

    def find(self, ids: list[str]) -> dict[str, Row]:
        """The rows of those tasks that exist, wherever they are."""
        places = self.row("find", to_json(ids))
        return {row.id: row for place in places for row in decode_rows(place)}

    def pending_by_stream(self) -> dict[int, int]:
        """How many pending tasks each stream has, empty ones left out."""
        return dict(msgspec.json.decode(self.value("pending_by_stream"), type=list[tuple[int, int]]))

    def tallies(self) -> Tallies:
        return tallies_decoder.decode(self.value("tallies"))


class Transaction(Snapshot):
    """A write transaction: counts and topics gather here, and are written and rung by whoever opened it."""

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, now: Instant) -> None:
        super().__init__(connection, catalog, now)
        self.changes: dict[tuple[str, int | str], int] = defaultdict(int)
        self.topics: set[str] = set()

    def write(self, name: str, *parameters: Any) -> int:
        """Run the statement `name`; how many rows it changed."""
        return self.connection.execute(statement(name), parameters).rowcount

    def count(self, what: State | Counter, whose: int | str, change: int) -> None:
        self.changes[what, whose] += change

    def flush(self) -> None:
        """Write the counts that have changed."""
        changes = [(what, whose, change) for (what, whose), change in self.changes.items() if change]
        if len(changes) == 2:  # a single enqueue: without JSON it costs half
            self.write("tally_two", *changes[0], *changes[1])
        elif changes:
            self.write("tally", to_json(changes))
        self.changes.clear()

    def standing(self, name: str) -> QueueSettings | None:
        """The settings of a queue that exists."""
        queue = self.catalog.queues.get(name)
        return None if queue is None else queue.settings

    def make_queue(self, name: str) -> Queue:
        """The queue of this name, made now if there was none."""
        queue = self.catalog.queues.get(name)
        return queue if queue is not None else self.save_queue(Queue(name))

    def save_queue(self, queue: Queue) -> Queue:
        self.write("save_queue", queue.name, queue.state, to_json(queue.settings), queue.epoch)
        self.catalog.put(queue)
        self.next_generation()
        return queue

    def next_generation(self) -> None:
        self.write("next_generation")
        self.catalog.generation += 1

    def stream_of(self, record: TaskRecord) -> int:
        """The number of the stream that a task belongs to as it is ranked now."""
        epoch = self.catalog.epoch(record.queue)
        return self.stream(record.queue, record.name, record.requires, record.lane, epoch)

    def stream(self, *key: *StreamKey) -> int:
        """The number of a stream, made now if there was none."""
        number = self.catalog.numbers.get(key)
        return self.add_stream(*key) if number is None else number

    def add_stream(self, queue: str, name: str, requires: tuple[str, ...], lane: int, epoch: int) -> int:
        number: int = self.value("add_stream", queue, name, to_json(requires), lane, epoch)
        self.catalog.add(Stream(number, queue, name, requires, lane, epoch))
        self.next_generation()
        return number

    def settings(self, queue: str) -> QueueSettings:
        return self.catalog.settings(queue)

    def tell(self, queue: str, state: State) -> None:
        """Note whom to ring for a task that has come to `state`."""
        if state in WAITING:  # for later, too: whoever sleeps until something falls due must learn of it
            self.topics.add(work_topic(queue))
        else:
            self.topics.add(ended_topic(queue))
        if self.settings(queue).max_concurrent is not None:  # a slot may have come free
            self.topics.add(work_topic(queue))

    def remember(self, actor: str, act: str, target: str, detail: str = "") -> None:
        """One line of the audit log."""
        entry = AuditEntry(at=self.now, actor=actor, act=act, target=target, detail=detail)
        self.write("add_audit", self.now, to_json(entry))
