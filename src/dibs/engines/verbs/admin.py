"""act: what people do to tasks and workflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dibs.core.task import Edit
from dibs.engines.decisions.admin import alike, cancel_all, edit_one, ids_done, purge_all, replay_one, target
from dibs.engines.decisions.encoding import to_json
from dibs.engines.port import Port
from dibs.engines.values import Act, Cancel, CancelWorkflow, Changed, Purge, Replay, ReplayWorkflow
from dibs.engines.verbs.audit import audit
from dibs.engines.verbs.dependencies import inherit_again
from dibs.engines.verbs.records import Records
from dibs.engines.verbs.workflows import cancel_workflows, replay_workflows

__all__ = ["act"]


async def act(port: Port, acts: Sequence[Act], actor: str) -> list[Changed]:
    answers: list[Changed] = []
    for group in alike(acts):
        answers += await ACTS[type(group[0])](port, group, actor)
    return answers


async def cancel(port: Port, acts: Sequence[Cancel], actor: str) -> list[Changed]:
    records = await loaded(port, acts)
    answers, changed = cancel_all(port, records, acts, actor)
    await records.flush()
    await audit_tasks(port, actor, "cancel", changed, acts[0].note)
    return answers


async def edit(port: Port, acts: Sequence[Edit], actor: str) -> list[Changed]:
    records = await loaded(port, acts)
    answers = [edit_one(port, records, act, actor) for act in acts]
    await records.flush()
    await audit_tasks(port, actor, "edit", ids_done([act.id for act in acts], answers), "")
    return answers


async def replay(port: Port, acts: Sequence[Replay], actor: str) -> list[Changed]:
    records = await loaded(port, acts)
    answers = [replay_one(port, records, act, actor) for act in acts]
    await records.flush()
    done = ids_done([act.id for act in acts], answers)
    await inherit_again(port, done)
    await audit_tasks(port, actor, "replay", done, acts[0].queue or "")
    return answers


async def purge(port: Port, acts: Sequence[Purge], actor: str) -> list[Changed]:
    ids = [act.id for act in acts]
    records = await loaded(port, acts)
    answers, holders = purge_all(records, ids)
    await records.flush()
    if unreadable := [each for each in ids if each in records.unreadable]:
        gone = await port.purge(unreadable)
        became = {each: Changed.DONE if each in gone else Changed.WRONG_STATE for each in unreadable}
        answers = [became.get(each, answer) for each, answer in zip(ids, answers, strict=True)]
    if holders:
        await port.write("purge_keys", sorted((queue, to_json(key), held) for queue, key, held in holders))
    await audit_tasks(port, actor, "purge", ids_done(ids, answers), "")
    return answers


async def loaded(port: Port, acts: Sequence[Cancel | Edit | Purge | Replay]) -> Records:
    records = Records(port)
    await records.load(act.id for act in acts)
    return records


async def audit_tasks(port: Port, actor: str, act: str, ids: list[str], detail: str) -> None:
    if ids:
        await audit(port, actor, act, target(ids), detail)


ACTS: dict[type[Act], Callable[[Port, Sequence[Any], str], Awaitable[list[Changed]]]] = {
    Cancel: cancel,
    Edit: edit,
    Replay: replay,
    Purge: purge,
    CancelWorkflow: cancel_workflows,
    ReplayWorkflow: replay_workflows,
}
