"""What the transactions of all stores have in common: tasks in tracks, their counts, and how changes are written.

A task is in one of three tables, and in a track: the tasks of one kind, lane and epoch. A transaction remembers the
track of each task that it has loaded, so `save` knows where a task stays unless it was ranked again.

It remembers its version too. A task is as it was loaded if its lease number, state and version are: every change has
another lease number or state, or is followed by the next version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter as Totals
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import HISTORY_LIMIT, TaskRecord
from dibs.core.times import Instant, day_of
from dibs.engines.catalog import Catalog
from dibs.engines.decisions.admin import PurgeRow
from dibs.engines.decisions.blocks import Pair, block_of, created_trait, is_skewed, slot_of, traits_between, wide
from dibs.engines.decisions.counting import MOST_ERRORS, counted_events, error_type, error_what, type_counted
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.events import is_wanted, task_events
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Changes, Place, place_of
from dibs.engines.decisions.steps import Step
from dibs.engines.decisions.transaction import Queue, topics_of
from dibs.engines.figures import OTHER_ERRORS, Counter
from dibs.engines.port import Found, Read, Row
from dibs.engines.topics import EVENTS, room_topic
from dibs.engines.unreadable import UnreadableRows, unreadable_queue
from dibs.observe.events import EventType

__all__ = ["StoreSnapshot", "StoreTransaction", "TaskMoved"]

STATES = frozenset(State)
Counted = tuple[str, State, int, str, int]
"""A task's id, state, track, share, and the day of its end: where it is counted."""
SAME_VIRTUAL_TIME = -1
"""For a share whose virtual time stays while its pending tasks change."""
ERROR_COUNTS = Read("error_counts", str, "count of errors")
"""Takes a queue: which errors are counted there."""
PURGE_ROW = Read("purge_row", PurgeRow, "task")
"""Takes ids of tasks that can't be read: what their columns tell."""


class TaskMoved(Exception):
    """A task is not as this transaction has loaded it. Nothing is written; the verb runs again on what is stored."""


AnyCatalog = TypeVar("AnyCatalog", bound=Catalog)


class StoreSnapshot(ABC, Generic[AnyCatalog]):
    """One snapshot of a store."""

    now: Instant
    catalog: AnyCatalog

    @property
    def aside(self) -> UnreadableRows:
        """What this process can't read."""
        return self.catalog.aside

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self.catalog.queues

    @property
    def unreadable_queues(self) -> Mapping[str, str]:
        """Queues whose settings can't be read, and what is wrong with them."""
        return self.catalog.unreadable

    @property
    def tracks(self) -> Mapping[int, Track]:
        return self.catalog.tracks

    locked: Collection[str] = ()
    """Tasks that another transaction has locked, as far as a claim has met them."""

    @property
    def passed_over(self) -> list[str]:
        """The tasks that are set aside, or locked by others."""
        return [*self.aside.tasks, *self.locked]

    def settings(self, queue: str) -> QueueSettings:
        """A queue that does not exist has the default ones."""
        return self.catalog.settings(queue)

    def settings_if_exists(self, queue: str) -> QueueSettings | None:
        found = self.queues.get(queue)
        return None if found is None else found.settings

    @abstractmethod
    async def fetch(self, read: Read[Row], *parameters: Any) -> Found[Row]: ...

    async def read(self, read: Read[Row], *parameters: Any) -> list[Row]:
        return (await self.fetch(read, *parameters)).rows


NO_QUEUE = QueueSettings()


