"""What the audit log says of a change: which tasks, and what was before and after, as plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

from dibs.core.schedules import ScheduleRecord, ScheduleState
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import Edit, TaskRecord
from dibs.engines.decisions.transaction import Queue

__all__ = [
    "Difference",
    "Fields",
    "asked_for",
    "changes_text",
    "edited_fields",
    "in_common",
    "queue_fields",
    "schedule_fields",
    "settings_changed",
    "status_changed",
    "target",
    "unlike",
]

Fields = dict[str, Any]

EDITED = ("priority", "due_at", "deadline", "expires_at", "metadata")
LONGEST_ARGUMENTS = 200
UNSAID = ("version", "declared")
"""Fields of a queue's settings that are none."""
"""Characters of a schedule's arguments that are kept."""


class Difference(Struct, frozen=True):
    """What an act has changed about one task."""

    id: str
    before: Fields = {}
    after: Fields = {}


def status_of(record: TaskRecord | None) -> Fields:
    if record is None:
        return {}
    status = {"state": record.state, "queue": record.queue}
    asked = record.state is State.RUNNING and record.cancel_reason is not None
    return {**status, "cancel_requested": True} if asked else status


def status_changed(task_id: str, before: TaskRecord | None, after: TaskRecord | None) -> Difference:
    """What a cancel, a replay or a purge has changed."""
    return Difference(task_id, status_of(before), status_of(after))


def edited_fields(task_id: str, before: TaskRecord | None, after: TaskRecord | None) -> Difference:
    """What an edit has changed."""
    return Difference(task_id, *unlike(editable(before), editable(after)))


def editable(record: TaskRecord | None) -> Fields:
    return {name: getattr(record if name == "due_at" else record and record.spec, name, None) for name in EDITED}


def asked_for(act: object) -> Fields:
    """What an act on all tasks that match makes of each of them, as far as that is the same for all."""
    if isinstance(act, Edit):
        return {name: value for name in EDITED if (value := getattr(act, name)) is not None}
    return {}


def unlike(before: Fields, after: Fields) -> tuple[Fields, Fields]:
    """The fields that differ, as they were and as they are."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}


def in_common(each: Sequence[Fields]) -> Fields:
    """The fields that are the same for all: of many tasks, the log has what can be said in one line."""
    first, *others = each
    return {name: value for name, value in first.items() if all((name, value) in other.items() for other in others)}


def target(ids: Sequence[str]) -> str:
    """How the audit log names some tasks."""
    return ids[0] if len(ids) == 1 else f"{len(ids)} tasks"


# Queues and schedules.


def settings_fields(settings: QueueSettings) -> Fields:
    names = [name for name in QueueSettings.__struct_fields__ if name not in UNSAID]
    return {name: to_builtins(getattr(settings, name)) for name in names}


def settings_changed(old: QueueSettings, new: QueueSettings) -> tuple[Fields, Fields]:
    return unlike(settings_fields(old), settings_fields(new))


def changes_text(old: QueueSettings, new: QueueSettings) -> str:
    """How the audit log describes a change of a queue's settings."""
    names = [name for name in QueueSettings.__struct_fields__ if name not in UNSAID]
    return ", ".join(f"{n}={getattr(new, n)}" for n in names if getattr(new, n) != getattr(old, n))


def queue_fields(queue: Queue) -> Fields:
    """A queue that is deleted: its state, and what was set."""
    _, own = settings_changed(QueueSettings(), queue.settings)
    return {"state": queue.state, **own}


def schedule_fields(record: ScheduleRecord | None) -> Fields:
    """What is logged of a schedule."""
    if record is None:
        return {}
    task = record.task
    return {
        "state": ScheduleState.PAUSED if record.paused else ScheduleState.ACTIVE,
        "recurrence": to_builtins(record.recurrence),
        "task": task.name,
        "queue": task.queue,
        "priority": task.spec.priority,
        "args": task.args.decode(errors="replace")[:LONGEST_ARGUMENTS],
    }
