"""Tasks changed one by one: loaded, decided upon by `dibs.core.moves`, and written back together.

What a batch has already changed is seen by its later items; everything reaches the store in `flush`, with a fixed
number of statements however large the batch is.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from dibs.core.states import State
from dibs.core.task import HISTORY_LIMIT, HistoryEntry, TaskRecord
from dibs.core.times import day_of
from dibs.engines.sqlite.rows import ended_columns, task_columns, to_json
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["Place", "Records", "place_of"]


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
        for task_id, row in self.transaction.find(wanted).items():
            record = self.transaction.record(row)
            self.stored[task_id] = (record, row.stream)
            self.current[task_id] = record

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

    def flush(self) -> None:
        """Write what has changed."""
        leaving: dict[Place, list[TaskRecord]] = {place: [] for place in Place}
        coming: dict[Place, list[tuple[TaskRecord, int]]] = {place: [] for place in Place}
        gone = []
        for task_id in self.touched:
            old = self.stored.get(task_id)
            new = self.current.get(task_id)
            if new is None:
                gone.append(task_id)
            if old is not None and (new is None or must_leave(old[0], new)):
                leaving[place_of(old[0].state)].append(old[0])
            if old is not None:
                self.transaction.count(old[0].state, old[1], -1)
            if new is not None:
                stream = self.transaction.stream_of(new)
                self.transaction.count(new.state, stream, +1)
                coming[place_of(new.state)].append((new, stream))
        self.leave(leaving)
        self.come(coming)
        self.write_histories(gone)
        self.touched.clear()

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
            write("save_tasks", to_json([task_columns(*each) for each in coming[Place.TASKS]]))
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


def must_leave(old: TaskRecord, new: TaskRecord) -> bool:
    """Whether the stored row would be left behind when the new one is written."""
    return place_of(old.state) is not place_of(new.state)
