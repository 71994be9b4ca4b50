"""What the verbs work on: a connection inside a transaction, the catalog, and what is to be told afterwards."""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque
from itertools import chain
from typing import Any

import msgspec

from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.deciding.encoding import to_json
from dibs.engines.deciding.errands import Errand
from dibs.engines.deciding.transaction import topics_of
from dibs.engines.sqlite.catalog import Catalog, Queue, Stream, StreamKey
from dibs.engines.sqlite.rows import Row, decode_rows, record_of
from dibs.engines.sqlite.statements import statement
from dibs.engines.values import AuditEntry, Counter

__all__ = ["ROWS", "Snapshot", "Transaction"]

ROWS = 20
"""Tasks that `enqueue_many.sql` and `save_many.sql` take. More at once gain nothing."""

SAME_TAG = -1
"""The tag of a share that has only got other tasks."""

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
        return record_of(row, stream)

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
    """A write transaction: counts, topics and what is to be followed up gather here.

    Whoever opened it has `aftermath.conclude` write the counts and follow up, and then rings.
    """

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, now: Instant) -> None:
        super().__init__(connection, catalog, now)
        self.changes: dict[tuple[str, int | str], int] = defaultdict(int)
        self.shares: dict[tuple[str, str], int] = {}
        self.tags: dict[tuple[str, str], int] = {}
        self.turns: dict[tuple[int, str], None] = {}
        self.errands: deque[Errand] = deque()
        self.partitions: dict[str, dict[str, None]] = {}
        self.topics: set[str] = set()

    def write(self, name: str, *parameters: Any) -> int:
        """Run the statement `name`; how many rows it changed."""
        return self.connection.execute(statement(name), parameters).rowcount

    def save_tasks(self, rows: list[tuple[object, ...]]) -> None:
        """Write unfinished tasks, new or changed, given as `rows.task_columns` gives them."""
        whole = len(rows) - len(rows) % ROWS
        for start in range(0, whole, ROWS):
            self.write("save_many", *chain.from_iterable(rows[start : start + ROWS]))
        if whole < len(rows):
            self.write("save_tasks", to_json(rows[whole:]))

    def count(self, what: State, stream: int, change: int) -> None:
        """Count tasks of a stream by state."""
        self.changes[what, stream] += change

    def tally(self, what: Counter, queue: str, change: int = 1) -> None:
        """Count what happened in a queue."""
        self.changes[what, queue] += change

    def count_pending(self, number: int, share: str, change: int) -> None:
        """Count pending tasks of one share of a stream. Where tenants take turns, those that come get one."""
        self.changes[State.PENDING, number] += change
        stream = self.catalog.streams[number]
        if stream.fair:
            key = (stream.queue, share)
            self.shares[key] = self.shares.get(key, 0) + change
            if change > 0:
                self.turns[number, share] = None

    def touch(self, queue: str, partition: str) -> None:
        """Note a partition in which a pending task has come or gone, or a slot come free: who is next may change."""
        if self.settings(queue).per_partition is not None:
            self.partitions.setdefault(queue, {})[partition] = None

    def flush(self) -> None:
        """Write the counts that have changed."""
        changes = [(what, whose, change) for (what, whose), change in self.changes.items() if change]
        if len(changes) == 2:  # a single enqueue: without JSON it costs half
            self.write("tally_two", *changes[0], *changes[1])
        elif changes:
            self.write("tally", to_json(changes))
        self.changes.clear()
        if self.shares or self.tags:
            keys = {**self.shares, **self.tags}
            rows = [(*key, self.tags.get(key, SAME_TAG), self.shares.get(key, 0)) for key in keys]
            self.write("save_shares", to_json(rows))
            self.shares.clear()
            self.tags.clear()
        if self.turns:
            self.write("add_turns", to_json([(n, share, self.catalog.streams[n].queue) for n, share in self.turns]))
            self.turns.clear()

    def standing(self, queue: str) -> QueueSettings | None:
        """The settings of a queue that exists."""
        found = self.catalog.queues.get(queue)
        return None if found is None else found.settings

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
        epoch, fair = self.catalog.epoch(record.queue), self.settings(record.queue).fair
        return self.stream(record.queue, record.name, record.requires, record.lane, epoch, fair)

    def stream(self, *key: *StreamKey) -> int:
        """The number of a stream, made now if there was none."""
        number = self.catalog.numbers.get(key)
        return self.add_stream(*key) if number is None else number

    def add_stream(self, queue: str, name: str, requires: tuple[str, ...], lane: int, epoch: int, fair: bool) -> int:
        number: int = self.value("add_stream", queue, name, to_json(requires), lane, epoch, int(fair))
        self.catalog.add(Stream(number, queue, name, requires, lane, epoch, fair))
        self.next_generation()
        return number

    def settings(self, queue: str) -> QueueSettings:
        return self.catalog.settings(queue)

    def tell(self, queue: str, state: State) -> None:
        """Note whom to ring for a task that has come to `state`."""
        self.topics.update(topics_of(queue, state, self.settings(queue)))

    def remember(self, actor: str, act: str, target: str, detail: str = "") -> None:
        """One line of the audit log."""
        entry = AuditEntry(at=self.now, actor=actor, act=act, target=target, detail=detail)
        self.write("add_audit", self.now, to_json(entry))
