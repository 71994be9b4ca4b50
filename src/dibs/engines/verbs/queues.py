"""Queues: their settings and states, and their deletion."""

from __future__ import annotations

from collections import Counter as Totals

from msgspec import structs

from dibs.core.moves import buried
from dibs.core.policy import BURY_BATCH
from dibs.core.settings import QueueSettings, reranks
from dibs.core.states import UNFINISHED, WAITING, Reason, State
from dibs.core.task import QueueRecord, QueueState
from dibs.engines.decisions.admin import changes_text
from dibs.engines.decisions.follow_ups import FollowUp, FollowUpKind
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import Port, View
from dibs.engines.topics import ended_topic, work_topic
from dibs.engines.values import Changed
from dibs.engines.verbs.audit import audit
from dibs.engines.verbs.records import Records

__all__ = ["bury_some", "delete_queue", "is_deletable", "queues", "set_queue", "set_queue_state"]


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
        port.follow_ups.append(FollowUp(FollowUpKind.REORDER_QUEUE, name))
    await audit(port, actor, "set queue", name, changes_text(old.settings, wanted))
    port.topics.add(work_topic(name))
    return as_record(queue, await stale_by_queue(port))


async def set_queue_state(port: Port, name: str, state: QueueState, actor: str) -> Changed:
    port.check_queue(name)
    queue = port.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    if queue.state is state:
        return Changed.UNCHANGED
    await port.save_queue(structs.replace(queue, state=state))
    await audit(port, actor, f"set queue {state}", name)
    port.topics.add(work_topic(name))
    return Changed.DONE


async def is_deletable(port: Port, name: str, force: bool) -> Changed:
    """Whether a queue may be deleted; with `force`, it takes no new tasks from here on."""
    port.check_queue(name)
    queue = port.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    counts = await counts_of(port, name)
    if not force and any(counts[state] for state in UNFINISHED):
        return Changed.WRONG_STATE
    if force and queue.state is not QueueState.DRAINING and any(counts[state] for state in WAITING):
        await port.save_queue(structs.replace(queue, state=QueueState.DRAINING))
    return Changed.DONE


async def bury_some(port: Port, name: str, actor: str) -> bool:
    """Make some waiting tasks of a queue dead; False when none is left. Bounded, so that writers never wait long."""
    found = await port.waiting_in(name, BURY_BATCH)
    records = Records(port)
    for record in records.adopt(found):
        records.put(*buried(record, Reason.QUEUE, actor, port.now))
    await records.flush()
    return len(found) == BURY_BATCH


async def delete_queue(port: Port, name: str, force: bool, actor: str) -> Changed | None:
    """Delete a queue without waiting tasks (see `bury_some`) and, without `force`, without running ones.

    None if that takes another step.
    """
    if name not in port.queues:
        return Changed.UNKNOWN
    if force:
        while await bury_some(port, name, actor):  # the few that were added since
            pass
        await port.flush()
    counts = await counts_of(port, name)
    if any(counts[state] for state in (WAITING if force else UNFINISHED)):
        return Changed.WRONG_STATE
    if not await port.delete_queue(name, BURY_BATCH):
        return None
    await audit(port, actor, "delete queue", name, "force" if force else "")
    port.topics.add(ended_topic(name))
    return Changed.DONE


async def counts_of(view: View, queue: str) -> Totals[State]:
    found: Totals[State] = Totals()
    for state, track, n in await view.counts_by_track():
        if track.queue == queue:
            found[state] += n
    return found
