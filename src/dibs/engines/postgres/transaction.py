"""What verbs work on: a connection inside a transaction, the catalog, and the topics to notify after the commit."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.follow_ups import FollowUp
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import topics_of
from dibs.engines.postgres.catalog import Catalog, Missing, Queue, TrackKey, band_of_record
from dibs.engines.postgres.pool import Connection
from dibs.engines.postgres.rows import Row, columns, real_ids, record_of
from dibs.engines.postgres.statements import statement
from dibs.engines.unreadable import UNREADABLE, UnreadableRows, problem_of, unreadable_queue, unreadable_task
from dibs.engines.values import AuditEntry, Counter, UnreadableTask

__all__ = ["Snapshot", "Transaction", "set_aside"]


def set_aside(catalog: Catalog, row: Row, error: Exception) -> UnreadableTask:
    """Log a task that can't be read, and skip it from now on unless it has ended."""
    track, problem = catalog.tracks.get(row["track"]), problem_of(error)
    if track is None or track.queue not in catalog.unreadable:  # otherwise the queue was logged
        catalog.aside.log_once("task", row["id"], problem)
    ended = row["finished_at"] is not None
    if not ended:
        catalog.aside.skip_task(str(row["id"]), row["track"])
    return unreadable_task(row["id"], track, row["state"], ended, row["worker"], problem)


class Snapshot:
    """One snapshot of the store."""

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

    @property
    def aside(self) -> UnreadableRows:
        """What this process can't read."""
        return self.catalog.aside

    @property
    def passed_over(self) -> list[str]:
        """The tasks that are set aside."""
        return list(self.aside.tasks)

    def record(self, row: Row) -> TaskRecord:
        return record_of(row, self.catalog.track(row["track"]))

    def read(self, row: Row) -> TaskRecord | UnreadableTask:
        """The record of a row; if it can't be read, it is logged, and skipped from now on."""
        try:
            return self.record(row)
        except UNREADABLE as error:
            return set_aside(self.catalog, row, error)

    def records(self, rows: Iterable[Row]) -> list[TaskRecord]:
        """The records of the rows that can be read."""
        rows = [*rows]
        self.catalog.expect(row["track"] for row in rows)
        return [record for row in rows if isinstance(record := self.read(row), TaskRecord)]

    async def look_again(self) -> None:
        """Read again what was set aside: it may have been repaired or deleted."""
        ids = self.passed_over
        found = await self.find(ids)
        self.aside.forget(ids)
        self.records(found.values())  # sets aside those that still can't be read

    async def find(self, ids: Sequence[str]) -> dict[str, Row]:
        """The rows of those tasks that exist, in any place."""
        rows = await self.rows("find", real_ids(ids))
        self.catalog.expect(row["track"] for row in rows)
        return {str(row["id"]): row for row in rows}

    async def all_counts(self) -> list[tuple[str, int, str, int]]:
        """Every count that is not zero: what, track, queue, n."""
        rows = await self.rows("counts")
        self.catalog.expect(row["track"] for row in rows if row["track"])
        return [tuple(row) for row in rows if not row["track"] or self.knows(row["track"])]

    def knows(self, track: int) -> bool:
        """Whether a track exists; raises `Stale` if it may be new."""
        return track not in self.aside.tracks and self.catalog.track(track) is not None

    def settings(self, queue: str) -> QueueSettings:
        return self.catalog.settings(queue)

    def settings_if_exists(self, queue: str) -> QueueSettings | None:
        return self.catalog.settings_if_exists(queue)


