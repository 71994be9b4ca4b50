"""act: what people do to tasks and workflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dibs.core.task import Edit
from dibs.engines.decisions.admin import Acted, alike, cancel_all, edit_one, ids_done, purge_all, replay_one, target
from dibs.engines.decisions.encoding import to_json
from dibs.engines.port import Port
from dibs.engines.values import Act, Cancel, CancelWorkflow, Changed, Purge, Replay, ReplayWorkflow
from dibs.engines.verbs.audit import audit
from dibs.engines.verbs.dependencies import inherit_again
from dibs.engines.verbs.records import Records
from dibs.engines.verbs.workflows import cancel_workflows, replay_workflows

__all__ = ["ACTS", "act", "name_of"]


async def act(port: Port, acts: Sequence[Act], actor: str) -> list[Changed]:
    answers: list[Changed] = []
    for group in alike(acts):
        answered, changed = await ACTS[type(group[0])](port, group, actor)
        answers += answered
        if changed:
            first = group[0]
            detail = first.note if isinstance(first, Cancel) else first.queue if isinstance(first, Replay) else None
            await audit(port, actor, name_of(first), target(changed), detail or "")
    return answers


async def cancel(port: Port, acts: Sequence[Cancel], actor: str) -> Acted:
    records = await loaded(port, acts)
    answers, changed = cancel_all(port, records, acts, actor)
    await records.flush()
    return answers, changed


async def edit(port: Port, acts: Sequence[Edit], actor: str) -> Acted:
    records = await loaded(port, acts)
    answers = [edit_one(port, records, act, actor) for act in acts]
    await records.flush()
    return answers, ids_done([act.id for act in acts], answers)


async def replay(port: Port, acts: Sequence[Replay], actor: str) -> Acted:
    records = await loaded(port, acts)
    answers = [replay_one(port, records, act, actor) for act in acts]
    await records.flush()
    done = ids_done([act.id for act in acts], answers)
    await inherit_again(port, done)
    return answers, done


async def purge(port: Port, acts: Sequence[Purge], actor: str) -> Acted:
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
    return answers, ids_done(ids, answers)


async def loaded(port: Port, acts: Sequence[Cancel | Edit | Purge | Replay]) -> Records:
    records = Records(port)
    await records.load(act.id for act in acts)
    return records


def name_of(act: Act) -> str:
    """How the audit log calls an act."""
    return str(act.__struct_config__.tag)


ACTS: dict[type[Act], Callable[[Port, Sequence[Any], str], Awaitable[Acted]]] = {
    Cancel: cancel,
    Edit: edit,
    Replay: replay,
    Purge: purge,
    CancelWorkflow: cancel_workflows,
    ReplayWorkflow: replay_workflows,
}
