"""Schedules: what is to be enqueued again and again, and doing so when it is due."""

from __future__ import annotations

import msgspec
from msgspec import structs

from dibs.core.rhythm import Overlap, Rhythm, first_fire
from dibs.core.schedules import UNPLANNABLE, ScheduleRecord, fire_id, plan, task_of
from dibs.core.states import UNFINISHED, State
from dibs.core.task import NewTask
from dibs.engines.base import FIRE_BATCH, SCHEDULES, Changed, EnqueueOutcome, Fired
from dibs.engines.sqlite.deciding import SCHEDULER
from dibs.engines.sqlite.enqueueing import enqueue
from dibs.engines.sqlite.rows import to_json
from dibs.engines.sqlite.transaction import Snapshot, Transaction

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
    now = transaction.now
    old = find(transaction, name)
    if old is None:
        new = ScheduleRecord(name=name, rhythm=rhythm, task=task, next_fire_at=first_fire(rhythm, now), created_at=now)
    else:
        next_fire_at = old.next_fire_at if old.rhythm == rhythm else first_fire(rhythm, now)
        new = structs.replace(old, rhythm=rhythm, task=task, next_fire_at=next_fire_at)
    if declared:
        new = structs.replace(new, declared=True, declared_at=now)
    save(transaction, new)
    if old is not None and (old.rhythm, old.task) == (rhythm, task):
        return Changed.UNCHANGED
    return told(transaction, actor, "set schedule", name)


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
    next_fire_at = old.next_fire_at if paused else first_fire(old.rhythm, transaction.now)
    save(transaction, structs.replace(old, paused=paused, next_fire_at=next_fire_at))
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
    plans = plan(record, transaction.now)
    overlaps = record.rhythm.overlap is Overlap.SKIP and is_unfinished(transaction, record.last_task)
    fires = () if overlaps else plans.fires
    tasks = [structs.replace(task_of(record, at, fire_id(record.name, at)), client=SCHEDULER) for at in fires]
    transaction.flush()  # enqueue reads the counts
    answers = enqueue(transaction, tasks, atomic=True) if tasks else []
    if any(answer.outcome in (EnqueueOutcome.FULL, EnqueueOutcome.DRAINING) for answer in answers):
        return Fired()
    ids = [answer.id for answer in answers]
    skipped = plans.skipped + (len(plans.fires) if overlaps else 0)
    moved = structs.replace(
        record,
        next_fire_at=plans.next_fire_at,
        last_fire_at=fires[-1] if fires else record.last_fire_at,
        last_task=ids[-1] if ids else record.last_task,
        fired=record.fired + len(fires),
        skipped=record.skipped + skipped,
    )
    save(transaction, moved)
    return Fired(ids, skipped)


def is_unfinished(transaction: Transaction, task_id: str | None) -> bool:
    if task_id is None:
        return False
    unfinished, _, _ = transaction.row("states", to_json([task_id]))
    return any(state in UNFINISHED for _, state in msgspec.json.decode(unfinished, type=list[tuple[str, State]]))
