"""Workflows as a whole: their counts, and cancelling and replaying all their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.core.graph import Rule
from dibs.core.states import State
from dibs.engines.decisions.admin import cancel_one
from dibs.engines.decisions.follow_ups import Done, FollowUp, FollowUpKind, gone_on
from dibs.engines.decisions.workflows import REPLAY_BATCH, Outgoing, Replay, first_members
from dibs.engines.postgres.dependencies import inherit_again, known_rule
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.values import CancelWorkflow, Changed, ReplayWorkflow, WorkflowRecord

__all__ = ["cancel_members", "cancel_workflows", "replay_members", "replay_workflows", "workflows"]

STATES = frozenset(State)
LOWEST = "00000000-0000-0000-0000-000000000000"


async def workflows(
    snapshot: Snapshot, ids: Sequence[str] | None, limit: int, before: str | None
) -> list[WorkflowRecord]:
    if ids is None:
        rows = await snapshot.rows("workflows", before, limit)
    else:
        rows = [row for workflow_id in ids for row in await snapshot.rows("workflow", workflow_id)]
    return await with_counts(snapshot, rows)


async def with_counts(snapshot: Snapshot, rows: list[Any]) -> list[WorkflowRecord]:
    counts = {row["id"]: dict.fromkeys(State, 0) for row in rows}
    for row in await snapshot.rows("count_by_state", list(counts)):
        if row["state"] in STATES:
            counts[row["workflow"]][State(row["state"])] += row["n"]
    return [
        WorkflowRecord(
            id=str(row["id"]),
            name=row["name"],
            created_at=row["created_at"],
            total=row["total"],
            counts=counts[row["id"]],
        )
        for row in rows
    ]


async def cancel_workflows(transaction: Transaction, acts: Sequence[CancelWorkflow], actor: str) -> list[Changed]:
    follow_ups = [FollowUp(FollowUpKind.CANCEL, act.id, note=act.note, actor=actor) for act in acts]
    return [await begin(transaction, each, "cancel workflow", "has_cancellable") for each in follow_ups]


async def replay_workflows(transaction: Transaction, acts: Sequence[ReplayWorkflow], actor: str) -> list[Changed]:
    follow_ups = [FollowUp(FollowUpKind.REPLAY, act.id, actor=actor) for act in acts]
    return [await begin(transaction, each, "replay workflow", "has_replayable") for each in follow_ups]


async def begin(transaction: Transaction, follow_up: FollowUp, act: str, look: str) -> Changed:
    if not await transaction.rows("workflow", follow_up.about):
        return Changed.UNKNOWN
    if not await transaction.value(look, follow_up.about):
        return Changed.UNCHANGED
    transaction.follow_ups.append(follow_up)
    await transaction.remember(follow_up.actor, act, follow_up.about, follow_up.note)
    return Changed.DONE


async def cancel_members(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Cancel the unfinished members of a workflow, by id."""
    follow_up = follow_ups[0]
    rows = await transaction.rows("members", follow_up.about, follow_up.after or LOWEST, most)
    records = Records(transaction)
    for record in records.adopt(rows):
        cancel_one(transaction, records, record.id, follow_up.note, follow_up.actor)
    await records.flush()
    return gone_on(follow_ups, [str(row["id"]) for row in rows], most)


async def replay_members(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Run the dead members of a workflow again; those that ended because of a dependency wait again."""
    follow_up, most = follow_ups[0], min(most, REPLAY_BATCH)
    asked = (follow_up.about, follow_up.after or LOWEST, most)
    dead = [str(row["id"]) for row in await transaction.rows("dead_members", *asked)]
    stopped = [str(row["id"]) for row in await transaction.rows("cancelled_members", *asked)]
    ids = first_members(dead, stopped, most)
    edges = [
        Outgoing(str(row["dependent"]), row["slot"], str(row["prerequisite"]), Rule(row["rule"]))
        for row in await transaction.rows("needs", ids)
        if known_rule(transaction, row)
    ]
    records = Records(transaction)
    await records.load([*ids, *(edge.prerequisite for edge in edges)])
    replay = Replay(transaction, records, edges, follow_up.actor)
    for task_id in ids:
        replay.one(task_id)
    await records.flush()
    if replay.opened:
        opened = [(edge.dependent, edge.slot, weight) for edge, weight in replay.opened]
        await transaction.write("open_edges", *columns(opened, 3))
        await transaction.write("follow", sorted({edge.prerequisite for edge, _ in replay.opened}))
    if replay.heirs:
        await inherit_again(transaction, replay.heirs)
    return gone_on(follow_ups, ids, most)
