"""Tasks changed one by one: loaded, decided upon by `dibs.core.moves`, and written back together.

What a batch has already changed is seen by its later items; everything reaches the store in `flush`, with a fixed
number of statements however large the batch is.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from dibs.core.states import ENDED, WAITING, State
from dibs.core.task import HISTORY_LIMIT, HistoryEntry, TaskRecord
from dibs.core.times import day_of
from dibs.engines.sqlite.rows import Row, ended_columns, partition_key, task_columns, to_json
from dibs.engines.sqlite.transaction import Errand, Transaction, What

__all__ = ["Place", "Records", "is_gated", "place_of"]

texts_decoder = msgspec.json.Decoder(list[str])


class Place(StrEnum):
    """The three places of a task."""

    TASKS = "tasks"
    DEAD = "dead"
    FINISHED = "finished"


def place_of(state: State) -> Place:
    """Where a task in this state is kept."""
    if state is State.DEAD:
        return Place.DEAD
    return Place.FINISHED if state in (State.COMPLETED, State.CANCELLED) else Place.TASKS


class Records:
    """The tasks that one transaction works on."""

    def __init__(self, transaction: Transaction, ids: Iterable[str] = ()) -> None:
        self.transaction = transaction
        self.stored: dict[str, tuple[TaskRecord, int]] = {}
        self.current: dict[str, TaskRecord] = {}
        self.touched: dict[str, None] = {}
        self.entries: list[tuple[str, str]] = []
        self.load(ids)

    def load(self, ids: Iterable[str]) -> None:
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return
        self.see(self.transaction.find(wanted).values())

    def get(self, task_id: str) -> TaskRecord | None:
        return self.current.get(task_id)

    def put(self, record: TaskRecord, entry: HistoryEntry | None = None) -> None:
        """Make a record the current one."""
        self.current[record.id] = record
        self.touched[record.id] = None
        if entry is not None:
            self.note(record.id, entry)

    def note(self, task_id: str, entry: HistoryEntry) -> None:
        """Add to a task's history."""
        self.entries.append((task_id, to_json(entry)))

    def remove(self, task_id: str) -> None:
        """Forget a task and its history."""
        del self.current[task_id]
        self.touched[task_id] = None

    def see(self, rows: Iterable[Row]) -> list[TaskRecord]:
        """The records of rows that have been read already."""
        records = []
        for row in rows:
            record = self.transaction.record(row)
            self.stored[row.id] = (record, row.stream)
            self.current[row.id] = record
            records.append(record)
        return records

    def flush(self) -> None:
        """Write what has changed, and note what has to be followed up."""
        leaving: dict[Place, list[TaskRecord]] = {place: [] for place in Place}
        coming: dict[Place, list[tuple[TaskRecord, int]]] = {place: [] for place in Place}
        changes: list[tuple[TaskRecord, TaskRecord]] = []
        gone = []
        for task_id in self.touched:
            old = self.stored.pop(task_id, None)
            new = self.current.get(task_id)
            if new is None:
                gone.append(task_id)
            if old is not None:
                self.count(*old, -1)
                if new is None or must_leave(old[0], new):
                    leaving[place_of(old[0].state)].append(old[0])
            if new is not None:
                stream = self.stream_for(new, old)
                self.count(new, stream, +1)
                coming[place_of(new.state)].append((new, stream))
                self.stored[task_id] = (new, stream)
                if old is not None:
                    changes.append((old[0], new))
        self.leave(leaving)
        self.come(coming)
        self.write_histories(gone)
        self.follow_up(changes, gone)
        self.touched.clear()

    def stream_for(self, new: TaskRecord, old: tuple[TaskRecord, int] | None) -> int:
        """A task stays where it was ranked until it is ranked again."""
        if old is not None and new.state not in WAITING and new.queue == old[0].queue:
            return old[1]
        return self.transaction.stream_of(new)

    def count(self, record: TaskRecord, stream: int, change: int) -> None:
        if record.state is State.PENDING:
            self.transaction.count_pending(stream, record.share, change)
        else:
            self.transaction.count(record.state, stream, change)
        if record.partition is not None and record.state in (State.PENDING, State.RUNNING):
            self.transaction.touch(record.queue, partition_key(record.queue, record.partition))

    def follow_up(self, changes: list[tuple[TaskRecord, TaskRecord]], gone: list[str]) -> None:
        """Errands for those that others wait for, and for what they wait for themselves."""
        errands = self.transaction.errands
        ended = [new.id for old, new in changes if new.state in ENDED and old.state not in ENDED]
        followed = self.those("followed", ended)
        needing = self.those("needing", [old.id for old, new in changes if old.state is State.BLOCKED])
        for old, new in changes:
            if new.id in followed:
                errands.append(Errand(What.ENDED, new.id, new.state))
            if new.id in needing and new.state in ENDED:
                errands.append(Errand(What.LEFT, new.id))
            elif old.state is new.state is State.BLOCKED and old.urgency != new.urgency:
                errands.append(Errand(What.WEIGHED, new.id))
        if gone:
            errands.append(Errand(What.FORGET, to_json(gone)))

    def those(self, statement: str, ids: list[str]) -> set[str]:
        return set(texts_decoder.decode(self.transaction.value(statement, to_json(ids)))) if ids else set()

    def leave(self, leaving: dict[Place, list[TaskRecord]]) -> None:
        write = self.transaction.write
        if leaving[Place.TASKS]:
            write("delete_tasks", to_json([record.id for record in leaving[Place.TASKS]]))
        if leaving[Place.DEAD]:
            write("delete_dead", to_json([record.id for record in leaving[Place.DEAD]]))
        if leaving[Place.FINISHED]:
            days = [(day_of(record.finished_at or 0), record.id) for record in leaving[Place.FINISHED]]
            write("delete_finished", to_json(days))

    def come(self, coming: dict[Place, list[tuple[TaskRecord, int]]]) -> None:
        write = self.transaction.write
        if coming[Place.TASKS]:
            transaction = self.transaction
            transaction.save_tasks(
                [task_columns(*each, is_gated(transaction, each[0])) for each in coming[Place.TASKS]]
            )
        if coming[Place.DEAD]:
            write("save_dead", to_json([ended_columns(*each) for each in coming[Place.DEAD]]))
        if coming[Place.FINISHED]:
            write("save_finished", to_json([ended_columns(*each) for each in coming[Place.FINISHED]]))
            self.widen_days([record for record, _ in coming[Place.FINISHED]])

    def widen_days(self, finished: list[TaskRecord]) -> None:
        days: dict[int, list[str]] = {}
        for record in finished:
            days.setdefault(day_of(record.finished_at or 0), []).append(record.id)
        for day, ids in days.items():
            self.transaction.write("save_day", day, min(ids), max(ids))

    def write_histories(self, gone: list[str]) -> None:
        if self.entries:
            self.transaction.write("add_history", to_json(self.entries))
            tasks = list(dict.fromkeys(task_id for task_id, _ in self.entries))
            self.transaction.write("trim_history", to_json(tasks), HISTORY_LIMIT)
            self.entries.clear()
        if gone:
            self.transaction.write("delete_history", to_json(gone))


def is_gated(transaction: Transaction, record: TaskRecord) -> bool:
    """Where partitions are limited, tasks come in behind the gate; `gating` then lets the best ones out."""
    waits = record.state is State.PENDING and record.partition is not None
    return waits and transaction.settings(record.queue).per_partition is not None


def must_leave(old: TaskRecord, new: TaskRecord) -> bool:
    """Whether the stored row would be left behind when the new one is written."""
    return place_of(old.state) is not place_of(new.state)
