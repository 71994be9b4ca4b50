"""Recurring tasks."""

from __future__ import annotations

import msgspec
from msgspec import structs

from dibs.core.rhythm import Overlap, Rhythm, first_fire
from dibs.core.schedules import UNPLANNABLE, ScheduleRecord, fire_id, plan, task_of
from dibs.core.states import UNFINISHED
from dibs.core.task import NewTask
from dibs.engines.base import FIRE_BATCH, SCHEDULES, Changed, EnqueueOutcome, Fired
from dibs.engines.postgres.deciding import SCHEDULER
from dibs.engines.postgres.enqueueing import enqueue
from dibs.engines.postgres.rows import encode
from dibs.engines.postgres.transaction import Snapshot, Transaction

__all__ = ["delete_schedule", "fire", "pause_schedule", "schedules", "set_schedule"]

record_decoder = msgspec.json.Decoder(ScheduleRecord)


async def schedules(snapshot: Snapshot) -> list[ScheduleRecord]:
    return [record_decoder.decode(row["record"]) for row in await snapshot.rows("schedules")]


async def find(transaction: Transaction, name: str) -> ScheduleRecord | None:
    stored = await transaction.value("schedule", name)
    return None if stored is None else record_decoder.decode(stored)


async def save(transaction: Transaction, record: ScheduleRecord) -> None:
    await transaction.write("save_schedule", record.name, record.next_fire_at, record.paused, encode(record))


async def set_schedule(
    transaction: Transaction, name: str, rhythm: Rhythm, task: NewTask, declared: bool, actor: str
) -> Changed:
    old, now = await find(transaction, name), transaction.now
    if old is None:
        next_fire_at = first_fire(rhythm, now)
        new = ScheduleRecord(name=name, rhythm=rhythm, task=task, next_fire_at=next_fire_at, created_at=now)
    else:
        next_fire_at = old.next_fire_at if old.rhythm == rhythm else first_fire(rhythm, now)
        new = structs.replace(old, rhythm=rhythm, task=task, next_fire_at=next_fire_at)
    if declared:
        new = structs.replace(new, declared=True, declared_at=now)
    await save(transaction, new)
    if old is not None and (old.rhythm, old.task) == (rhythm, task):
        return Changed.UNCHANGED
    await transaction.remember(actor, "set schedule", name)
    transaction.topics.add(SCHEDULES)
    return Changed.DONE


async def pause_schedule(transaction: Transaction, name: str, paused: bool, actor: str) -> Changed:
    old = await find(transaction, name)
    if old is None:
        return Changed.UNKNOWN
    if old.paused is paused:
        return Changed.UNCHANGED
    next_fire_at = old.next_fire_at if paused else first_fire(old.rhythm, transaction.now)
    await save(transaction, structs.replace(old, paused=paused, next_fire_at=next_fire_at))
    await transaction.remember(actor, "pause schedule" if paused else "resume schedule", name)
    transaction.topics.add(SCHEDULES)
    return Changed.DONE


async def delete_schedule(transaction: Transaction, name: str, actor: str) -> Changed:
    if await transaction.write("delete_schedule", name) == 0:
        return Changed.UNKNOWN
    await transaction.remember(actor, "delete schedule", name)
    transaction.topics.add(SCHEDULES)
    return Changed.DONE


async def fire(transaction: Transaction) -> Fired:
    """Schedules that are due, locked, but for those that another leader is just firing."""
    rows = await transaction.rows("schedules_due", transaction.now, FIRE_BATCH)
    tasks: list[str] = []
    skipped = 0
    broken = []
    for record in [record_decoder.decode(row["record"]) for row in rows]:
        try:
            fired = await fire_one(transaction, record)
        except UNPLANNABLE:
            broken.append(record.name)
            continue
        tasks += fired.tasks
        skipped += fired.skipped
    upcoming = await transaction.value("next_fire", broken)
    return Fired(tasks, skipped, None if upcoming is None else max(0, upcoming - transaction.now), broken)


async def fire_one(transaction: Transaction, record: ScheduleRecord) -> Fired:
    """Enqueue what a schedule has due and move it on, or leave both when its queue does not take it."""
    plans = plan(record, transaction.now)
    overlaps = record.rhythm.overlap is Overlap.SKIP and await is_unfinished(transaction, record.last_task)
    fires = () if overlaps else plans.fires
    tasks = [structs.replace(task_of(record, at, fire_id(record.name, at)), client=SCHEDULER) for at in fires]
    answers = await enqueue(transaction, tasks, True) if tasks else []
    await transaction.flush()  # the next one may be of the same queue, and looks at its depth
    if any(answer.outcome in (EnqueueOutcome.FULL, EnqueueOutcome.DRAINING) for answer in answers):
        return Fired()
    skipped = plans.skipped + (len(plans.fires) if overlaps else 0)
    ids = [answer.id for answer in answers]
    await save(
        transaction,
        structs.replace(
            record,
            next_fire_at=plans.next_fire_at,
            last_fire_at=fires[-1] if fires else record.last_fire_at,
            last_task=ids[-1] if ids else record.last_task,
            fired=record.fired + len(fires),
            skipped=record.skipped + skipped,
        ),
    )
    return Fired(ids, skipped)


async def is_unfinished(transaction: Transaction, task_id: str | None) -> bool:
    row = None if task_id is None else (await transaction.find([task_id])).get(task_id)
    return row is not None and row["state"] in UNFINISHED
