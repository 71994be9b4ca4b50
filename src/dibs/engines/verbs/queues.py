"""Queues: their settings and states, and their deletion."""

from __future__ import annotations

from collections import Counter as Totals

from msgspec import structs

from dibs.core.moves import buried
from dibs.core.policy import BURY_BATCH
from dibs.core.settings import QueueSettings, reranks
from dibs.core.states import UNFINISHED, WAITING, Reason, State
from dibs.core.task import QueueRecord, QueueState
from dibs.engines.decisions.audits import changes_text, queue_fields, settings_changed
from dibs.engines.decisions.events import QUEUE_EVENTS
from dibs.engines.decisions.steps import BackgroundStep, Step, StepKind
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import Port, View
from dibs.engines.steps import DeleteQueue, StepRecord
from dibs.engines.topics import ended_topic, room_topic, work_topic
from dibs.engines.values import Changed, Query
from dibs.engines.verbs import background
from dibs.engines.verbs.audit import audit
from dibs.engines.verbs.records import Records
from dibs.observe.events import EventType

__all__ = ["EMPTY", "delete_queue", "delete_some", "queues", "set_queue", "set_queue_state"]

EMPTY = "empty"
"""How far the deletion of a queue has come that has no waiting tasks left."""
MOST_OPEN = 1000
"""Open steps among which the deletion of a queue is looked for that has begun already."""


async def queues(view: View) -> list[QueueRecord]:
    stale = await stale_by_queue(view)
    return [as_record(queue, stale) for _, queue in sorted(view.queues.items())]


def as_record(queue: Queue, stale: Totals[str]) -> QueueRecord:
    return QueueRecord(name=queue.name, state=queue.state, settings=queue.settings, stale=stale[queue.name])


async def stale_by_queue(view: View) -> Totals[str]:
    """How many waiting tasks are in tracks of an earlier epoch."""
    found: Totals[str] = Totals()
    for state, track, n in await view.counts_by_track():
        queue = view.queues.get(track.queue)
        if state in WAITING and queue is not None and track.epoch != queue.epoch:
            found[track.queue] += n
    return found


async def set_queue(port: Port, name: str, settings: QueueSettings, expected: int, actor: str) -> QueueRecord | None:
    port.check_queue(name)
    there = port.queues.get(name)
    wanted = structs.replace(settings, version=expected + 1)
    if there is not None and there.settings == wanted:
        return as_record(there, await stale_by_queue(port))
    if (there.settings.version if there else 0) != expected:
        return None
    old = there or Queue(name)
    queue = structs.replace(old, settings=wanted, epoch=old.epoch + reranks(old.settings, wanted))
    await port.save_queue(queue)
    if old.settings.per_partition != wanted.per_partition:
        port.steps.append(Step(StepKind.REORDER_QUEUE, name))
    before, after = settings_changed(old.settings, wanted)
    await audit(port, actor, "set queue", name, changes_text(old.settings, wanted), before=before, after=after)
    port.emit(EventType.QUEUE_CHANGED, queue=name, actor=actor, before=before, after=after)
    port.topics.update((work_topic(name), room_topic(name)))
    return as_record(queue, await stale_by_queue(port))


async def set_queue_state(port: Port, name: str, state: QueueState, actor: str) -> Changed:
    port.check_queue(name)
    queue = port.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    if queue.state is state:
        return Changed.UNCHANGED
    await port.save_queue(structs.replace(queue, state=state))
    await audit(port, actor, f"set queue {state}", name, before={"state": queue.state}, after={"state": state})
    port.emit(QUEUE_EVENTS[state], queue=name, actor=actor)
    port.topics.update((work_topic(name), room_topic(name)))
    return Changed.DONE


async def delete_queue(port: Port, name: str, force: bool, actor: str, step_id: str) -> Changed | StepRecord:
    """Delete a queue now, or begin to: then the answer is a step that goes on, and the queue takes no new tasks."""
    port.check_queue(name)
    queue = port.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    counts = await counts_of(port, name)
    if not force and any(counts[state] for state in UNFINISHED):
        return Changed.WRONG_STATE
    for each in await background.open_steps(port, MOST_OPEN):
        if each.what is StepKind.DELETE_QUEUE and each.about == name:
            return each.record
    record = StepRecord(
        id=step_id,
        act=DeleteQueue(name, force),
        query=Query(queues=(name,), states=tuple(sorted(WAITING))),
        actor=actor,
        asked_at=port.now,
        matched=sum(counts[state] for state in WAITING),
    )
    step = BackgroundStep(StepKind.DELETE_QUEUE, name, record=record)
    await delete_some(port, step, exclusive=True)
    if step.record.outcome is not None:
        return step.record.outcome
    if queue.state is not QueueState.DRAINING:
        await port.save_queue(structs.replace(queue, state=QueueState.DRAINING))
    detail = f"begun: {record.matched} waiting tasks"
    await audit(port, actor, "delete queue", name, detail, before=queue_fields(queue))
    await background.begin(port, step)
    return step.record


async def delete_some(port: Port, step: BackgroundStep, exclusive: bool) -> None:
    """Make some waiting tasks of a queue dead. When none is left, delete it, if the transaction is alone."""
    more, name, record = False, step.about, step.record
    if name in port.queues:
        number, more = await bury_some(port, name, record.actor)
        record = structs.replace(record, visited=record.visited + number, changed=record.changed + number)
    outcome = await delete_empty(port, name, record) if exclusive and not more else None
    ended_at = None if outcome is None else port.now
    step.record, step.after = structs.replace(record, outcome=outcome, ended_at=ended_at), "" if more else EMPTY


async def bury_some(port: Port, name: str, actor: str) -> tuple[int, bool]:
    """Make some waiting tasks of a queue dead: how many, and whether there may be more."""
    found = await port.waiting_in(name, BURY_BATCH)
    records = Records(port)
    readable = records.adopt(found)
    for record in readable:
        records.put(*buried(record, Reason.QUEUE, actor, port.now))
    await records.flush()
    return len(readable), len(found) == BURY_BATCH


async def delete_empty(port: Port, name: str, record: StepRecord) -> Changed | None:
    """Delete a queue without waiting tasks and, without `force`, without running ones. None if that takes longer."""
    if name not in port.queues:
        return Changed.UNKNOWN
    await port.flush()
    counts = await counts_of(port, name)
    force = isinstance(record.act, DeleteQueue) and record.act.force
    if any(counts[state] for state in (WAITING if force else UNFINISHED)):
        return Changed.WRONG_STATE
    there = queue_fields(port.queues[name])
    if not await port.delete_queue(name, BURY_BATCH):
        return None
    await audit(port, record.actor, "delete queue", name, "force" if force else "", before=there)
    port.emit(EventType.QUEUE_DELETED, queue=name, actor=record.actor)
    port.topics.update((ended_topic(name), room_topic(name)))
    return Changed.DONE


async def counts_of(view: View, queue: str) -> Totals[State]:
    found: Totals[State] = Totals()
    for state, track, n in await view.counts_by_track():
        if track.queue == queue:
            found[state] += n
    return found
