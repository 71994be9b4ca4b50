"""Tasks changed one by one: what one transaction knows of them, and what it must write."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from dibs.core.moves import promoted
from dibs.core.states import ENDED, WAITING, State
from dibs.core.task import HistoryEntry, TaskRecord
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.follow_ups import FollowUp, FollowUpKind
from dibs.engines.values import UnreadableTask

__all__ = ["Changes", "Ledger", "Place", "place_of"]


class Place(StrEnum):
    """The three places where a task can be stored."""

    TASKS = "tasks"
    DEAD = "dead"
    FINISHED = "finished"


def place_of(state: State) -> Place:
    """Where a task in this state is stored."""
    if state is State.DEAD:
        return Place.DEAD
    return Place.FINISHED if state in (State.COMPLETED, State.CANCELLED) else Place.TASKS


class Changes(Struct):
    """What must be written."""

    leaving: dict[Place, list[TaskRecord]]
    """Tasks to delete from their place."""
    coming: dict[Place, list[tuple[TaskRecord, int]]]
    """Records to insert into a place, each with its track."""
    staying: list[tuple[TaskRecord, int, TaskRecord]]
    """Unfinished tasks that stay unfinished: the record, its track, and the task as stored."""
    counts: list[tuple[TaskRecord, int, int]]
    """Changes of counts: each task leaves (-1) or joins (1) a track."""
    moves: list[tuple[TaskRecord, TaskRecord]]
    """Tasks before and after."""
    gone: list[str]

    @property
    def ended(self) -> list[str]:
        return [new.id for old, new in self.moves if new.state in ENDED and old.state not in ENDED]

    @property
    def were_blocked(self) -> list[str]:
        return [old.id for old, _ in self.moves if old.state is State.BLOCKED]

    def follow_ups(self, followed: set[str], needing: set[str]) -> list[FollowUp]:
        """The follow-ups, given the tasks `followed` by others and those `needing` others (with open edges)."""
        found = []
        for old, new in self.moves:
            if new.id in followed:
                found.append(FollowUp(FollowUpKind.RELEASE_DEPENDENTS, new.id, new.state))
            if new.id in needing and new.state in ENDED:
                found.append(FollowUp(FollowUpKind.CLOSE_EDGES, new.id))
            elif old.state is new.state is State.BLOCKED and old.urgency != new.urgency:
                found.append(FollowUp(FollowUpKind.INHERIT_URGENCY, new.id))
        if self.gone:
            found.append(FollowUp(FollowUpKind.DELETE_EDGES, to_json(self.gone)))
        return found


class Ledger:
    """The tasks that one transaction works on, as stored and as changed.

    Later items of a batch see the changes of earlier ones.
    """

    def __init__(self) -> None:
        self.stored: dict[str, tuple[TaskRecord, int]] = {}
        self.current: dict[str, TaskRecord] = {}
        self.touched: dict[str, None] = {}
        self.entries: list[tuple[str, HistoryEntry]] = []
        self.unreadable: dict[str, UnreadableTask] = {}
        """Tasks that exist but can't be read."""
        self.unranked: set[str] = set()
        """Waiting tasks that have changed but keep their rank."""

    def know(self, record: TaskRecord, track: int) -> None:
        """Add a task as stored."""
        self.stored[record.id] = (record, track)
        self.current[record.id] = record

    def know_all(self, found: Iterable[tuple[TaskRecord | UnreadableTask, int]]) -> list[TaskRecord]:
        """Add stored tasks with their tracks; returns those that can be read."""
        records = []
        for record, track in found:
            if isinstance(record, UnreadableTask):
                self.unreadable[record.id] = record
            else:
                self.know(record, track)
                records.append(record)
        return records

    def get(self, task_id: str) -> TaskRecord | None:
        return self.current.get(task_id)

    def put(self, record: TaskRecord, entry: HistoryEntry | None = None) -> None:
        """Make a record the current one."""
        self.current[record.id] = record
        self.touched[record.id] = None
        if entry is not None:
            self.note(record.id, entry)

    def promote(self, record: TaskRecord) -> None:
        """Make a due task pending. Its rank was computed for this moment, perhaps by earlier settings, and stays."""
        self.put(promoted(record))
        self.unranked.add(record.id)

    def note(self, task_id: str, entry: HistoryEntry) -> None:
        """Add to a task's history."""
        self.entries.append((task_id, entry))

    def remove(self, task_id: str) -> None:
        """Delete a task and its history."""
        del self.current[task_id]
        self.touched[task_id] = None

    def tracks(self) -> tuple[dict[str, int], list[TaskRecord]]:
        """The tracks of changed tasks that keep theirs, and the tasks that were ranked again and need one."""
        staying: dict[str, int] = {}
        moving = []
        for task_id in self.touched:
            old, new = self.stored.get(task_id), self.current.get(task_id)
            if new is None:
                continue
            is_ranked = new.state in WAITING and task_id not in self.unranked
            if old is not None and not is_ranked and new.queue == old[0].queue:
                staying[task_id] = old[1]
            else:
                moving.append(new)
        return staying, moving

    def take_changes(self, tracks: dict[str, int]) -> Changes:
        """What has changed since the last call, given the track of each changed task; without `entries`."""
        changes = Changes({place: [] for place in Place}, {place: [] for place in Place}, [], [], [], [])
        for task_id in self.touched:
            old = self.stored.pop(task_id, None)
            new = self.current.get(task_id)
            place = None if new is None else place_of(new.state)
            if old is not None:
                changes.counts.append((*old, -1))
                was_at = place_of(old[0].state)
                if was_at is not place:
                    changes.leaving[was_at].append(old[0])
            if new is None or place is None:
                changes.gone.append(task_id)
                continue
            stored = self.stored[task_id] = (new, tracks[task_id])
            changes.counts.append((*stored, +1))
            if old is None or place_of(old[0].state) is not place:
                changes.coming[place].append(stored)
            else:
                changes.staying.append((*stored, old[0]))
            if old is not None:
                changes.moves.append((old[0], new))
        self.touched.clear()
        self.unranked.clear()
        return changes
