"""Schedules: what is to be enqueued again and again, and doing so when it is due."""

from __future__ import annotations

import msgspec

from dibs.core.rhythm import Overlap, Rhythm
from dibs.core.schedules import UNPLANNABLE, ScheduleRecord
from dibs.core.states import UNFINISHED, State
from dibs.core.task import NewTask
from dibs.engines.deciding.encoding import to_json
from dibs.engines.deciding.scheduling import firing, moved_on, schedule_paused, schedule_set
from dibs.engines.sqlite.enqueueing import enqueue
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.values import FIRE_BATCH, SCHEDULES, Changed, Fired

__all__ = ["delete_schedule", "fire", "pause_schedule", "schedules", "set_schedule"]

texts_decoder = msgspec.json.Decoder(list[str])
record_decoder = msgspec.json.Decoder(ScheduleRecord)


def schedules(snapshot: Snapshot) -> list[ScheduleRecord]:
    return [record_decoder.decode(record) for record in texts_decoder.decode(snapshot.value("schedules"))]


def find(snapshot: Snapshot, name: str) -> ScheduleRecord | None:
    stored = snapshot.row("schedule", name)
    return None if stored is None else record_decoder.decode(stored[0])


def save(transaction: Transaction, record: ScheduleRecord) -> None:
    transaction.write("save_schedule", record.name, record.next_fire_at, int(record.paused), to_json(record))


def set_schedule(
    transaction: Transaction, name: str, rhythm: Rhythm, task: NewTask, declared: bool, actor: str
) -> Changed:
    new, is_new = schedule_set(find(transaction, name), name, rhythm, task, declared, transaction.now)
    save(transaction, new)
    return told(transaction, actor, "set schedule", name) if is_new else Changed.UNCHANGED


def told(transaction: Transaction, actor: str, act: str, name: str) -> Changed:
    """A schedule has changed."""
    transaction.remember(actor, act, name)
    transaction.topics.add(SCHEDULES)
    return Changed.DONE


def pause_schedule(transaction: Transaction, name: str, paused: bool, actor: str) -> Changed:
    old = find(transaction, name)
    if old is None:
        return Changed.UNKNOWN
    if old.paused is paused:
        return Changed.UNCHANGED
    save(transaction, schedule_paused(old, paused, transaction.now))
    return told(transaction, actor, "pause schedule" if paused else "resume schedule", name)


def delete_schedule(transaction: Transaction, name: str, actor: str) -> Changed:
    if not transaction.write("delete_schedule", name):
        return Changed.UNKNOWN
    return told(transaction, actor, "delete schedule", name)


def fire(transaction: Transaction) -> Fired:
    """Enqueue what is due. The store has one writer at a time: nobody else can fire what is read here."""
    tasks: list[str] = []
    skipped = 0
    broken: list[str] = []
    due = texts_decoder.decode(transaction.value("fires_due", transaction.now, FIRE_BATCH))
    for record in map(record_decoder.decode, due):
        try:
            fired = fire_one(transaction, record)
        except UNPLANNABLE:
            broken.append(record.name)
            continue
        tasks += fired.tasks
        skipped += fired.skipped
    following = transaction.row("next_fire", to_json(broken))
    return Fired(tasks, skipped, None if following is None else max(0, following[0] - transaction.now), broken)


def fire_one(transaction: Transaction, record: ScheduleRecord) -> Fired:
    """Enqueue what a schedule has due and move it on, or leave both when its queue does not take it."""
    overlaps = record.rhythm.overlap is Overlap.SKIP and is_unfinished(transaction, record.last_task)
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
    return any(state in UNFINISHED for _, state in msgspec.json.decode(unfinished, type=list[tuple[str, State]]))
