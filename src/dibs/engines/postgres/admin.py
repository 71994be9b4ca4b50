"""act: cancel, edit, replay and purge tasks, and act on workflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dibs.core.states import State
from dibs.core.task import Edit
from dibs.engines.decisions.admin import PurgeRow, alike, cancel_all, edit_one, ids_done, purge_all, replay_one, target
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Place
from dibs.engines.postgres.dependencies import inherit_again
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.postgres.workflows import cancel_workflows, replay_workflows
from dibs.engines.values import Act, Cancel, CancelWorkflow, Changed, Purge, Replay, ReplayWorkflow

__all__ = ["act"]

STATES = frozenset(State)


async def act(transaction: Transaction, acts: Sequence[Act], actor: str) -> list[Changed]:
    answers: list[Changed] = []
    for group in alike(acts):
        answers += await ACTS[type(group[0])](transaction, group, actor)
    return answers


async def cancel(transaction: Transaction, acts: Sequence[Cancel], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
    records = Records(transaction)
    await records.load(ids)
    answers, changed = cancel_all(transaction, records, acts, actor)
    await records.flush()
    await remember(transaction, actor, "cancel", changed, acts[0].note)
    return answers


async def edit(transaction: Transaction, acts: Sequence[Edit], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
    records = Records(transaction)
    await records.load(ids)
    answers = [edit_one(transaction, records, act, actor) for act in acts]
    await records.flush()
    await remember(transaction, actor, "edit", ids_done(ids, answers), "")
    return answers


async def replay(transaction: Transaction, acts: Sequence[Replay], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
    records = Records(transaction)
    await records.load(ids)
    answers = [replay_one(transaction, records, act, actor) for act in acts]
    await records.flush()
    await inherit_again(transaction, ids_done(ids, answers))
    await remember(transaction, actor, "replay", ids_done(ids, answers), acts[0].queue or "")
    return answers


async def purge(transaction: Transaction, acts: Sequence[Purge], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
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
    """Delete unreadable rows, unless a process that can read them may be running them. Counts follow where known."""
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


ACTS: dict[type[Act], Callable[[Transaction, Sequence[Any], str], Awaitable[list[Changed]]]] = {
    Cancel: cancel,
    Edit: edit,
    Replay: replay,
    Purge: purge,
    CancelWorkflow: cancel_workflows,
    ReplayWorkflow: replay_workflows,
}
