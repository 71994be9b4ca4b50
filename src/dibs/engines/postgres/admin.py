"""cancel, edit, replay and purge: what people do to tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.task import Edit
from dibs.engines.deciding.admin import cancel_all, done, edit_one, purge_all, replay_one, target
from dibs.engines.deciding.encoding import to_json
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.postgres.waiting import inherit_anew
from dibs.engines.values import CancelOutcome, Changed

__all__ = ["cancel", "edit", "purge", "replay"]


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
    await remember(transaction, actor, "edit", done(ids, answers), "")
    return answers


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


async def purge(transaction: Transaction, ids: Sequence[str], actor: str) -> list[Changed]:
    records = Records(transaction)
    await records.load(ids)
    answers, holders = purge_all(records, ids)
    await records.flush()
    if holders:
        keys = sorted((queue, to_json(key), held) for queue, key, held in holders)
        await transaction.write("purge_keys", *columns(keys, 3))
    await remember(transaction, actor, "purge", done(ids, answers), "")
    return answers


async def remember(transaction: Transaction, actor: str, act: str, ids: list[str], detail: str) -> None:
    if ids:
        await transaction.remember(actor, act, target(ids), detail)
