"""Workflows as a whole: what they are made of, and cancelling and replaying all of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dibs.core.ids import is_id
from dibs.core.states import State
from dibs.core.times import Instant
from dibs.engines.decisions.admin import Acted, cancel_one
from dibs.engines.decisions.steps import Done, Step, StepKind, gone_on
from dibs.engines.decisions.workflows import REPLAY_BATCH, Replay, first_members
from dibs.engines.port import Port, Read, View
from dibs.engines.values import CancelWorkflow, Changed, ReplayWorkflow, WorkflowRecord
from dibs.engines.verbs.audit import audit
from dibs.engines.verbs.dependencies import EDGES_OF, inherit_again
from dibs.engines.verbs.records import Records

__all__ = ["cancel_members", "cancel_workflows", "replay_members", "replay_workflows", "workflows"]


class StoredWorkflow(Struct, array_like=True, frozen=True):
    """A workflow as it is stored."""

    id: str
    name: str
    created_at: Instant
    total: int


WORKFLOWS = Read("workflows", StoredWorkflow, "workflow")
"""Takes the id to begin below, or None, and how many: workflows, newest first."""
WORKFLOW = Read("workflow", StoredWorkflow, "workflow")
"""Takes an id: that workflow, if it exists."""
COUNT_BY_STATE = Read("count_by_state", tuple[str, object, int], "count of workflow")
"""Takes workflows: their members by state, as (workflow, state, n)."""
CANCELLABLE_MEMBER = Read("cancellable_member", str, "task")
"""Takes a workflow: one of its members that can still be cancelled, if there is any."""
REPLAYABLE_MEMBER = Read("replayable_member", str, "task")
"""Takes a workflow: one of its members that its replay touches, if there is any."""
DEAD_MEMBERS = Read("dead_members", str, "task")
"""Takes a workflow, the id to begin after or None, and how many: its dead members by id."""
CANCELLED_MEMBERS = Read("cancelled_members", str, "task")
"""Takes the same: its members by id that were cancelled because of a dependency."""

STATES = frozenset(State)


async def workflows(view: View, ids: Sequence[str] | None, limit: int, before: str | None) -> list[WorkflowRecord]:
    if ids is None:
        stored = await view.read(WORKFLOWS, before, limit)
    else:
        wanted = filter(is_id, ids)
        stored = [each for workflow_id in wanted for each in await view.read(WORKFLOW, workflow_id)]
    counts = {each.id: dict.fromkeys(State, 0) for each in stored}
    for workflow_id, state, n in await view.read(COUNT_BY_STATE, list(counts)):
        if isinstance(state, str) and state in STATES:
            counts[workflow_id][State(state)] += n
    return [
        WorkflowRecord(id=each.id, name=each.name, created_at=each.created_at, total=each.total, counts=counts[each.id])
        for each in stored
    ]


async def cancel_workflows(port: Port, acts: Sequence[CancelWorkflow], actor: str) -> Acted:
    steps = [Step(StepKind.CANCEL, act.id, note=act.note, actor=actor) for act in acts]
    return [await begin(port, each, "cancel workflow", CANCELLABLE_MEMBER) for each in steps], []


async def replay_workflows(port: Port, acts: Sequence[ReplayWorkflow], actor: str) -> Acted:
    steps = [Step(StepKind.REPLAY, act.id, actor=actor) for act in acts]
    return [await begin(port, each, "replay workflow", REPLAYABLE_MEMBER) for each in steps], []


async def begin(port: Port, step: Step, act: str, some: Read[str]) -> Changed:
    if not is_id(step.about) or not await port.read(WORKFLOW, step.about):
        return Changed.UNKNOWN
    if not await port.read(some, step.about):
        return Changed.UNCHANGED
    port.steps.append(step)
    await audit(port, step.actor, act, step.about, step.note)
    return Changed.DONE


async def cancel_members(port: Port, steps: list[Step], most: int) -> Done:
    """Cancel the unfinished members of a workflow, by id."""
    step = steps[0]
    found = await port.load_by("members", step.about, step.after or None, most)
    records = Records(port)
    for record in records.adopt(found):
        cancel_one(port, records, record.id, step.note, step.actor)
    await records.flush()
    return gone_on(steps, [each.id for each in found], most)


async def replay_members(port: Port, steps: list[Step], most: int) -> Done:
    """Run the dead members of a workflow again, and let those wait again that ended because of a dependency."""
    step, most = steps[0], min(most, REPLAY_BATCH)
    asked = (step.about, step.after or None, most)
    ids = first_members(await port.read(DEAD_MEMBERS, *asked), await port.read(CANCELLED_MEMBERS, *asked), most)
    edges = await port.read(EDGES_OF, ids)
    records = Records(port)
    await records.load([*ids, *(edge.prerequisite for edge in edges)])
    replay = Replay(port, records, edges, step.actor)
    for task_id in ids:
        replay.one(task_id)
    await records.flush()
    if replay.opened:
        await port.write("open_edges", [(edge.dependent, edge.slot, weight) for edge, weight in replay.opened])
    if replay.heirs:
        await inherit_again(port, replay.heirs)
    return gone_on(steps, ids, most)
