"""Schedules: setting and firing them."""

from __future__ import annotations

from dibs.core.recurrence import Overlap, Recurrence
from dibs.core.schedules import ScheduleRecord, ScheduleState
from dibs.core.states import UNFINISHED
from dibs.core.task import NewTask
from dibs.engines.decisions.audits import Fields, schedule_fields, unlike
from dibs.engines.decisions.schedules import (
    UNFIRABLE,
    firing,
    moved_on,
    schedule_from,
    schedule_paused,
    schedule_set,
)
from dibs.engines.port import Port, Read, View
from dibs.engines.topics import SCHEDULES as TOPIC
from dibs.engines.unreadable import UNREADABLE, problem_of, readable
from dibs.engines.values import FIRE_BATCH, Changed, Fired
from dibs.engines.verbs.audit import audit
from dibs.engines.verbs.enqueueing import enqueue

__all__ = ["fire", "schedules", "set_schedule", "set_schedule_state"]

SCHEDULES = Read("schedules", tuple[str, object], "schedule")
"""Takes nothing: all schedules by name, as (name, record)."""
SCHEDULE = Read("schedule", tuple[str, object], "schedule")
"""Takes a name: that schedule, if it exists."""
SCHEDULES_DUE = Read("schedules_due", tuple[str, object], "schedule")
"""Takes now, how many, and names to pass over: schedules that are due, earliest first, without those others fire."""
NEXT_FIRE = Read("next_fire", int, "fire")
"""Takes names to pass over: when the next schedule is due, if there is any."""


async def schedules(view: View) -> list[ScheduleRecord]:
    stored = await view.read(SCHEDULES)
    return [record for _, record in readable(view.aside, "schedule", stored, schedule_from)]


async def set_schedule(
    port: Port, name: str, recurrence: Recurrence, task: NewTask, declared: bool, actor: str
) -> Changed:
    try:
        old = await find(port, name)
    except UNREADABLE as error:
        return unread(port, name, error)
    new, is_new = schedule_set(old, name, recurrence, task, declared, port.now)
    await save(port, new)
    before, after = unlike(schedule_fields(old), schedule_fields(new))
    return await changed(port, actor, "set schedule", name, before, after) if is_new else Changed.UNCHANGED


async def set_schedule_state(port: Port, name: str, state: ScheduleState, actor: str) -> Changed:
    try:
        old = await find(port, name)
    except UNREADABLE as error:
        if state is ScheduleState.DELETED:
            return await delete(port, name, actor, {})
        return unread(port, name, error)
    if old is None:
        return Changed.UNKNOWN
    if state is ScheduleState.DELETED:
        return await delete(port, name, actor, schedule_fields(old))
    paused = state is ScheduleState.PAUSED
    if old.paused is paused:
        return Changed.UNCHANGED
    await save(port, new := schedule_paused(old, paused, port.now))
    before, after = unlike(schedule_fields(old), schedule_fields(new))
    return await changed(port, actor, "pause schedule" if paused else "resume schedule", name, before, after)


async def delete(port: Port, name: str, actor: str, before: Fields) -> Changed:
    gone = await port.write("delete_schedule", name)
    return await changed(port, actor, "delete schedule", name, before, {}) if gone else Changed.UNKNOWN


async def find(port: Port, name: str) -> ScheduleRecord | None:
    stored = await port.read(SCHEDULE, name)
    return schedule_from(stored[0][1]) if stored else None


async def save(port: Port, record: ScheduleRecord) -> None:
    await port.write("save_schedule", record.name, record.next_fire_at, record.paused, record)


def unread(port: Port, name: str, error: Exception) -> Changed:
    """A schedule that can't be read is not overwritten: a newer version may have written it. It can be deleted."""
    port.aside.log_once("schedule", name, problem_of(error))
    return Changed.UNREADABLE


async def changed(port: Port, actor: str, act: str, name: str, before: Fields, after: Fields) -> Changed:
    await audit(port, actor, act, name, before=before, after=after)
    port.topics.add(TOPIC)
    return Changed.DONE


async def fire(port: Port) -> Fired:
    """Fire what is due. No other process can fire what is read here."""
    tasks: list[str] = []
    skipped = 0
    broken: list[str] = []
    unreadable: list[str] = []
    while True:
        passed = len(broken) + len(unreadable)
        due = await port.fetch(SCHEDULES_DUE, port.now, FIRE_BATCH, broken + unreadable)
        for name, stored in due.rows:
            try:
                record = schedule_from(stored)
            except UNREADABLE as error:
                unread(port, name, error)
                unreadable.append(name)
                continue
            try:
                fired = await fire_one(port, record)
            except UNFIRABLE:
                broken.append(record.name)
                continue
            tasks += fired.tasks
            skipped += fired.skipped
        if due.number < FIRE_BATCH or passed == len(broken) + len(unreadable):
            break  # otherwise more may be due behind those that can't fire
    upcoming = await port.read(NEXT_FIRE, broken + unreadable)
    return Fired(tasks, skipped, max(0, upcoming[0] - port.now) if upcoming else None, broken)


async def fire_one(port: Port, record: ScheduleRecord) -> Fired:
    """Enqueue what a schedule has due and move it on; do neither if its queue rejects it."""
    overlaps = record.recurrence.overlap is Overlap.SKIP and await is_unfinished(port, record.last_task)
    fired = firing(record, overlaps, port.now)
    answers = await enqueue(port, fired.tasks, atomic=True) if fired.tasks else []
    moved = moved_on(fired, answers)
    if moved is None:
        return Fired()
    await save(port, moved)
    return Fired([answer.id for answer in answers], fired.skipped)


async def is_unfinished(port: Port, task_id: str | None) -> bool:
    found = {} if task_id is None else await port.find([task_id])
    return any(task.state in UNFINISHED for task in found.values())
