"""Recurring tasks of a memory store."""

from __future__ import annotations

from dibs.core.recurrence import Overlap, Recurrence
from dibs.core.schedules import UNPLANNABLE, ScheduleRecord, ScheduleState
from dibs.core.states import UNFINISHED
from dibs.core.task import NewTask
from dibs.core.times import Instant
from dibs.engines.decisions.schedules import firing, moved_on, schedule_paused, schedule_set
from dibs.engines.memory.enqueueing import enqueue
from dibs.engines.memory.store import Store
from dibs.engines.topics import SCHEDULES
from dibs.engines.values import FIRE_BATCH, Changed, Fired

__all__ = ["fire", "set_schedule", "set_schedule_state"]


def set_schedule(
    store: Store, name: str, recurrence: Recurrence, task: NewTask, declared: bool, actor: str, now: Instant
) -> Changed:
    new, is_new = schedule_set(store.schedules.get(name), name, recurrence, task, declared, now)
    store.schedules[name] = new
    return audit(store, actor, "set schedule", name, now) if is_new else Changed.UNCHANGED


def audit(store: Store, actor: str, act: str, name: str, now: Instant) -> Changed:
    """A schedule has changed."""
    store.remember(actor, act, name, "", now)
    store.topics.add(SCHEDULES)
    return Changed.DONE


def set_schedule_state(store: Store, name: str, state: ScheduleState, actor: str, now: Instant) -> Changed:
    old = store.schedules.get(name)
    if old is None:
        return Changed.UNKNOWN
    if state is ScheduleState.DELETED:
        del store.schedules[name]
        return audit(store, actor, "delete schedule", name, now)
    paused = state is ScheduleState.PAUSED
    if old.paused is paused:
        return Changed.UNCHANGED
    store.schedules[name] = schedule_paused(old, paused, now)
    return audit(store, actor, "pause schedule" if paused else "resume schedule", name, now)


def fire(store: Store, now: Instant) -> Fired:
    active = [record for record in store.schedules.values() if not record.paused]
    due = sorted((r for r in active if r.next_fire_at <= now), key=lambda r: (r.next_fire_at, r.name))[:FIRE_BATCH]
    tasks: list[str] = []
    skipped = 0
    broken = []
    for record in due:
        try:
            fired = fire_one(store, record, now)
        except UNPLANNABLE:
            broken.append(record.name)
            continue
        tasks += fired.tasks
        skipped += fired.skipped
    upcoming = [store.schedules[r.name].next_fire_at for r in active if r.name not in broken]
    return Fired(tasks, skipped, min((max(0, at - now) for at in upcoming), default=None), broken)


def fire_one(store: Store, record: ScheduleRecord, now: Instant) -> Fired:
    """Enqueue what a schedule has due and move it on; do neither if its queue rejects it."""
    last = store.tasks.get(record.last_task or "")
    overlaps = record.recurrence.overlap is Overlap.SKIP and last is not None and last.state in UNFINISHED
    fired = firing(record, overlaps, now)
    answers = enqueue(store, fired.tasks, True, None, now)
    moved = moved_on(fired, answers)
    if moved is None:
        return Fired()
    store.schedules[record.name] = moved
    return Fired([answer.id for answer in answers], fired.skipped)
