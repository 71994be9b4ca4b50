"""act_on: one act on all tasks that match, as a background step.

It walks downwards by id from the newest task there was, so it meets no task twice, whatever becomes of those behind it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import structs, to_builtins

from dibs.core.policy import ACT_BATCH, VISIT_BATCH
from dibs.core.times import when
from dibs.engines.decisions.audits import asked_for
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.searching import has_counts_only, is_track_meant
from dibs.engines.decisions.steps import BackgroundStep, StepKind, was_so
from dibs.engines.port import Port, View
from dibs.engines.steps import ActOnAll, DeleteQueue, StepRecord, query_for
from dibs.engines.values import READ_LIMIT, VISIT_LIMIT, Cancel, Changed, Query, Replay
from dibs.engines.verbs import background
from dibs.engines.verbs.admin import ACTS, name_of
from dibs.engines.verbs.audit import MOST_IDS, audit
from dibs.engines.verbs.searching import newest_id, walk

__all__ = ["act_on", "act_on_some", "count_matching", "next_tasks"]

COUNTED_AT_ONCE = 500


async def count_matching(view: View, query: Query, act: ActOnAll) -> tuple[int, bool]:
    """How many tasks match, and whether there are more: a bounded number is visited, unless counts tell."""
    query, found = query_for(act, query, view.now), 0
    if has_counts_only(query, view.now):
        return await count_by_track(view, query), False
    visits, reads = VISIT_LIMIT, READ_LIMIT
    while query.states:
        walked = await walk(view, query, COUNTED_AT_ONCE, visits, reads)
        found, visits, reads = found + len(walked.tasks), visits - walked.visited, reads - walked.reads
        if walked.cursor is None or visits <= 0 or reads <= 0:
            return found, walked.cursor is not None
        query = structs.replace(query, cursor=walked.cursor)
    return 0, False


async def count_by_track(view: View, query: Query) -> int:
    counts = await view.counts_by_track()
    return sum(
        n for state, track, n in counts if state in query.states and is_track_meant(query, track.queue, track.name)
    )


async def act_on(
    port: Port, step_id: str, query: Query, act: ActOnAll, actor: str, counted: tuple[int, bool]
) -> StepRecord:
    if isinstance(act, Replay) and act.queue is not None:
        port.check_queue(act.queue)
    wanted = query_for(act, query, port.now)
    newest = await newest_id(port) if wanted.states else None
    matched, more = counted
    record = StepRecord(id=step_id, act=act, query=wanted, actor=actor, asked_at=port.now, matched=matched, more=more)
    step = BackgroundStep(StepKind.ACT_ON_ALL, "", record=record, after="" if newest is None else just_above(newest))
    if not await background.begin(port, step):  # a repeat
        (record,) = await background.steps(port, [step_id], 1, None)
        return record
    target = f"{'more than ' if more else ''}{matched} tasks"
    detail = f"step {step_id}, {conditions_text(query)}{note_text(act)}"
    await audit(port, actor, f"{name_of(act)} matching", target, detail, after=asked_for(act))
    if newest is None:
        (step,) = await background.load(port, step_id)
        await end(port, step, act)
        await background.save(port, step)
    return step.record


def conditions_text(query: Query) -> str:
    """What a filter asks for, in words."""
    given = to_builtins(structs.replace(query, limit=Query().limit, cursor=None))
    return ", ".join(f"{name} {condition_text(name, value)}" for name, value in given.items()) or "all tasks"


def condition_text(name: str, value: Any) -> str:
    if name.startswith("created_"):
        return f"{when(value):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, list | tuple):
        return " or ".join(map(str, value))
    return value if isinstance(value, str) else to_json(value)


def note_text(act: ActOnAll) -> str:
    return f"; reason: {act.note}" if isinstance(act, Cancel) and act.note else ""


def just_above(task_id: str) -> str:
    """Where a walk begins whose first task is this one: the lowest id above it."""
    try:
        return str(UUID(int=UUID(task_id).int + 1))
    except ValueError:  # no id that a client makes
        return ""


async def next_tasks(view: View, record: StepRecord, after: str) -> tuple[list[str], str | None]:
    """The next tasks to act on, and where to go on; None at the end."""
    query = structs.replace(record.query, cursor=after or None)
    walked = await walk(view, query, ACT_BATCH, VISIT_LIMIT, VISIT_BATCH)
    return [task.id for task in walked.tasks if was_so(query, task, record.asked_at)], walked.cursor


async def act_on_some(port: Port, step: BackgroundStep, ids: list[str], cursor: str | None) -> None:
    record, act = step.record, step.record.act
    assert not isinstance(act, DeleteQueue)
    acts: list[Any] = [structs.replace(act, id=task_id) for task_id in ids]
    answers = (await ACTS[type(act)](port, acts, record.actor))[0] if ids else []
    changed = [each for each, answer in zip(ids, answers, strict=True) if answer in (Changed.DONE, Changed.REQUESTED)]
    step.record = structs.replace(
        record,
        visited=record.visited + len(ids),
        changed=record.changed + len(changed),
        ids=(*record.ids, *changed)[:MOST_IDS],
    )
    step.after = cursor or ""
    if cursor is None:
        await end(port, step, act)


async def end(port: Port, step: BackgroundStep, act: ActOnAll) -> None:
    record = step.record = structs.replace(step.record, ended_at=port.now, outcome=Changed.DONE)
    target = f"{record.changed} of {record.visited} tasks"
    await audit(port, record.actor, f"{name_of(act)} matching ended", target, f"step {record.id}", ids=record.ids)
