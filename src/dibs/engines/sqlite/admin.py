"""act: cancel, edit, replay and purge tasks, and act on workflows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dibs.core.states import State
from dibs.core.task import Edit
from dibs.engines.decisions.admin import PurgeRow, alike, cancel_all, edit_one, ids_done, purge_all, replay_one, target
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Place
from dibs.engines.sqlite.dependencies import inherit_again
from dibs.engines.sqlite.records import Records
from dibs.engines.sqlite.statements import statement
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.sqlite.workflows import cancel_workflows, replay_workflows
from dibs.engines.values import Act, Cancel, CancelWorkflow, Changed, Purge, Replay, ReplayWorkflow

__all__ = ["act"]

STATES = frozenset(State)


def act(transaction: Transaction, acts: Sequence[Act], actor: str) -> list[Changed]:
    transaction.refresh()
    answers: list[Changed] = []
    for group in alike(acts):
        answers += ACTS[type(group[0])](transaction, group, actor)
    return answers


def cancel(transaction: Transaction, acts: Sequence[Cancel], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
    records = Records(transaction, ids)
    answers, changed = cancel_all(transaction, records, acts, actor)
    records.flush()
    remember(transaction, actor, "cancel", changed, acts[0].note)
    return answers


def edit(transaction: Transaction, acts: Sequence[Edit], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
    records = Records(transaction, ids)
    answers = [edit_one(transaction, records, act, actor) for act in acts]
    records.flush()
    remember(transaction, actor, "edit", ids_done(ids, answers), "")
    return answers


def replay(transaction: Transaction, acts: Sequence[Replay], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
    records = Records(transaction, ids)
    answers = [replay_one(transaction, records, act, actor) for act in acts]
    records.flush()
    if Changed.DONE in answers:
        inherit_again(transaction, ids_done(ids, answers))
    remember(transaction, actor, "replay", ids_done(ids, answers), acts[0].queue or "")
    return answers


def purge(transaction: Transaction, acts: Sequence[Purge], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
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
    """Delete unreadable rows, unless a process that can read them may be running them. Counts follow where known."""
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


ACTS: dict[type[Act], Callable[[Transaction, Sequence[Any], str], list[Changed]]] = {
    Cancel: cancel,
    Edit: edit,
    Replay: replay,
    Purge: purge,
    CancelWorkflow: cancel_workflows,
    ReplayWorkflow: replay_workflows,
}
