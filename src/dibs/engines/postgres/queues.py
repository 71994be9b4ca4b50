"""Queues: their settings and states, and their deletion."""

from __future__ import annotations

from copy import copy

from msgspec import structs

from dibs.core.moves import buried
from dibs.core.policy import BURY_BATCH
from dibs.core.settings import QueueSettings, reranks
from dibs.core.states import UNFINISHED, WAITING, Reason, State
from dibs.core.task import QueueRecord, QueueState
from dibs.engines.decisions.admin import changes_text
from dibs.engines.decisions.follow_ups import FollowUp, FollowUpKind
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.catalog import Catalog
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.values import Changed, ended_topic, work_topic
from dibs.engines.verbs.records import Records

__all__ = ["bury_some", "delete_queue", "is_deletable", "queues", "set_queue", "set_queue_state"]


async def queues(snapshot: Snapshot) -> list[QueueRecord]:
    stale = await stale_by_queue(snapshot)
    return [as_record(queue, stale.get(name, 0)) for name, queue in sorted(snapshot.catalog.queues.items())]


def as_record(queue: Queue, stale: int) -> QueueRecord:
    return QueueRecord(name=queue.name, state=queue.state, settings=queue.settings, stale=stale)


async def stale_by_queue(snapshot: Snapshot) -> dict[str, int]:
    """How many waiting tasks are in tracks of an earlier epoch."""
    found: dict[str, int] = {}
    for what, number, _, n in await snapshot.all_counts():
        if what in WAITING:
            track = snapshot.catalog.track(number)
            if track.queue not in snapshot.catalog.unreadable and snapshot.catalog.is_stale(track):
                found[track.queue] = found.get(track.queue, 0) + n
    return found


async def set_queue(
    transaction: Transaction, name: str, settings: QueueSettings, expected: int, actor: str
) -> QueueRecord | None:
    transaction.check_queue(name)
    there = transaction.catalog.queues.get(name)
    wanted = structs.replace(settings, version=expected + 1)
    if there is not None and there.settings == wanted:
        return as_record(there, (await stale_by_queue(transaction)).get(name, 0))
    if (there.settings.version if there else 0) != expected:
        return None
    old = there or Queue(name)
    queue = structs.replace(old, settings=wanted, epoch=old.epoch + reranks(old.settings, wanted))
    await transaction.save_queue(queue)
    transaction.catalog = changed_catalog(transaction, queue)
    if old.settings.per_partition != wanted.per_partition:
        transaction.follow_ups.append(FollowUp(FollowUpKind.REORDER_QUEUE, name))
    await transaction.remember(actor, "set queue", name, changes_text(old.settings, wanted))
    transaction.topics.add(work_topic(name))
    return as_record(queue, (await stale_by_queue(transaction)).get(name, 0))


def changed_catalog(transaction: Transaction, queue: Queue) -> Catalog:
    """The copy that this transaction uses from here on; no other transaction sees it."""
    catalog = copy(transaction.catalog)
    catalog.queues = {**catalog.queues, queue.name: queue}
    catalog.rankings = {}
    return catalog


async def set_queue_state(transaction: Transaction, name: str, state: QueueState, actor: str) -> Changed:
    transaction.check_queue(name)
    queue = transaction.catalog.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    if queue.state is state:
        return Changed.UNCHANGED
    await transaction.save_queue(structs.replace(queue, state=state))
    await transaction.remember(actor, f"set queue {state}", name)
    transaction.topics.add(work_topic(name))
    return Changed.DONE


async def is_deletable(transaction: Transaction, name: str, force: bool) -> Changed:
    """Whether a queue may be deleted; with `force`, it takes no new tasks from here on."""
    transaction.check_queue(name)
    queue = transaction.catalog.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    counts = await counts_of(transaction, name)
    if not force and any(counts.get(state) for state in UNFINISHED):
        return Changed.WRONG_STATE
    if force and queue.state is not QueueState.DRAINING and any(counts.get(state) for state in WAITING):
        await transaction.save_queue(structs.replace(queue, state=QueueState.DRAINING))
    return Changed.DONE


async def bury_some(transaction: Transaction, name: str, actor: str) -> bool:
    """Make some waiting tasks of a queue dead; False when none is left. Bounded, so that writers never wait long."""
    tracks = [track.number for track in transaction.catalog.of_queue(name)]
    rows = await transaction.rows("waiting_locked", tracks, BURY_BATCH, transaction.passed_over)
    records = Records(transaction)
    for record in records.adopt(transaction.adopted(rows)):
        records.put(*buried(record, Reason.QUEUE, actor, transaction.now))
    await records.flush()
    return len(rows) == BURY_BATCH


async def delete_queue(transaction: Transaction, name: str, force: bool, actor: str) -> Changed:
    """Delete a queue without waiting tasks (see `bury_some`) and, without `force`, without running ones."""
    if name not in transaction.catalog.queues:
        return Changed.UNKNOWN
    if force:
        while await bury_some(transaction, name, actor):  # the few that were added since
            pass
        await transaction.flush()
    counts = await counts_of(transaction, name)
    if any(counts.get(state) for state in (WAITING if force else UNFINISHED)):
        return Changed.WRONG_STATE
    await transaction.write("delete_queue", name)
    await transaction.next_generation()
    await transaction.remember(actor, "delete queue", name, "force" if force else "")
    transaction.topics.add(ended_topic(name))
    return Changed.DONE


async def counts_of(snapshot: Snapshot, queue: str) -> dict[State, int]:
    tracks = {track.number for track in snapshot.catalog.of_queue(queue)}
    found: dict[State, int] = {}
    for what, track, _, n in await snapshot.all_counts():
        if track in tracks and what in UNFINISHED:
            found[State(what)] = found.get(State(what), 0) + n
    return found
