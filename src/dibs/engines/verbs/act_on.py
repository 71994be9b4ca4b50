"""act_on: one act on all tasks that match, as a background step.

It walks downwards by id from the newest task there was, so it meets no task twice, whatever becomes of those behind it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import structs

from dibs.core.policy import VISIT_BATCH
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.steps import BackgroundStep, Done, StepKind, was_so
from dibs.engines.port import Port, View
from dibs.engines.steps import ActOnAll, DeleteQueue, StepRecord, query_for
from dibs.engines.values import VISIT_LIMIT, Changed, Query, Replay
from dibs.engines.verbs import background
from dibs.engines.verbs.admin import ACTS, name_of
from dibs.engines.verbs.audit import audit
from dibs.engines.verbs.searching import newest_id, walk

__all__ = ["act_on", "act_on_some", "count_matching"]

COUNTED_AT_ONCE = 500


async def count_matching(view: View, query: Query, act: ActOnAll) -> tuple[int, bool]:
    """How many tasks match, and whether there are more: a bounded number is visited."""
    query, found, visited = query_for(act, query, view.now), 0, 0
    while query.states:
        walked = await walk(view, query, COUNTED_AT_ONCE, VISIT_LIMIT - visited)
        found += len(walked.tasks)
        visited += walked.visited
        if walked.cursor is None or visited == VISIT_LIMIT:
            return found, walked.cursor is not None
        query = structs.replace(query, cursor=walked.cursor)
    return 0, False


async def act_on(
    port: Port, step_id: str, query: Query, act: ActOnAll, actor: str, counted: tuple[int, bool]
) -> StepRecord:
    for begun in await background.steps(port, [step_id], 1, None):
        return begun
    if isinstance(act, Replay) and act.queue is not None:
        port.check_queue(act.queue)
    wanted = query_for(act, query, port.now)
    newest = await newest_id(port) if wanted.states else None
    matched, more = counted
    record = StepRecord(id=step_id, act=act, query=wanted, actor=actor, asked_at=port.now, matched=matched, more=more)
    target = f"{'more than ' if more else ''}{matched} tasks"
    await audit(port, actor, f"{name_of(act)} matching", target, f"{step_id} {to_json(query)}")
    step = BackgroundStep(StepKind.ACT_ON_ALL, "", record=record, after="" if newest is None else just_above(newest))
    if newest is None:
        await end(port, step, act)
    await background.begin(port, step)
    return step.record


def just_above(task_id: str) -> str:
    """Where a walk begins whose first task is this one: the lowest id above it."""
    try:
        return str(UUID(int=UUID(task_id).int + 1))
    except ValueError:  # no id that a client makes
        return ""


async def act_on_some(port: Port, steps: list[BackgroundStep], most: int) -> Done:
    """Act on the next tasks that match."""
    step = steps[0]
    record, act = step.record, step.record.act
    assert not isinstance(act, DeleteQueue)
    walked = await walk(port, structs.replace(record.query, cursor=step.after or None), most, VISIT_BATCH)
    ids = [task.id for task in walked.tasks if was_so(record.query, task, record.asked_at)]
    answers: list[Changed] = []
    if ids:
        acts: list[Any] = [structs.replace(act, id=task_id) for task_id in ids]
        answers, _ = await ACTS[type(act)](port, acts, record.actor)
    changed = sum(answer in (Changed.DONE, Changed.REQUESTED) for answer in answers)
    step.record = structs.replace(record, visited=record.visited + len(ids), changed=record.changed + changed)
    if walked.cursor is not None:
        step.after = walked.cursor
        return max(1, len(ids)), steps
    await end(port, step, act)
    return max(1, len(ids)), []


async def end(port: Port, step: BackgroundStep, act: ActOnAll) -> None:
    record = step.record = structs.replace(step.record, ended_at=port.now, outcome=Changed.DONE)
    target = f"{record.changed} of {record.visited} tasks"
    await audit(port, record.actor, f"{name_of(act)} matching ended", target, record.id)
