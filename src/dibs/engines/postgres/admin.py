"""cancel, edit, replay and purge: what people do to tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.moves import cancelled, edited, replayed
from dibs.core.states import ENDED, WAITING, State
from dibs.core.task import Edit, QueueState
from dibs.engines.base import CancelOutcome, Changed, Counter, work_topic, worker_topic
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import columns, to_json
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.postgres.waiting import inherit_anew

__all__ = ["cancel", "cancel_one", "edit", "purge", "replay"]


async def cancel(transaction: Transaction, ids: Sequence[str], note: str, actor: str) -> list[CancelOutcome]:
    records = Records(transaction)
    await records.load(ids)
    changed: list[str] = []
    answers = []
    for task_id in ids:
        before = records.get(task_id)
        answers.append(cancel_one(transaction, records, task_id, note, actor))
        if records.get(task_id) is not before:
            changed.append(task_id)
    await records.flush()
    await remember(transaction, actor, "cancel", changed, note)
    return answers


def cancel_one(transaction: Transaction, records: Records, task_id: str, note: str, actor: str) -> CancelOutcome:
    record = records.get(task_id)
    if record is None:
        return CancelOutcome.UNKNOWN
    if record.state in ENDED:
        return CancelOutcome.ENDED
    if record.state is State.RUNNING:
        if record.cancel_reason is None:
            records.put(*cancelled(record, note, actor, transaction.now))
        transaction.topics.add(worker_topic(record.worker or ""))
        return CancelOutcome.REQUESTED
    after, entry = cancelled(record, note, actor, transaction.now)
    records.put(after, entry)
    transaction.tell(record.queue, after.state)
    return CancelOutcome.CANCELLED


async def edit(transaction: Transaction, edits: Sequence[Edit], actor: str) -> list[Changed]:
    ids = [each.id for each in edits]
    records = Records(transaction)
    await records.load(ids)
    answers = [edit_one(transaction, records, each, actor) for each in edits]
    await records.flush()
    await remember(transaction, actor, "edit", done(ids, answers), "")
    return answers


def edit_one(transaction: Transaction, records: Records, change: Edit, actor: str) -> Changed:
    record = records.get(change.id)
    if record is None:
        return Changed.UNKNOWN
    if record.state not in WAITING:
        return Changed.WRONG_STATE
    after, entry = edited(record, change, transaction.settings(record.queue), actor, transaction.now)
    if entry is None:
        return Changed.UNCHANGED
    records.put(after, entry)
    transaction.topics.add(work_topic(record.queue))
    return Changed.DONE


async def replay(
    transaction: Transaction, ids: Sequence[str], queue: str | None, reset: bool, actor: str
) -> list[Changed]:
    records = Records(transaction)
    await records.load(ids)
    answers = [replay_one(transaction, records, task_id, queue, reset, actor) for task_id in ids]
    await records.flush()
    await inherit_anew(transaction, done(ids, answers))
    await remember(transaction, actor, "replay", done(ids, answers), queue or "")
    return answers


def replay_one(
    transaction: Transaction, records: Records, task_id: str, queue: str | None, reset: bool, actor: str
) -> Changed:
    record = records.get(task_id)
    if record is None:
        return Changed.UNKNOWN
    if record.state is not State.DEAD:
        return Changed.WRONG_STATE
    target = transaction.make_queue(queue or record.queue)
    if target.state is QueueState.DRAINING:
        return Changed.DRAINING
    records.put(*replayed(record, target.settings, queue, reset, actor, transaction.now))
    transaction.tally(Counter.REPLAYED, target.name)
    transaction.topics.add(work_topic(target.name))
    return Changed.DONE


async def purge(transaction: Transaction, ids: Sequence[str], actor: str) -> list[Changed]:
    records = Records(transaction)
    await records.load(ids)
    keys = [(r.queue, to_json(r.key), r.id) for i in ids if (r := records.get(i)) is not None and r.key is not None]
    answers = [purge_one(records, task_id) for task_id in ids]
    await records.flush()
    purged = set(done(ids, answers))
    free = sorted({key for key in keys if key[2] in purged})
    if free:
        await transaction.write("purge_keys", *columns(free, 3))
    await remember(transaction, actor, "purge", done(ids, answers), "")
    return answers


def purge_one(records: Records, task_id: str) -> Changed:
    record = records.get(task_id)
    if record is None:
        return Changed.UNKNOWN
    if record.state not in ENDED:
        return Changed.WRONG_STATE
    records.remove(task_id)
    return Changed.DONE


def done(ids: Sequence[str], answers: Sequence[Changed]) -> list[str]:
    return [task_id for task_id, answer in zip(ids, answers, strict=True) if answer is Changed.DONE]


async def remember(transaction: Transaction, actor: str, act: str, ids: list[str], detail: str) -> None:
    if ids:
        await transaction.remember(actor, act, ids[0] if len(ids) == 1 else f"{len(ids)} tasks", detail)
