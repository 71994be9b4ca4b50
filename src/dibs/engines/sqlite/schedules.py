"""Schedules: setting and firing them."""

from __future__ import annotations

import msgspec

from dibs.core.recurrence import Overlap, Recurrence
from dibs.core.schedules import ScheduleRecord, ScheduleState
from dibs.core.states import UNFINISHED, State
from dibs.core.task import NewTask
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.schedules import (
    UNFIRABLE,
    firing,
    moved_on,
    schedule_from,
    schedule_paused,
    schedule_set,
)
from dibs.engines.sqlite.enqueueing import enqueue
from dibs.engines.sqlite.statements import row_by_row, statement
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.unreadable import UNREADABLE, problem_of, state_or
from dibs.engines.values import FIRE_BATCH, SCHEDULES, Changed, Fired

__all__ = ["fire", "schedules", "set_schedule", "set_schedule_state"]


def schedules(snapshot: Snapshot) -> list[ScheduleRecord]:
    return [record for _, record in snapshot.documents("schedule", schedule_from, "schedules")]


def find(snapshot: Snapshot, name: str) -> ScheduleRecord | None:
    stored = snapshot.each(statement("schedule"), (name,))
    return None if not stored else schedule_from(stored[0][0])


def save(transaction: Transaction, record: ScheduleRecord) -> None:
    transaction.run("save_schedule", record.name, record.next_fire_at, int(record.paused), to_json(record))


def set_schedule(
    transaction: Transaction, name: str, recurrence: Recurrence, task: NewTask, declared: bool, actor: str
) -> Changed:
    try:
        old = find(transaction, name)
    except UNREADABLE as error:
        return unread(transaction, name, error)
    new, is_new = schedule_set(old, name, recurrence, task, declared, transaction.now)
    save(transaction, new)
    return audit(transaction, actor, "set schedule", name) if is_new else Changed.UNCHANGED


def unread(transaction: Transaction, name: str, error: Exception) -> Changed:
    """A schedule that can't be read is not overwritten: a newer version may have written it. It can be deleted."""
    transaction.aside.log_once("schedule", name, problem_of(error))
    return Changed.UNREADABLE


def audit(transaction: Transaction, actor: str, act: str, name: str) -> Changed:
    """A schedule has changed."""
    transaction.remember(actor, act, name)
    transaction.topics.add(SCHEDULES)
    return Changed.DONE


def set_schedule_state(transaction: Transaction, name: str, state: ScheduleState, actor: str) -> Changed:
    if state is ScheduleState.DELETED:  # also one that can't be read
        gone = transaction.run("delete_schedule", name)
        return audit(transaction, actor, "delete schedule", name) if gone else Changed.UNKNOWN
    try:
        old = find(transaction, name)
    except UNREADABLE as error:
        return unread(transaction, name, error)
    if old is None:
        return Changed.UNKNOWN
    paused = state is ScheduleState.PAUSED
    if old.paused is paused:
        return Changed.UNCHANGED
    save(transaction, schedule_paused(old, paused, transaction.now))
    return audit(transaction, actor, "pause schedule" if paused else "resume schedule", name)


def fire(transaction: Transaction) -> Fired:
    """Enqueue what is due. The store has one writer at a time: no other process can fire what is read here."""
    tasks: list[str] = []
    skipped = 0
    broken: list[str] = []
    unreadable: list[str] = []
    while True:
        passed = len(broken) + len(unreadable)
        due = transaction.each(row_by_row("fires_due"), (transaction.now, FIRE_BATCH, to_json(broken + unreadable)))
        for name, stored in due:
            try:
                record = schedule_from(stored)
            except UNREADABLE as error:
                unread(transaction, name, error)
                unreadable.append(name)
                continue
            try:
                fired = fire_one(transaction, record)
            except UNFIRABLE:
                broken.append(record.name)
                continue
            tasks += fired.tasks
            skipped += fired.skipped
        if len(due) < FIRE_BATCH or passed == len(broken) + len(unreadable):
            break  # otherwise more may be due behind those that can't fire
    following = transaction.row("next_fire", to_json(broken + unreadable))
    return Fired(tasks, skipped, None if following is None else max(0, following[0] - transaction.now), broken)


def fire_one(transaction: Transaction, record: ScheduleRecord) -> Fired:
    """Enqueue what a schedule has due and move it on; do neither if its queue rejects it."""
    overlaps = record.recurrence.overlap is Overlap.SKIP and is_unfinished(transaction, record.last_task)
    fired = firing(record, overlaps, transaction.now)
    transaction.flush()  # enqueue reads the counts
    answers = enqueue(transaction, fired.tasks, atomic=True) if fired.tasks else []
    moved = moved_on(fired, answers)
    if moved is None:
        return Fired()
    save(transaction, moved)
    return Fired([answer.id for answer in answers], fired.skipped)


def is_unfinished(transaction: Transaction, task_id: str | None) -> bool:
    if task_id is None:
        return False
    unfinished, _, _ = transaction.row("states", to_json([task_id]))
    found = msgspec.json.decode(unfinished, type=list[tuple[str, object]])
    return any(state_or(state, State.PENDING) in UNFINISHED for _, state in found)