class StoreTransaction(StoreSnapshot[AnyCatalog]):
    """One transaction of a store."""

    def __init__(self) -> None:
        self.loaded: dict[str, int] = {}
        """By task, the track that it is in."""
        self.versions: dict[str, int] = {}
        """By task, the version that was loaded, or written since."""
        self.steps: deque[Step] = deque()
        self.stuck: list[Step] = []
        self.partitions: dict[str, dict[Partition, None]] = {}
        self.topics: set[str] = set()
        self.shares: dict[tuple[str, str], int] = {}
        """By queue and share, how many more pending tasks it has."""
        self.virtual_times: dict[tuple[str, str], int] = {}
        self.new_turns: dict[tuple[int, str], None] = {}
        self.events: list[tuple[object, ...]] = []
        self.new_errors: dict[str, set[str]] = {}
        """By queue, the types of errors that are counted, with those that this transaction adds."""
        self.new_blocks: dict[Pair, None] = {}
        """Pairs of the index of id blocks to be written."""
        self.added_blocks: Sequence[Pair] = ()
        """Those that were written: known to be stored after the commit."""

    # What a store brings.

    @abstractmethod
    def make_queues(self, names: Collection[str]) -> None:
        """Create those of some queues that do not exist."""

    @abstractmethod
    async def write(self, name: str, *parameters: Any) -> int: ...

    @abstractmethod
    def count(self, what: State | Counter, track: int, change: int, day: int = 0) -> None:
        """Count tasks of a track by state, finished ones also by the day of their end, and what happened to them."""

    @abstractmethod
    def count_event(self, what: str, queue: str, change: int = 1) -> None:
        """Count what happened in a queue."""

    @abstractmethod
    def all_tracks(self, queue: str) -> Sequence[Track]: ...

    @abstractmethod
    async def write_counts(self) -> None:
        """Write the counts of tasks and events that have changed."""

    @abstractmethod
    def place(self, records: Sequence[TaskRecord]) -> None:
        """Find the tracks that ranked tasks belong to, and put them into `loaded`."""

    @abstractmethod
    def knows(self, track: int) -> bool:
        """Whether a track exists."""

    @abstractmethod
    async def insert_tasks(self, records: Sequence[TaskRecord]) -> int:
        """Store unfinished tasks; how many that were in no place."""

    @abstractmethod
    async def update_tasks(self, moves: Sequence[tuple[TaskRecord, TaskRecord]]) -> int:
        """Write unfinished tasks, old and new, that are as they were loaded; how many."""

    @abstractmethod
    async def insert_ended(self, place: Place, records: Sequence[TaskRecord]) -> None:
        """Store ended tasks."""

    # Queues.

    def check_queue(self, name: str) -> None:
        """Raise if nothing may be written about a queue, because its settings can't be read."""
        if name in self.unreadable_queues:
            raise unreadable_queue(name, self.unreadable_queues[name])

    def make_queue(self, name: str) -> Queue:
        """The queue of this name, created if it does not exist."""
        if name not in self.queues:
            self.check_queue(name)
            self.make_queues([name])
        return self.queues[name]

    def mark_changed(self, partition: Partition) -> None:
        """Note a partition in which a pending task has come or gone, or a slot is free again: its heads may change."""
        if self.settings(partition.queue).per_partition is not None:
            self.partitions.setdefault(partition.queue, {})[partition] = None

    async def guard(self, partitions: Sequence[str]) -> None:
        """Nothing needs to be written where transactions come one after the other."""

    def tell(self, queue: str, state: State) -> None:
        """Note the topics of a task that has come to `state`."""
        self.topics.update(topics_of(queue, state, self.settings(queue)))

    # Counts and turns.

    def count_pending(self, number: int, share: str, change: int) -> None:
        """Count pending tasks of one share of a track. In a fair track, a share with new tasks gets a turn."""
        self.count(State.PENDING, number, change)
        track = self.tracks[number]
        if change < 0 and self.settings(track.queue).max_depth is not None:
            self.topics.add(room_topic(track.queue))
        if track.fair:
            self.count_share(track.queue, share, change)
            if change > 0:
                self.new_turns[number, share] = None

    def count_share(self, queue: str, share: str, change: int) -> None:
        self.shares[queue, share] = self.shares.get((queue, share), 0) + change

    def give_turn(self, track: int, share: str) -> None:
        if self.tracks[track].fair:
            self.new_turns[track, share] = None

    async def serve(self, queue: str, clock: int, served: Mapping[str, int]) -> None:
        self.virtual_times.update(((queue, share), virtual_time) for share, virtual_time in served.items())
        fair = [track.number for track in self.all_tracks(queue) if track.fair]
        await self.write("save_clock", queue, clock)
        if fair:  # otherwise all of its tasks were ranked before it was fair
            await self.write("save_turns", [(track, *each) for each in served.items() for track in fair])

    async def flush(self) -> None:
        """Write the counts that have changed, new turns, new pairs of the index of id blocks, and events."""
        await self.write_counts()
        if self.new_blocks:
            await self.write_blocks()
        if self.events:
            events, self.events = self.events, []
            await self.write("add_events", events)
            self.topics.add(EVENTS)
        if self.shares or self.virtual_times:
            changed = {key: change for key, change in self.shares.items() if change}
            keys = {**changed, **self.virtual_times}
            rows = [(*key, self.virtual_times.get(key, SAME_VIRTUAL_TIME), changed.get(key, 0)) for key in keys]
            if rows:
                await self.write("save_shares", rows)
            self.shares.clear()
            self.virtual_times.clear()
        if self.new_turns:
            await self.write("add_turns", [(*each, self.tracks[each[0]].queue) for each in self.new_turns])
            self.new_turns.clear()

    # Events.

    def emit(self, event: EventType, *, queue: str | None = None, worker: str | None = None, **details: object) -> None:
        if is_wanted(self.catalog.watches, event, queue, self.now):
            self.events.append((self.now, event, None, queue, None, worker, None, to_json(details)))

    def emit_moves(self, changes: Changes) -> None:
        """The events of tasks that are changed one by one."""
        pairs = [*changes.moves, *((None, new) for new in changes.new), *((old, None) for old in changes.gone)]
        for old, new in pairs:
            task = new or old
            assert task is not None
            for each in task_events(old, new, self.settings(task.queue), self.now):
                if is_wanted(self.catalog.watches, each.type, task.queue, self.now):
                    row = (self.now, each.type, self.loaded[task.id], None, task.id, each.worker, each.took)
                    self.events.append((*row, to_json(each.details)))

    # The index of id blocks.

    def note_blocks(self, traits: Sequence[str], blocks: Iterable[int]) -> None:
        """Store that these traits have tasks in these blocks, unless that is known to be stored."""
        known, now = self.catalog.known_blocks, self.now
        for block in blocks:
            for pair in known.lacking(traits, block, now):
                self.new_blocks[pair] = None

    def note_records(self, changes: Changes) -> None:
        for old, new in (*changes.moves, *((None, each) for each in changes.new)):
            if traits := traits_between(old, new):
                self.note_blocks(traits, [block_of(new.id)])
            if old is None:
                self.note_creation([block_of(new.id)], new.created_at)

    def note_creation(self, blocks: Collection[int], created_at: Instant) -> None:
        """Store where tasks are whose ids are of another time than their creation."""
        if skewed := [block for block in blocks if is_skewed(block, created_at)]:
            self.note_blocks([created_trait(slot_of(created_at))], wide(skewed))

    async def write_blocks(self) -> None:
        pairs = [*self.new_blocks]
        await self.write("add_blocks", pairs)
        self.added_blocks = [*self.added_blocks, *pairs]
        self.new_blocks.clear()

    # Tasks.

    async def save(self, changes: Changes) -> None:
        self.note_records(changes)
        before = {self.counted_as(record): record for record in changes.before}
        if ranked := [record for record in changes.after if record.id in changes.ranked]:
            self.place(ranked)
        after = {self.counted_as(record): record for record in changes.after}
        for counted, record in before.items():
            self.count_task(record, counted, 0 if counted in after else -1)
        for counted, record in after.items():
            self.count_task(record, counted, 0 if counted in before else +1)
        await self.count_events(changes)
        if changes.before:
            await self.delete(changes)
            if staying := changes.staying:
                expect(len(staying), await self.update_tasks(staying))
        if coming := changes.coming(Place.TASKS):
            expect(len(coming), await self.insert_tasks(coming))
        for place in (Place.DEAD, Place.FINISHED):
            if ended := changes.coming(place):
                await self.insert_ended(place, ended)
        self.versions.update((record.id, self.next_version(record)) for record in changes.after)
        await self.write_histories(changes)
        if self.catalog.watches:
            self.emit_moves(changes)

    async def count_events(self, changes: Changes) -> None:
        """Count what has happened to these tasks."""
        errors: Totals[tuple[str, str]] = Totals()
        for old, new in (*changes.moves, *((None, new) for new in changes.new)):
            for what in counted_events(old, new, self.settings(new.queue)):
                self.count_event_of(what, new.id)
            if old is not None and (kind := error_type(old, new)) is not None:
                errors[new.queue, kind] += 1
        for (queue, kind), n in errors.items():
            self.count_event(error_what(await self.kept_error(queue, kind)), queue, n)

    def count_event_of(self, what: Counter, task_id: str) -> None:
        self.count(what, self.loaded[task_id], 1)

    async def kept_error(self, queue: str, kind: str) -> str:
        """The type under which an error is counted: its own, if that is one of the first of its queue."""
        known: Collection[str] = self.catalog.error_types.get(queue, ())
        if kind not in known and len(known) < MOST_ERRORS:
            if queue not in self.new_errors:
                stored = [type_counted(what) or "" for what in await self.read(ERROR_COUNTS, queue)]
                self.new_errors[queue] = {*stored} - {OTHER_ERRORS}
                self.catalog.error_types[queue] = frozenset(self.new_errors[queue])
            known = self.new_errors[queue]
            if len(known) < MOST_ERRORS:
                known.add(kind)
        return kind if kind in known else OTHER_ERRORS

    def fence(self, old: TaskRecord) -> tuple[object, ...]:
        """What is compared in the statement that writes: how a task was loaded."""
        return old.lease, old.state, self.versions[old.id]

    def next_version(self, record: TaskRecord) -> int:
        """The version that a task is written with; a new one begins with 0."""
        return self.versions.get(record.id, -1) + 1

    def counted_as(self, record: TaskRecord) -> Counted:
        day = day_of(record.finished_at or 0) if place_of(record.state) is Place.FINISHED else 0
        return record.id, record.state, self.loaded[record.id], record.share, day

    def count_task(self, record: TaskRecord, counted: Counted, change: int) -> None:
        """A task that is counted as before changes no row of counts: others may wait for those."""
        _, state, track, share, day = counted
        if change and state is State.PENDING:
            self.count_pending(track, share, change)
        elif change:
            self.count(state, track, change, day)
        if record.spec.partition is not None and state in (State.PENDING, State.RUNNING):
            self.mark_changed(Partition(record.queue, record.spec.partition))

    async def delete(self, changes: Changes) -> None:
        """Delete rows that would be left behind, each only if it is as it was loaded."""
        await self.write_all("delete_tasks", changes.leaving(Place.TASKS))
        await self.write_all("delete_dead", changes.leaving(Place.DEAD))
        await self.write_all("delete_finished", changes.leaving(Place.FINISHED))

    async def write_all(self, name: str, tasks: Sequence[TaskRecord]) -> None:
        """Write about tasks that are as they were loaded."""
        if rows := [(*primary_key(old), *self.fence(old)) for old in tasks]:
            expect(len(rows), await self.write(name, rows))

    async def write_histories(self, changes: Changes) -> None:
        if changes.entries:
            await self.write("add_history", changes.entries)
            tasks = list(dict.fromkeys(task_id for task_id, _ in changes.entries))
            await self.write("trim_history", tasks, HISTORY_LIMIT)
        if changes.gone:
            await self.write("delete_history", [old.id for old in changes.gone])

    # Tasks that can't be read.

    async def purge(self, ids: Sequence[str]) -> set[str]:
        """Delete rows that can't be read, unless a process that can may be running them. Counts follow where known."""
        found = [row for row in await self.read(PURGE_ROW, list(ids)) if row.may_go(self.now)]
        for row in found:
            await self.purge_one(row)
        return {row.id for row in found}

    async def purge_one(self, row: PurgeRow) -> None:
        if row.place is Place.FINISHED:
            await self.write("purge_finished", [(row.day, row.id)])
        else:
            await self.write("purge_dead" if row.place is Place.DEAD else "purge_tasks", [row.id])
        await self.write("delete_history", [row.id])
        await self.write("purge_keys_of", row.id)
        if isinstance(row.track, int) and self.knows(row.track):
            self.count_purged(row, row.track)
        self.steps.extend(row.follow_ups())
        self.aside.forget([row.id])

    def count_purged(self, row: PurgeRow, track: int) -> None:
        if row.state == State.PENDING:
            self.count_pending(track, row.share, -1)
        elif isinstance(row.state, str) and row.state in STATES:
            self.count(State(row.state), track, -1, row.day if row.place is Place.FINISHED else 0)
        if isinstance(row.partition, str):
            self.mark_changed(Partition.parse(row.partition))


def primary_key(record: TaskRecord) -> tuple[object, ...]:
    """Finished tasks are stored by day."""
    is_finished = place_of(record.state) is Place.FINISHED
    return (day_of(record.finished_at or 0), record.id) if is_finished else (record.id,)


def expect(wanted: int, written: int) -> None:
    if written != wanted:
        raise TaskMoved
