"""Tasks changed one by one: locked in order of id, decided upon by `dibs.core.moves`, and written back together.

What a batch has already changed is seen by its later items; everything reaches the store in `flush`, with a fixed
number of statements however large the batch is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from dibs.core.moves import promoted
from dibs.core.states import ENDED, WAITING, State
from dibs.core.task import HISTORY_LIMIT, HistoryEntry, TaskRecord
from dibs.core.times import day_of
from dibs.engines.postgres.catalog import Stale
from dibs.engines.postgres.rows import (
    Row,
    columns,
    encode,
    ended_columns,
    partition_key,
    real_ids,
    task_columns,
    to_json,
)
from dibs.engines.postgres.transaction import Errand, Transaction, What

__all__ = ["Place", "Records", "gate_of", "place_of"]

TASK_WIDTH = 23
ENDED_WIDTH = 18


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

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.stored: dict[str, tuple[TaskRecord, int]] = {}
        self.current: dict[str, TaskRecord] = {}
        self.touched: dict[str, None] = {}
        self.entries: list[tuple[str, bytes]] = []
        self.unranked: set[str] = set()
        """Waiting tasks that have changed, but not their rank."""

    async def load(self, ids: Iterable[str]) -> None:
        """Lock tasks, and know them. They are looked for where they are now, not where they were at the beginning."""
        wanted = sorted(real_ids(set(ids)))
        if not wanted:
            return
        self.see(await self.transaction.rows("lock", wanted))
        missed = [task_id for task_id in wanted if task_id not in self.stored]
        if missed and await self.transaction.find(missed):  # it went from one place to another meanwhile
            raise Stale

    def get(self, task_id: str) -> TaskRecord | None:
        return self.current.get(task_id)

    def put(self, record: TaskRecord, entry: HistoryEntry | None = None) -> None:
        """Make a record the current one."""
        self.current[record.id] = record
        self.touched[record.id] = None
        if entry is not None:
            self.note(record.id, entry)

    def promote(self, record: TaskRecord) -> None:
        """A task whose time has come. It was ranked for this moment, perhaps by earlier settings, and stays so."""
        self.put(promoted(record))
        self.unranked.add(record.id)

    def note(self, task_id: str, entry: HistoryEntry) -> None:
        """Add to a task's history."""
        self.entries.append((task_id, encode(entry)))

    def remove(self, task_id: str) -> None:
        """Forget a task and its history."""
        del self.current[task_id]
        self.touched[task_id] = None

    def see(self, rows: Sequence[Row]) -> list[TaskRecord]:
        """The records of rows that have been read, and locked, already."""
        records = []
        for row in rows:
            record = self.transaction.record(row)
            self.stored[record.id] = (record, row["stream"])
            self.current[record.id] = record
            records.append(record)
        return records

    async def flush(self) -> None:
        """Write what has changed, and note what has to be followed up."""
        leaving: dict[Place, list[TaskRecord]] = {place: [] for place in Place}
        coming: dict[Place, list[tuple[TaskRecord, int]]] = {place: [] for place in Place}
        changes: list[tuple[TaskRecord, TaskRecord]] = []
        gone = []
        numbers = self.streams_for()
        for task_id in self.touched:
            old = self.stored.pop(task_id, None)
            new = self.current.get(task_id)
            if new is None:
                gone.append(task_id)
            if old is not None:
                self.count(*old, -1)
                if new is None or place_of(old[0].state) is not place_of(new.state):
                    leaving[place_of(old[0].state)].append(old[0])
            if new is not None:
                stream = numbers[task_id]
                self.count(new, stream, +1)
                coming[place_of(new.state)].append((new, stream))
                self.stored[task_id] = (new, stream)
                if old is not None:
                    changes.append((old[0], new))
        await self.leave(leaving)
        await self.come(coming)
        await self.write_histories(gone)
        await self.follow_up(changes, gone)
        self.touched.clear()
        self.unranked.clear()

    def streams_for(self) -> dict[str, int]:
        """Where each changed task belongs. It stays where it was ranked until it is ranked again."""
        found: dict[str, int] = {}
        moving = []
        for task_id in self.touched:
            old, new = self.stored.get(task_id), self.current.get(task_id)
            if new is None:
                continue
            is_ranked = new.state in WAITING and task_id not in self.unranked
            if old is not None and not is_ranked and new.queue == old[0].queue:
                found[task_id] = old[1]
            else:
                moving.append(new)
        if moving:
            numbers = self.transaction.streams_of(moving)
            found.update((record.id, numbers[self.transaction.key_of(record)]) for record in moving)
        return found

    def count(self, record: TaskRecord, stream: int, change: int) -> None:
        if record.state is State.PENDING:
            self.transaction.count_pending(stream, record.share, change)
        else:
            day = day_of(record.finished_at or 0) if place_of(record.state) is Place.FINISHED else 0
            self.transaction.count(record.state, stream, change, day)
        if record.partition is not None and record.state in (State.PENDING, State.RUNNING):
            self.transaction.touch(record.queue, partition_key(record.queue, record.partition))

    async def follow_up(self, changes: list[tuple[TaskRecord, TaskRecord]], gone: list[str]) -> None:
        """Errands for those that others wait for, and for what they wait for themselves."""
        errands = self.transaction.errands
        ended = [new.id for old, new in changes if new.state in ENDED and old.state not in ENDED]
        followed = await self.those("followed", ended)
        needing = await self.those("needing", [old.id for old, new in changes if old.state is State.BLOCKED])
        for old, new in changes:
            if new.id in followed:
                errands.append(Errand(What.ENDED, new.id, new.state))
            if new.id in needing and new.state in ENDED:
                errands.append(Errand(What.LEFT, new.id))
            elif old.state is new.state is State.BLOCKED and old.urgency != new.urgency:
                errands.append(Errand(What.WEIGHED, new.id))
        if gone:
            errands.append(Errand(What.FORGET, to_json(gone)))

    async def those(self, name: str, ids: list[str]) -> set[str]:
        return {str(row[0]) for row in await self.transaction.rows(name, ids)} if ids else set()

    async def leave(self, leaving: dict[Place, list[TaskRecord]]) -> None:
        for place, records in leaving.items():
            if records and place is Place.FINISHED:
                days = [(day_of(record.finished_at or 0), record.id) for record in records]
                await self.transaction.write("delete_finished", *columns(days, 2))
            elif records:
                await self.transaction.write(f"delete_{place}", [record.id for record in records])

    async def come(self, coming: dict[Place, list[tuple[TaskRecord, int]]]) -> None:
        if coming[Place.TASKS]:
            rows = [
                task_columns(record, stream, gate_of(self.transaction, record, stream))
                for record, stream in coming[Place.TASKS]
            ]
            await self.transaction.write("save_tasks", *columns(rows, TASK_WIDTH))
        for place in (Place.DEAD, Place.FINISHED):
            if coming[place]:
                ended = [ended_columns(*each) for each in coming[place]]
                await self.transaction.write(f"save_{place}", *columns(ended, ENDED_WIDTH))

    async def write_histories(self, gone: list[str]) -> None:
        if self.entries:
            await self.transaction.write("add_history", *columns(self.entries, 2))
            tasks = list(dict.fromkeys(task_id for task_id, _ in self.entries))
            await self.transaction.write("trim_history", tasks, HISTORY_LIMIT)
            self.entries.clear()
        if gone:
            await self.transaction.write("delete_history", gone)


def gate_of(transaction: Transaction, record: TaskRecord, stream: int) -> int:
    """Where partitions are limited, pending tasks come in behind the gate; `gating` then lets the best ones out."""
    if record.partition is not None and transaction.settings(record.queue).per_partition is not None:
        return 2 if record.state is State.PENDING else 1
    return 1 if transaction.catalog.stream(stream).fair else 0
