"""act: what people do to tasks and workflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dibs.core.task import Edit
from dibs.engines.decisions.admin import (
    Acted,
    act_on_each,
    alike,
    cancel_one,
    edit_one,
    key_holders,
    purge_one,
    replay_one,
)
from dibs.engines.decisions.audits import Difference, edited_fields, in_common, status_changed, target
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
            await audit_acts(port, group[0], changed, actor)
    return answers


async def audit_acts(port: Port, first: Act, changed: Sequence[Difference], actor: str) -> None:
    """One line for acts that are like the first of them."""
    detail = first.note if isinstance(first, Cancel) else first.queue if isinstance(first, Replay) else None
    ids = [each.id for each in changed]
    before, after = in_common([each.before for each in changed]), in_common([each.after for each in changed])
    await audit(port, actor, name_of(first), target(ids), detail or "", ids=ids, before=before, after=after)


async def cancel(port: Port, acts: Sequence[Cancel], actor: str) -> Acted:
    records = await loaded(port, acts)
    found = act_on_each(records, acts, lambda act: cancel_one(port, records, act.id, act.note, actor), status_changed)
    await records.flush()
    return found


async def edit(port: Port, acts: Sequence[Edit], actor: str) -> Acted:
    records = await loaded(port, acts)
    found = act_on_each(records, acts, lambda act: edit_one(port, records, act, actor), edited_fields)
    await records.flush()
    return found


async def replay(port: Port, acts: Sequence[Replay], actor: str) -> Acted:
    records = await loaded(port, acts)
    answers, changed = act_on_each(records, acts, lambda act: replay_one(port, records, act, actor), status_changed)
    await records.flush()
    await inherit_again(port, [each.id for each in changed])
    return answers, changed


async def purge(port: Port, acts: Sequence[Purge], actor: str) -> Acted:
    ids = [act.id for act in acts]
    records = await loaded(port, acts)
    keys = key_holders(records)
    answers, changed = act_on_each(records, acts, lambda act: purge_one(records, act.id), status_changed)
    await records.flush()
    if holders := [keys[each.id] for each in changed if each.id in keys]:
        await port.write("purge_keys", sorted((queue, to_json(key), held) for queue, key, held in holders))
    if unreadable := [each for each in ids if each in records.unreadable]:
        gone = await port.purge(unreadable)
        became = {each: Changed.DONE if each in gone else Changed.WRONG_STATE for each in unreadable}
        answers = [became.get(each, answer) for each, answer in zip(ids, answers, strict=True)]
        changed += [Difference(each) for each in unreadable if each in gone]
    return answers, changed


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
