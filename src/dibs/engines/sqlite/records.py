"""Tasks changed one by one: loaded, decided by `dibs.core.moves`, and written back together.

Later items of a batch see the changes of earlier ones; `flush` writes everything with a fixed number of statements,
however large the batch is.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dibs.core.states import State
from dibs.core.task import HISTORY_LIMIT, TaskRecord
from dibs.core.times import day_of
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Changes, Ledger, Place
from dibs.engines.sqlite.rows import Row, ended_columns, task_columns
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import UnreadableTask

__all__ = ["Records"]

texts_decoder = msgspec.json.Decoder(list[str])


class Records(Ledger):
    """The ledger of a transaction, with reading and writing."""

    def __init__(self, transaction: Transaction, ids: Iterable[str] = ()) -> None:
        super().__init__()
        self.transaction = transaction
        self.load(ids)

    def load(self, ids: Iterable[str]) -> None:
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return
        self.adopt(self.transaction.find(wanted).values())

    def adopt(self, rows: Iterable[Row | UnreadableTask]) -> list[TaskRecord]:
        """Add rows that were read already; returns the records of those that can be decoded."""
        read = self.transaction.read
        return self.know_all((read(row), 0 if isinstance(row, UnreadableTask) else row.track) for row in rows)

    def flush(self) -> None:
        """Write what has changed, and gather the follow-ups."""
        tracks, moving = self.tracks()
        tracks.update((record.id, self.transaction.track_of(record)) for record in moving)
        changes = self.take_changes(tracks)
        for counted in changes.counts:
            self.count(*counted)
        self.delete(changes.leaving)
        self.stay(changes.staying)
        self.insert(changes.coming)
        self.write_histories(changes.gone)
        self.follow_up(changes)

    def count(self, record: TaskRecord, track: int, change: int) -> None:
        if record.state is State.PENDING:
            self.transaction.count_pending(track, record.share, change)
        else:
            self.transaction.count(record.state, track, change)
        if record.spec.partition is not None and record.state in (State.PENDING, State.RUNNING):
            self.transaction.mark_changed(Partition(record.queue, record.spec.partition))

    def follow_up(self, changes: Changes) -> None:
        """Follow-ups for changed tasks that others wait for, and for those that wait themselves."""
        followed, needing = self.ids_where("followed", changes.ended), self.ids_where("needing", changes.were_blocked)
        self.transaction.follow_ups.extend(changes.follow_ups(followed, needing))

    def ids_where(self, statement: str, ids: list[str]) -> set[str]:
        return set(texts_decoder.decode(self.transaction.value(statement, to_json(ids)))) if ids else set()

    def delete(self, leaving: dict[Place, list[TaskRecord]]) -> None:
        delete = self.transaction.delete_each
        delete("delete_tasks", [(old.id, old.lease, old.state) for old in leaving[Place.TASKS]])
        delete("delete_dead", [(old.id, old.lease) for old in leaving[Place.DEAD]])
        finished = leaving[Place.FINISHED]
        delete("delete_finished", [(day_of(old.finished_at or 0), old.id, old.lease) for old in finished])

    def stay(self, staying: list[tuple[TaskRecord, int, TaskRecord]]) -> None:
        rows = [(*self.columns(record, track), old.lease, old.state) for record, track, old in staying]
        self.transaction.write_each("save_task", rows)

    def columns(self, record: TaskRecord, track: int) -> tuple[object, ...]:
        return task_columns(record, track, is_gated(self.transaction, record))

    def insert(self, coming: dict[Place, list[tuple[TaskRecord, int]]]) -> None:
        write = self.transaction.write
        self.transaction.write_each("insert_task", [self.columns(*each) for each in coming[Place.TASKS]])
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
            rows = [(task_id, to_json(entry)) for task_id, entry in self.entries]
            self.transaction.write("add_history", to_json(rows))
            tasks = list(dict.fromkeys(task_id for task_id, _ in self.entries))
            self.transaction.write("trim_history", to_json(tasks), HISTORY_LIMIT)
            self.entries.clear()
        if gone:
            self.transaction.write("delete_history", to_json(gone))


def is_gated(transaction: Transaction, record: TaskRecord) -> bool:
    """Where partitions are limited, pending tasks start gated; `partitions` then ungates the best ones."""
    waits = record.state is State.PENDING and record.spec.partition is not None
    return waits and transaction.settings(record.queue).per_partition is not None
