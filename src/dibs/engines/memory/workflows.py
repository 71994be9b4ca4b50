"""Workflows of a memory store as a whole."""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Callable, Sequence

from dibs.core.policy import CHORE_BATCH
from dibs.core.states import WAITING, State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.memory.edges import FollowUp, FollowUpKind
from dibs.engines.memory.follow_ups import is_replayable
from dibs.engines.memory.store import Store, Workflow
from dibs.engines.values import CancelWorkflow, Changed, ReplayWorkflow, WorkflowRecord

__all__ = ["cancel_workflows", "prune_workflows", "replay_workflows", "workflows"]


def workflows(store: Store, ids: Sequence[str] | None, limit: int, before: str | None) -> list[WorkflowRecord]:
    if ids is None:
        ids = sorted((i for i in store.workflows if before is None or i < before), reverse=True)[:limit]
    return [workflow_record(store, workflow_id) for workflow_id in ids if workflow_id in store.workflows]


def workflow_record(store: Store, workflow_id: str) -> WorkflowRecord:
    workflow = store.workflows[workflow_id]
    states = Totals(record.state for record in members_of(store, workflow))
    return WorkflowRecord(
        id=workflow_id,
        name=workflow.new.name,
        created_at=workflow.created_at,
        total=len(workflow.members),
        counts={state: states[state] for state in State},
    )


def members_of(store: Store, workflow: Workflow) -> list[TaskRecord]:
    """The tasks of a workflow that still exist. An id may have been purged and reused, in the workflow or elsewhere."""
    found = (store.tasks.get(task_id) for task_id in set(workflow.members))
    return [record for record in found if record is not None and record.spec.workflow == workflow.new.id]


def cancel_workflows(store: Store, acts: Sequence[CancelWorkflow], actor: str, now: Instant) -> list[Changed]:
    follow_ups = [FollowUp(FollowUpKind.CANCEL, act.id, note=act.note, actor=actor) for act in acts]
    return [begin(store, each, is_cancellable, "cancel workflow", now) for each in follow_ups]


def is_cancellable(record: TaskRecord) -> bool:
    return record.state in WAITING or (record.state is State.RUNNING and record.cancel_reason is None)


def replay_workflows(store: Store, acts: Sequence[ReplayWorkflow], actor: str, now: Instant) -> list[Changed]:
    follow_ups = [FollowUp(FollowUpKind.REPLAY, act.id, actor=actor) for act in acts]
    return [begin(store, each, is_replayable, "replay workflow", now) for each in follow_ups]


def begin(store: Store, follow_up: FollowUp, wanted: Callable[[TaskRecord], bool], act: str, now: Instant) -> Changed:
    """Add a follow-up about the members of a workflow, if there are any that it concerns."""
    workflow = store.workflows.get(follow_up.id)
    if workflow is None:
        return Changed.UNKNOWN
    if not any(wanted(record) for record in members_of(store, workflow)):
        return Changed.UNCHANGED
    workflow.members.sort()
    store.edges.follow_ups.append(follow_up)
    store.remember(follow_up.actor, act, follow_up.id, follow_up.note, now)
    return Changed.DONE


def prune_workflows(store: Store, now: Instant) -> int:
    """Delete workflows that have no members left."""
    empty = [key for key, each in store.workflows.items() if not any(i in store.tasks for i in each.members)]
    doomed = empty[:CHORE_BATCH]
    for workflow_id in doomed:
        del store.workflows[workflow_id]
    return len(doomed)
