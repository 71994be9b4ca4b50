"""cancel, edit, replay and purge: what people do to tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.states import State
from dibs.core.task import Edit
from dibs.engines.decisions.admin import PurgeRow, cancel_all, edit_one, ids_done, purge_all, replay_one, target
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Place
from dibs.engines.sqlite.dependencies import inherit_again
from dibs.engines.sqlite.records import Records
from dibs.engines.sqlite.statements import statement
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import CancelOutcome, Changed

__all__ = ["cancel", "edit", "purge", "replay"]

STATES = frozenset(State)


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
    remember(transaction, actor, "edit", ids_done(ids, answers), "")
    return answers


def replay(transaction: Transaction, ids: Sequence[str], queue: str | None, reset: bool, actor: str) -> list[Changed]:
    transaction.refresh()
    records = Records(transaction, ids)
    answers = [replay_one(transaction, records, task_id, queue, reset, actor) for task_id in ids]
    records.flush()
    if Changed.DONE in answers:
        inherit_again(transaction, ids_done(ids, answers))
    remember(transaction, actor, "replay", ids_done(ids, answers), queue or "")
    return answers


def purge(transaction: Transaction, ids: Sequence[str], actor: str) -> list[Changed]:
    transaction.refresh()
    records = Records(transaction, ids)
    answers, holders = purge_all(records, ids)
    records.flush()
    if records.unreadable:
        gone = purge_unreadable(transaction, [each for each in ids if each in records.unreadable])
        answers = [gone.get(each, answer) for each, answer in zip(ids, answers, strict=True)]
    if holders:
        transaction.write("purge_keys", to_json([(queue, to_json(key), held) for queue, key, held in holders]))
    remember(transaction, actor, "purge", ids_done(ids, answers), "")
    return answers


def purge_unreadable(transaction: Transaction, ids: list[str]) -> dict[str, Changed]:
    """Delete rows that can't be read, unless somebody who can may be running them. Counts follow as far as is known."""
    answers = {}
    asked = to_json(ids)
    for task_id, place, state, track, *others in transaction.each(statement("purge_row"), (asked,)):
        known = track if track in transaction.catalog.tracks else None
        left = PurgeRow(str(task_id), Place(place), state, known, *others)
        if left.may_go(transaction.now):
            delete(transaction, left)
            answers[left.id] = Changed.DONE
        else:
            answers[left.id] = Changed.WRONG_STATE
    return answers


def delete(transaction: Transaction, left: PurgeRow) -> None:
    only = to_json([left.id])
    if left.place is Place.FINISHED:
        transaction.write("purge_finished", to_json([(left.day, left.id)]))
    else:
        transaction.write("purge_dead" if left.place is Place.DEAD else "purge_tasks", only)
    transaction.write("delete_history", only)
    transaction.write("purge_keys_of", left.id)
    if left.track is not None and left.state == State.PENDING:
        transaction.count_pending(left.track, left.share, -1)
    elif left.track is not None and isinstance(left.state, str) and left.state in STATES:
        transaction.count(State(left.state), left.track, -1)
    if left.track is not None and isinstance(left.partition, str):
        transaction.mark_changed(Partition.parse(left.partition))
    transaction.follow_ups.extend(left.follow_ups())
    transaction.aside.forget([left.id])


def remember(transaction: Transaction, actor: str, act: str, ids: list[str], detail: str) -> None:
    if ids:
        transaction.remember(actor, act, target(ids), detail)
