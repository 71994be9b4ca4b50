"""Recurring tasks of a memory store."""

from __future__ import annotations

from msgspec import structs

from dibs.core.rhythm import Overlap, Rhythm, first_fire
from dibs.core.schedules import UNPLANNABLE, ScheduleRecord, fire_id, plan, task_of
from dibs.core.states import UNFINISHED
from dibs.core.task import NewTask
from dibs.core.times import Instant
from dibs.engines.base import FIRE_BATCH, SCHEDULES, Changed, EnqueueOutcome, Fired
from dibs.engines.memory.enqueueing import SCHEDULER, enqueue
from dibs.engines.memory.store import Store

__all__ = ["delete_schedule", "fire", "pause_schedule", "set_schedule"]


def set_schedule(
    store: Store, name: str, rhythm: Rhythm, task: NewTask, declared: bool, actor: str, now: Instant
) -> Changed:
    old = store.schedules.get(name)
    if old is None:
        next_fire_at = first_fire(rhythm, now)
        new = ScheduleRecord(name=name, rhythm=rhythm, task=task, next_fire_at=next_fire_at, created_at=now)
    else:
        next_fire_at = old.next_fire_at if old.rhythm == rhythm else first_fire(rhythm, now)
        new = structs.replace(old, rhythm=rhythm, task=task, next_fire_at=next_fire_at)
    if declared:
        new = structs.replace(new, declared=True, declared_at=now)
    store.schedules[name] = new
    if old is not None and (old.rhythm, old.task) == (rhythm, task):
        return Changed.UNCHANGED
    store.remember(actor, "set schedule", name, "", now)
    store.topics.add(SCHEDULES)
    return Changed.DONE


def pause_schedule(store: Store, name: str, paused: bool, actor: str, now: Instant) -> Changed:
    old = store.schedules.get(name)
    if old is None:
        return Changed.UNKNOWN
    if old.paused is paused:
        return Changed.UNCHANGED
    next_fire_at = old.next_fire_at if paused else first_fire(old.rhythm, now)
    store.schedules[name] = structs.replace(old, paused=paused, next_fire_at=next_fire_at)
    store.remember(actor, "pause schedule" if paused else "resume schedule", name, "", now)
    store.topics.add(SCHEDULES)
    return Changed.DONE


def delete_schedule(store: Store, name: str, actor: str, now: Instant) -> Changed:
    if store.schedules.pop(name, None) is None:
        return Changed.UNKNOWN
    store.remember(actor, "delete schedule", name, "", now)
    store.topics.add(SCHEDULES)
    return Changed.DONE


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
    """Enqueue what a schedule has due and move it on, or leave both when its queue does not take it."""
    plans = plan(record, now)
    last = store.tasks.get(record.last_task or "")
    overlaps = record.rhythm.overlap is Overlap.SKIP and last is not None and last.state in UNFINISHED
    fires = () if overlaps else plans.fires
    tasks = [structs.replace(task_of(record, at, fire_id(record.name, at)), client=SCHEDULER) for at in fires]
    answers = enqueue(store, tasks, True, None, now)
    if any(answer.outcome in (EnqueueOutcome.FULL, EnqueueOutcome.DRAINING) for answer in answers):
        return Fired()
    skipped = plans.skipped + (len(plans.fires) if overlaps else 0)
    ids = [answer.id for answer in answers]
    store.schedules[record.name] = structs.replace(
        record,
        next_fire_at=plans.next_fire_at,
        last_fire_at=fires[-1] if fires else record.last_fire_at,
        last_task=ids[-1] if ids else record.last_task,
        fired=record.fired + len(fires),
        skipped=record.skipped + skipped,
    )
    return Fired(ids, skipped)
