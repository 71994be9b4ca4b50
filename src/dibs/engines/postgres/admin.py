"""cancel, edit, replay and purge: what people do to tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.states import State
from dibs.core.task import Edit
from dibs.engines.decisions.admin import PurgeRow, cancel_all, edit_one, ids_done, purge_all, replay_one, target
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Place
from dibs.engines.postgres.dependencies import inherit_again
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.values import CancelOutcome, Changed

__all__ = ["cancel", "edit", "purge", "replay"]

STATES = frozenset(State)


async def cancel(transaction: Transaction, ids: Sequence[str], note: str, actor: str) -> list[CancelOutcome]:
    records = Records(transaction)
    await records.load(ids)
    answers, changed = cancel_all(transaction, records, ids, note, actor)
    await records.flush()
    await remember(transaction, actor, "cancel", changed, note)
    return answers


async def edit(transaction: Transaction, edits: Sequence[Edit], actor: str) -> list[Changed]:
    ids = [each.id for each in edits]
    records = Records(transaction)
    await records.load(ids)
    answers = [edit_one(transaction, records, each, actor) for each in edits]
    await records.flush()
    await remember(transaction, actor, "edit", ids_done(ids, answers), "")
    return answers


async def replay(
    transaction: Transaction, ids: Sequence[str], queue: str | None, reset: bool, actor: str
) -> list[Changed]:
    records = Records(transaction)
    await records.load(ids)
    answers = [replay_one(transaction, records, task_id, queue, reset, actor) for task_id in ids]
    await records.flush()
    await inherit_again(transaction, ids_done(ids, answers))
    await remember(transaction, actor, "replay", ids_done(ids, answers), queue or "")
    return answers


async def purge(transaction: Transaction, ids: Sequence[str], actor: str) -> list[Changed]:
    records = Records(transaction)
    await records.load(ids)
    answers, holders = purge_all(records, ids)
    await records.flush()
    if records.unreadable:
        gone = await purge_unreadable(transaction, list(records.unreadable))
        answers = [gone.get(each, answer) for each, answer in zip(ids, answers, strict=True)]
    if holders:
        keys = sorted((queue, to_json(key), held) for queue, key, held in holders)
        await transaction.write("purge_keys", *columns(keys, 3))
    await remember(transaction, actor, "purge", ids_done(ids, answers), "")
    return answers


async def purge_unreadable(transaction: Transaction, ids: list[str]) -> dict[str, Changed]:
    """Delete rows that can't be read, unless a process that can may be running them. Counts follow where known."""
    answers = {}
    for task_id, place, state, track, *others in await transaction.rows("purge_row", ids):
        known = track if track in transaction.catalog.tracks else None
        left = PurgeRow(str(task_id), Place(place), state, known, *others)
        if left.may_go(transaction.now):
            await delete(transaction, left)
            answers[left.id] = Changed.DONE
        else:
            answers[left.id] = Changed.WRONG_STATE
    return answers


async def delete(transaction: Transaction, left: PurgeRow) -> None:
    if left.place is Place.FINISHED:
        await transaction.write("purge_finished", [left.day], [left.id])
    else:
        await transaction.write("purge_dead" if left.place is Place.DEAD else "purge_tasks", [left.id])
    await transaction.write("delete_history", [left.id])
    await transaction.write("purge_keys_of", left.id)
    if left.track is not None and left.state == State.PENDING:
        transaction.count_pending(left.track, left.share, -1)
    elif left.track is not None and isinstance(left.state, str) and left.state in STATES:
        day = left.day if left.place is Place.FINISHED else 0
        transaction.count(State(left.state), left.track, -1, day)
    if left.track is not None and left.partition is not None:
        transaction.mark_changed(Partition.parse(left.partition))
    transaction.follow_ups.extend(left.follow_ups())
    transaction.aside.forget([left.id])


async def remember(transaction: Transaction, actor: str, act: str, ids: list[str], detail: str) -> None:
    if ids:
        await transaction.remember(actor, act, target(ids), detail)
