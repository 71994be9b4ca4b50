"""Workflows as a whole: their counts, and cancelling and replaying all their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.json import decode

from dibs.core.policy import CHORE_BATCH
from dibs.core.states import State
from dibs.core.times import Instant
from dibs.engines.decisions.admin import cancel_one
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.follow_ups import Done, FollowUp, FollowUpKind, gone_on
from dibs.engines.decisions.workflows import REPLAY_BATCH, Outgoing, Replay, first_members
from dibs.engines.sqlite.dependencies import inherit_again
from dibs.engines.sqlite.records import Records
from dibs.engines.sqlite.retention import Step
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.values import CancelWorkflow, Changed, ReplayWorkflow, WorkflowRecord

__all__ = [
    "cancel_members",
    "cancel_workflows",
    "prune_workflows",
    "replay_members",
    "replay_workflows",
    "workflows",
]


STATES = frozenset(State)


class StoredWorkflow(Struct, array_like=True, frozen=True):
    """A row of dibs_workflows, and its members by state in each of the three places."""

    id: str
    name: str
    created_at: Instant
    total: int
    counts: list[tuple[object, int]]


WORKFLOWS = RowDecoder(StoredWorkflow, "workflow")
OUTGOING = RowDecoder(Outgoing, "edge of task")
texts_decoder = msgspec.json.Decoder(list[str])


def workflows(snapshot: Snapshot, ids: Sequence[str] | None, limit: int, before: str | None) -> list[WorkflowRecord]:
    if ids is None:
        found = stored(snapshot, "workflows", before, limit)
    else:
        found = [each for workflow_id in ids for each in stored(snapshot, "workflow", workflow_id)]
    return [as_record(each) for each in found]


def stored(snapshot: Snapshot, name: str, *parameters: object) -> list[StoredWorkflow]:
    def one_by_one(rows: list[tuple[Any, ...]]) -> list[StoredWorkflow]:
        return WORKFLOWS.one_by_one([(*row[:4], counts_of(row[4])) for row in rows], snapshot.aside)

    return snapshot.together_or_each(WORKFLOWS.decode, one_by_one, name, *parameters)


def counts_of(stored: str | bytes) -> object:
    """The counts by state; a state that is not UTF-8 is an unknown one."""
    return decode(stored.decode(errors="replace") if isinstance(stored, bytes) else stored)


def as_record(stored: StoredWorkflow) -> WorkflowRecord:
    counts = dict.fromkeys(State, 0)
    for state, count in stored.counts:
        if isinstance(state, str) and state in STATES:
            counts[State(state)] += count
    return WorkflowRecord(
        id=stored.id, name=stored.name, created_at=stored.created_at, total=stored.total, counts=counts
    )


def cancel_workflows(transaction: Transaction, acts: Sequence[CancelWorkflow], actor: str) -> list[Changed]:
    follow_ups = [FollowUp(FollowUpKind.CANCEL, act.id, note=act.note, actor=actor) for act in acts]
    return [begin(transaction, each, "cancel workflow", "has_cancellable") for each in follow_ups]


def replay_workflows(transaction: Transaction, acts: Sequence[ReplayWorkflow], actor: str) -> list[Changed]:
    follow_ups = [FollowUp(FollowUpKind.REPLAY, act.id, actor=actor) for act in acts]
    return [begin(transaction, each, "replay workflow", "has_replayable") for each in follow_ups]


def begin(transaction: Transaction, follow_up: FollowUp, act: str, look: str) -> Changed:
    if transaction.row("has_workflow", follow_up.about) is None:
        return Changed.UNKNOWN
    if not transaction.value(look, follow_up.about):
        return Changed.UNCHANGED
    transaction.follow_ups.append(follow_up)
    transaction.remember(follow_up.actor, act, follow_up.about, follow_up.note)
    return Changed.DONE


def cancel_members(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Cancel the unfinished members of a workflow, by id."""
    follow_up = follow_ups[0]
    rows = transaction.tasks("members", follow_up.about, follow_up.after, most)
    records = Records(transaction)
    for record in records.adopt(rows):
        cancel_one(transaction, records, record.id, follow_up.note, follow_up.actor)
    records.flush()
    return gone_on(follow_ups, [row.id for row in rows], most)


def replay_members(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Run the dead members of a workflow again; those that ended because of a dependency wait again."""
    follow_up, most = follow_ups[0], min(most, REPLAY_BATCH)
    asked = (follow_up.about, follow_up.after, most)
    dead = texts_decoder.decode(transaction.value("dead_members", *asked))
    stopped = texts_decoder.decode(transaction.value("cancelled_members", *asked))
    ids = first_members(dead, stopped, most)
    edges = transaction.many(OUTGOING, "edges_of", to_json(ids))
    records = Records(transaction, [*ids, *(edge.prerequisite for edge in edges)])
    replay = Replay(transaction, records, edges, follow_up.actor)
    for task_id in ids:
        replay.one(task_id)
    records.flush()
    if replay.opened:
        opened = [(edge.dependent, edge.slot, weight) for edge, weight in replay.opened]
        transaction.write("open_edges", to_json(opened))
    if replay.heirs:
        inherit_again(transaction, replay.heirs)
    return gone_on(follow_ups, ids, most)


def prune_workflows(transaction: Transaction) -> Step:
    """Delete workflows that have no members left: checks a bounded number, from where the last step stopped."""
    stored = transaction.row("chore", "prune_workflows")
    after = "" if stored is None or stored[1] is None else str(stored[1])
    looked, last, empty = transaction.row("empty_workflows", after, CHORE_BATCH)
    doomed = texts_decoder.decode(empty)
    if doomed:
        transaction.write("delete_workflows", empty)
    more = looked == CHORE_BATCH
    transaction.write("save_cursor", "prune_workflows", last if more else None)
    return Step(len(doomed), more)
