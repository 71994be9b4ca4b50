"""Tasks changed one by one: locked in order of id, decided by `dibs.core.moves`, and written back together.

Later items of a batch see the changes of earlier ones; `flush` writes everything with a fixed number of statements,
however large the batch is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dibs.core.states import State
from dibs.core.task import HISTORY_LIMIT, TaskRecord
from dibs.core.times import day_of
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Changes, Ledger, Place, place_of
from dibs.engines.postgres.catalog import Stale
from dibs.engines.postgres.rows import Row, columns, ended_columns, real_ids, task_columns
from dibs.engines.postgres.transaction import Transaction

__all__ = ["TASK_WIDTH", "Records", "gate_of"]

TASK_WIDTH = 23
ENDED_WIDTH = 18


class Records(Ledger):
    """The ledger of a transaction, with locking, reading and writing."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__()
        self.transaction = transaction

    async def load(self, ids: Iterable[str]) -> None:
        """Lock and read tasks, wherever they are once they are locked."""
        wanted = sorted(real_ids(set(ids)))
        if not wanted:
            return
        self.adopt(await self.transaction.rows("lock", wanted))
        missed = [task_id for task_id in wanted if task_id not in self.stored and task_id not in self.unreadable]
        if missed and await self.transaction.find(missed):  # one has moved to another table since
            raise Stale

    def adopt(self, rows: Sequence[Row]) -> list[TaskRecord]:
        """Add rows that were read and locked already; returns the records of those that can be decoded."""
        self.transaction.catalog.expect(row["track"] for row in rows)
        return self.know_all((self.transaction.read(row), row["track"]) for row in rows)

    async def flush(self) -> None:
        """Write what has changed, and gather the follow-ups."""
        tracks, moving = self.tracks()
        if moving:
            numbers = self.transaction.tracks_of(moving)
            tracks.update((record.id, numbers[self.transaction.key_of(record)]) for record in moving)
        changes = self.take_changes(tracks)
        for counted in changes.counts:
            self.count(*counted)
        await self.delete(changes.leaving)
        await self.stay(changes.staying)
        await self.insert(changes.coming)
        await self.write_histories(changes.gone)
        await self.follow_up(changes)

    def count(self, record: TaskRecord, track: int, change: int) -> None:
        if record.state is State.PENDING:
            self.transaction.count_pending(track, record.share, change)
        else:
            day = day_of(record.finished_at or 0) if place_of(record.state) is Place.FINISHED else 0
            self.transaction.count(record.state, track, change, day)
        if record.spec.partition is not None and record.state in (State.PENDING, State.RUNNING):
            self.transaction.mark_changed(Partition(record.queue, record.spec.partition))

    async def follow_up(self, changes: Changes) -> None:
        """Follow-ups for changed tasks that others wait for, and for those that wait themselves."""
        followed = await self.ids_where("followed", changes.ended)
        needing = await self.ids_where("needing", changes.were_blocked)
        self.transaction.follow_ups.extend(changes.follow_ups(followed, needing))

    async def ids_where(self, name: str, ids: list[str]) -> set[str]:
        return {str(row[0]) for row in await self.transaction.rows(name, ids)} if ids else set()

    async def delete(self, leaving: dict[Place, list[TaskRecord]]) -> None:
        await self.write_each("delete_tasks", [(old.id, old.lease, old.state) for old in leaving[Place.TASKS]])
        await self.write_each("delete_dead", [(old.id, old.lease) for old in leaving[Place.DEAD]])
        finished = [(day_of(old.finished_at or 0), old.id, old.lease) for old in leaving[Place.FINISHED]]
        await self.write_each("delete_finished", finished)

    async def stay(self, staying: list[tuple[TaskRecord, int, TaskRecord]]) -> None:
        rows = [(*self.columns(record, track), old.lease, old.state) for record, track, old in staying]
        await self.write_each("save_tasks", rows)

    async def write_each(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Write tasks that must be as they were loaded; `Stale` if one of them differs."""
        if rows and await self.transaction.write(name, *columns(rows, len(rows[0]))) != len(rows):
            raise Stale

    def columns(self, record: TaskRecord, track: int) -> tuple[object, ...]:
        return task_columns(record, track, gate_of(self.transaction, record, track))

    async def insert(self, coming: dict[Place, list[tuple[TaskRecord, int]]]) -> None:
        await self.write_each("insert_tasks", [(*self.columns(*each), False) for each in coming[Place.TASKS]])
        for place in (Place.DEAD, Place.FINISHED):
            if coming[place]:
                ended = [ended_columns(*each) for each in coming[place]]
                await self.transaction.write(f"save_{place}", *columns(ended, ENDED_WIDTH))

    async def write_histories(self, gone: list[str]) -> None:
        if self.entries:
            rows = [(task_id, encode(entry)) for task_id, entry in self.entries]
            await self.transaction.write("add_history", *columns(rows, 2))
            tasks = list(dict.fromkeys(task_id for task_id, _ in self.entries))
            await self.transaction.write("trim_history", tasks, HISTORY_LIMIT)
            self.entries.clear()
        if gone:
            await self.transaction.write("delete_history", gone)


def gate_of(transaction: Transaction, record: TaskRecord, track: int) -> int:
    """Where partitions are limited, pending tasks start gated; `partitions` then promotes the heads."""
    if record.spec.partition is not None and transaction.settings(record.queue).per_partition is not None:
        return 2 if record.state is State.PENDING else 1
    return 1 if transaction.catalog.track(track).fair else 0
