"""cancel, edit, replay and purge: what people do to tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.task import Edit
from dibs.engines.deciding.admin import cancel_all, done, edit_one, purge_all, replay_one, target
from dibs.engines.deciding.encoding import to_json
from dibs.engines.sqlite.records import Records
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.sqlite.waiting import inherit_anew
from dibs.engines.values import CancelOutcome, Changed

__all__ = ["cancel", "edit", "purge", "replay"]


def cancel(transaction: Transaction, ids: Sequence[str], note: str, actor: str) -> list[CancelOutcome]:
    transaction.refresh()
    records = Records(transaction, ids)
    answers, changed = cancel_all(transaction, records, ids, note, actor)
    records.flush()
    remember(transaction, actor, "cancel", changed, note)
    return answers


def edit(transaction: Transaction, edits: Sequence[Edit], actor: str) -> list[Changed]:
    transaction.refresh()
    ids = [each.id for each in edits]
    records = Records(transaction, ids)
    answers = [edit_one(transaction, records, each, actor) for each in edits]
    records.flush()
    remember(transaction, actor, "edit", done(ids, answers), "")
    return answers


def replay(transaction: Transaction, ids: Sequence[str], queue: str | None, reset: bool, actor: str) -> list[Changed]:
    transaction.refresh()
    records = Records(transaction, ids)
    answers = [replay_one(transaction, records, task_id, queue, reset, actor) for task_id in ids]
    records.flush()
    if Changed.DONE in answers:
        inherit_anew(transaction, done(ids, answers))
    remember(transaction, actor, "replay", done(ids, answers), queue or "")
    return answers


def purge(transaction: Transaction, ids: Sequence[str], actor: str) -> list[Changed]:
    transaction.refresh()
    records = Records(transaction, ids)
    answers, holders = purge_all(records, ids)
    records.flush()
    if holders:
        transaction.write("purge_keys", to_json([(queue, to_json(key), held) for queue, key, held in holders]))
    remember(transaction, actor, "purge", done(ids, answers), "")
    return answers


def remember(transaction: Transaction, actor: str, act: str, ids: list[str], detail: str) -> None:
    if ids:
        transaction.remember(actor, act, target(ids), detail)
