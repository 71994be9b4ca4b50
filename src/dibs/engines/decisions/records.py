"""Tasks changed one by one: what one transaction knows of them, and what it must write."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from dibs.core.moves import promoted
from dibs.core.states import ENDED, WAITING, State
from dibs.core.task import HistoryEntry, TaskRecord
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.steps import Step, StepKind
from dibs.engines.values import UnreadableTask


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
    """What is to be written about tasks, each as it was when it was loaded, and as it is to be."""

    moves: list[tuple[TaskRecord, TaskRecord]]
    """Tasks as they were, and as they are."""
    new: list[TaskRecord]
    gone: list[TaskRecord]
    ranked: set[str]
    """Tasks that were ranked, and go where their rank belongs; all others stay where they are."""
    entries: list[tuple[str, HistoryEntry]]
    """What is added to histories."""

    @property
    def before(self) -> list[TaskRecord]:
        return [*(old for old, _ in self.moves), *self.gone]

    @property
    def after(self) -> list[TaskRecord]:
        return [*(new for _, new in self.moves), *self.new]

    def leaving(self, place: Place) -> list[TaskRecord]:
        """Rows that would be left behind in a place."""
        moved = [old for old, new in self.moves if place_of(new.state) is not place_of(old.state)]
        return [old for old in (*moved, *self.gone) if place_of(old.state) is place]

    def coming(self, place: Place) -> list[TaskRecord]:
        """Tasks that are new to a place."""
        moved = [new for old, new in self.moves if place_of(new.state) is not place_of(old.state)]
        return [new for new in (*moved, *self.new) if place_of(new.state) is place]

    @property
    def staying(self) -> list[tuple[TaskRecord, TaskRecord]]:
        """Unfinished tasks that stay so, as they were and as they are."""
        return [(old, new) for old, new in self.moves if place_of(new.state) is place_of(old.state)]

    @property
    def ended(self) -> list[str]:
        return [new.id for old, new in self.moves if new.state in ENDED and old.state not in ENDED]

    @property
    def were_blocked(self) -> list[str]:
        return [old.id for old, _ in self.moves if old.state is State.BLOCKED]

    def follow_ups(self, followed: set[str], needing: set[str]) -> list[Step]:
        """The follow-ups, given the tasks `followed` by others and those `needing` others (with open edges)."""
        found = []
        for old, new in self.moves:
            if new.id in followed:
                found.append(Step(StepKind.RELEASE_DEPENDENTS, new.id, new.state))
            if new.id in needing and new.state in ENDED:
                found.append(Step(StepKind.CLOSE_EDGES, new.id))
            elif old.state is new.state is State.BLOCKED and old.urgency != new.urgency:
                found.append(Step(StepKind.INHERIT_URGENCY, new.id))
        if self.gone:
            found.append(Step(StepKind.DELETE_EDGES, to_json([old.id for old in self.gone])))
        return found


class Ledger:
    """The tasks that one transaction works on, as stored and as changed.

    Later items of a batch see the changes of earlier ones.
    """

    def __init__(self) -> None:
        self.stored: dict[str, TaskRecord] = {}
        self.current: dict[str, TaskRecord] = {}
        self.touched: dict[str, None] = {}
        self.entries: list[tuple[str, HistoryEntry]] = []
        self.unreadable: dict[str, UnreadableTask] = {}
        """Tasks that exist but can't be read."""
        self.unranked: set[str] = set()
        """Waiting tasks that have changed but keep their rank."""

    def adopt(self, found: Iterable[TaskRecord | UnreadableTask]) -> list[TaskRecord]:
        """Know tasks as they are stored; those of them that can be read."""
        records = []
        for record in found:
            if isinstance(record, UnreadableTask):
                self.unreadable[record.id] = record
            else:
                self.stored[record.id] = self.current[record.id] = record
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

    def take_changes(self) -> Changes:
        """What has changed since the last time."""
        changes = Changes([], [], [], set(), self.entries)
        for task_id in self.touched:
            old, new = self.stored.pop(task_id, None), self.current.get(task_id)
            if new is not None:
                self.stored[task_id] = new
                is_ranked = new.state in WAITING and task_id not in self.unranked
                if old is None or is_ranked or new.queue != old.queue:
                    changes.ranked.add(task_id)
            if old is not None and new is not None:
                changes.moves.append((old, new))
            elif new is not None:
                changes.new.append(new)
            elif old is not None:
                changes.gone.append(old)
        self.entries = []
        self.touched.clear()
        self.unranked.clear()
        return changes
