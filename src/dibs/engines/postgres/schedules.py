"""Schedules: setting and firing them."""

from __future__ import annotations

from dibs.core.recurrence import Overlap, Recurrence
from dibs.core.schedules import ScheduleRecord, ScheduleState
from dibs.core.states import UNFINISHED
from dibs.core.task import NewTask
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.schedules import (
    UNFIRABLE,
    firing,
    moved_on,
    schedule_from,
    schedule_paused,
    schedule_set,
)
from dibs.engines.postgres.enqueueing import enqueue
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.unreadable import UNREADABLE, problem_of, readable
from dibs.engines.values import FIRE_BATCH, SCHEDULES, Changed, Fired

__all__ = ["fire", "schedules", "set_schedule", "set_schedule_state"]


async def schedules(snapshot: Snapshot) -> list[ScheduleRecord]:
    rows = await snapshot.rows("schedules")
    return [record for _, record in readable(snapshot.aside, "schedule", rows, schedule_from)]


async def find(transaction: Transaction, name: str) -> ScheduleRecord | None:
    stored = await transaction.value("schedule", name)
    return None if stored is None else schedule_from(stored)


async def save(transaction: Transaction, record: ScheduleRecord) -> None:
    await transaction.write("save_schedule", record.name, record.next_fire_at, record.paused, encode(record))


async def set_schedule(
    transaction: Transaction, name: str, recurrence: Recurrence, task: NewTask, declared: bool, actor: str
) -> Changed:
    try:
        old = await find(transaction, name)
    except UNREADABLE as error:
        return unread(transaction, name, error)
    new, is_new = schedule_set(old, name, recurrence, task, declared, transaction.now)
    await save(transaction, new)
    return await audit(transaction, actor, "set schedule", name) if is_new else Changed.UNCHANGED


def unread(transaction: Transaction, name: str, error: Exception) -> Changed:
    """A schedule that can't be read is not overwritten: a newer version may have written it. It can be deleted."""
    transaction.aside.log_once("schedule", name, problem_of(error))
    return Changed.UNREADABLE


async def audit(transaction: Transaction, actor: str, act: str, name: str) -> Changed:
    """A schedule has changed."""
    await transaction.remember(actor, act, name)
    transaction.topics.add(SCHEDULES)
    return Changed.DONE


async def set_schedule_state(transaction: Transaction, name: str, state: ScheduleState, actor: str) -> Changed:
    if state is ScheduleState.DELETED:  # also one that can't be read
        gone = await transaction.write("delete_schedule", name)
        return await audit(transaction, actor, "delete schedule", name) if gone else Changed.UNKNOWN
    try:
        old = await find(transaction, name)
    except UNREADABLE as error:
        return unread(transaction, name, error)
    if old is None:
        return Changed.UNKNOWN
    paused = state is ScheduleState.PAUSED
    if old.paused is paused:
        return Changed.UNCHANGED
    await save(transaction, schedule_paused(old, paused, transaction.now))
    return await audit(transaction, actor, "pause schedule" if paused else "resume schedule", name)


async def fire(transaction: Transaction) -> Fired:
    """Fire due schedules, locked, except those that another leader is firing."""
    tasks: list[str] = []
    skipped = 0
    broken: list[str] = []
    unreadable: list[str] = []
    while True:
        passed = len(broken) + len(unreadable)
        due = await transaction.rows("schedules_due", transaction.now, FIRE_BATCH, broken + unreadable)
        for name, stored in due:
            try:
                record = schedule_from(stored)
            except UNREADABLE as error:
                unread(transaction, name, error)
                unreadable.append(name)
                continue
            try:
                fired = await fire_one(transaction, record)
            except UNFIRABLE:
                broken.append(record.name)
                continue
            tasks += fired.tasks
            skipped += fired.skipped
        if len(due) < FIRE_BATCH or passed == len(broken) + len(unreadable):
            break  # otherwise more may be due behind those that can't fire
    upcoming = await transaction.value("next_fire", broken + unreadable)
    return Fired(tasks, skipped, None if upcoming is None else max(0, upcoming - transaction.now), broken)


async def fire_one(transaction: Transaction, record: ScheduleRecord) -> Fired:
    """Enqueue what a schedule has due and move it on; do neither if its queue rejects it."""
    overlaps = record.recurrence.overlap is Overlap.SKIP and await is_unfinished(transaction, record.last_task)
    fired = firing(record, overlaps, transaction.now)
    answers = await enqueue(transaction, fired.tasks, True) if fired.tasks else []
    await transaction.flush()  # the next one may be of the same queue, and reads its depth
    moved = moved_on(fired, answers)
    if moved is None:
        return Fired()
    await save(transaction, moved)
    return Fired([answer.id for answer in answers], fired.skipped)


async def is_unfinished(transaction: Transaction, task_id: str | None) -> bool:
    row = None if task_id is None else (await transaction.find_rows([task_id])).get(task_id)
    return row is not None and row["state"] in UNFINISHED