class Transaction(Snapshot):
    """A write transaction: gathers counts, topics and follow-ups.

    Its opener calls `follow_ups.conclude`, which runs the follow-ups and writes the counts, commits, and then notifies.
    """

    def __init__(self, connection: Connection, schema: str, catalog: Catalog, now: Instant) -> None:
        super().__init__(connection, schema, catalog, now)
        self.changes: dict[tuple[str, int, str, int], int] = defaultdict(int)
        self.shares: dict[tuple[str, str], int] = defaultdict(int)
        self.follow_ups: deque[FollowUp] = deque()
        self.stuck: list[FollowUp] = []
        """Follow-ups that lead to unreadable rows: they are left to other processes."""
        self.partitions: dict[str, dict[Partition, None]] = {}
        self.topics: set[str] = set()

    async def write(self, name: str, *parameters: Any) -> int:
        """Run the statement `name`; returns how many rows it changed."""
        status: str = await self.connection.execute(statement(name, self.schema), *parameters)
        return int(status.rpartition(" ")[2])

    def count(self, what: State, track: int, change: int, day: int = 0) -> None:
        """Count tasks of a track by state; finished ones also by the day of their end."""
        self.changes[what, track, "", day] += change

    def count_event(self, what: Counter, queue: str, change: int = 1) -> None:
        """Count what happened in a queue."""
        self.changes[what, 0, queue, 0] += change

    def count_pending(self, number: int, share: str, change: int) -> None:
        """Count pending tasks of one share of a track."""
        self.changes[State.PENDING, number, "", 0] += change
        track = self.catalog.track(number)
        if track.fair:
            self.shares[track.queue, share] += change

    def mark_changed(self, partition: Partition) -> None:
        """Note a partition in which a pending task was added or removed, or a slot freed: its heads may change."""
        if self.settings(partition.queue).per_partition is not None:
            self.partitions.setdefault(partition.queue, {})[partition] = None

    async def flush(self) -> None:
        """Write the counts that have changed."""
        changes = [(*key, change) for key, change in self.changes.items() if change]
        if changes:
            await self.write("count", *columns(changes, 5))
        self.changes.clear()
        shares = [(*key, change) for key, change in self.shares.items() if change]
        if shares:
            await self.write("count_shares", *columns(shares, 3))
        self.shares.clear()

    async def save_queue(self, queue: Queue) -> None:
        """Write a changed queue. The next transaction reads the catalog again."""
        await self.write("save_queue", queue.name, queue.state, encode(queue.settings), queue.epoch)
        await self.next_generation()

    async def next_generation(self) -> None:
        await self.write("next_generation")

    def record(self, row: Row) -> TaskRecord:
        """A task whose queue's settings can't be read is unreadable: nothing can be decided about it."""
        record = super().record(row)
        if record.queue in self.catalog.unreadable:
            raise ValueError("the settings of its queue can't be read")
        return record

    def check_queue(self, name: str) -> None:
        """Raise if a queue's settings can't be read: then nothing may be written about it."""
        if name in self.catalog.unreadable:
            raise unreadable_queue(name, self.catalog.unreadable[name])

    def make_queue(self, name: str) -> Queue:
        """The queue of this name; if it does not exist, it is created and the transaction repeated."""
        queue = self.catalog.queues.get(name)
        if queue is None:
            self.check_queue(name)
            raise Missing([name], [])
        return queue

    def key_of(self, record: TaskRecord) -> TrackKey:
        """The track that a task belongs to by its present rank."""
        epoch, fair = self.catalog.epoch(record.queue), self.settings(record.queue).fair
        band = band_of_record(record)
        return (record.queue, record.name, record.requires, record.lane, epoch, fair, band)

    def tracks_of(self, records: Iterable[TaskRecord]) -> dict[TrackKey, int]:
        """The numbers of the tracks of some tasks; raises `Missing` if some do not exist."""
        keys = {self.key_of(record): None for record in records}
        numbers = self.catalog.numbers
        missing = [key for key in keys if key not in numbers]
        if missing:
            raise Missing([], missing)
        return {key: numbers[key] for key in keys}

    def tell(self, queue: str, state: State) -> None:
        """Gather the topics to notify for a task that is now in `state`."""
        self.topics.update(topics_of(queue, state, self.settings(queue)))

    async def remember(self, actor: str, act: str, target: str, detail: str = "") -> None:
        """One line of the audit log."""
        entry = AuditEntry(at=self.now, actor=actor, act=act, target=target, detail=detail)
        await self.write("add_audit", self.now, encode(entry))
