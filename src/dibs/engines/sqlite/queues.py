"""Queues: their settings and states, and their deletion."""

from __future__ import annotations

from msgspec import structs

from dibs.core.moves import buried
from dibs.core.policy import BURY_BATCH
from dibs.core.settings import QueueSettings, reranks
from dibs.core.states import UNFINISHED, WAITING, Reason, State
from dibs.core.task import QueueRecord, QueueState
from dibs.engines.decisions.admin import changes_text
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.follow_ups import FollowUp, FollowUpKind
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import at_once
from dibs.engines.sqlite.rows import Row
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.values import Changed, UnreadableTask, ended_topic, work_topic
from dibs.engines.verbs.records import Records

__all__ = [
    "bury_some",
    "delete_queue",
    "forget_some",
    "is_deletable",
    "queues",
    "set_queue",
    "set_queue_state",
    "stale_count",
]


def queues(snapshot: Snapshot) -> list[QueueRecord]:
    snapshot.refresh()
    stale = stale_by_queue(snapshot)
    return [as_record(queue, stale.get(name, 0)) for name, queue in sorted(snapshot.catalog.queues.items())]


def as_record(queue: Queue, stale: int) -> QueueRecord:
    return QueueRecord(name=queue.name, state=queue.state, settings=queue.settings, stale=stale)


def stale_by_queue(snapshot: Snapshot) -> dict[str, int]:
    """How many waiting tasks are in tracks of an earlier epoch."""
    found: dict[str, int] = {}
    for what, whose, n in snapshot.all_counts():
        if what in WAITING:
            track = snapshot.catalog.tracks[int(whose)]
            if track.queue not in snapshot.catalog.unreadable and snapshot.catalog.is_stale(track):
                found[track.queue] = found.get(track.queue, 0) + n
    return found


def stale_count(snapshot: Snapshot, queue: str) -> int:
    return stale_by_queue(snapshot).get(queue, 0)


def set_queue(
    transaction: Transaction, name: str, settings: QueueSettings, expected: int, actor: str
) -> QueueRecord | None:
    transaction.refresh()
    transaction.check_queue(name)
    there = transaction.catalog.queues.get(name)
    wanted = structs.replace(settings, version=expected + 1)
    if there is not None and there.settings == wanted:
        return as_record(there, stale_count(transaction, name))
    if (there.settings.version if there else 0) != expected:
        return None
    old = there or Queue(name)
    epoch = old.epoch + reranks(old.settings, wanted)
    queue = transaction.save_queue(structs.replace(old, settings=wanted, epoch=epoch))
    if old.settings.per_partition != wanted.per_partition:
        transaction.follow_ups.append(FollowUp(FollowUpKind.REORDER_QUEUE, name))
    transaction.remember(actor, "set queue", name, changes_text(old.settings, wanted))
    transaction.topics.add(work_topic(name))
    return as_record(queue, stale_count(transaction, name))


def set_queue_state(transaction: Transaction, name: str, state: QueueState, actor: str) -> Changed:
    transaction.refresh()
    transaction.check_queue(name)
    queue = transaction.catalog.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    if queue.state is state:
        return Changed.UNCHANGED
    transaction.save_queue(structs.replace(queue, state=state))
    transaction.remember(actor, f"set queue {state}", name)
    transaction.topics.add(work_topic(name))
    return Changed.DONE


def is_deletable(transaction: Transaction, name: str, force: bool) -> Changed:
    """Whether a queue may be deleted; with `force`, it takes no new tasks from here on."""
    transaction.refresh()
    transaction.check_queue(name)
    queue = transaction.catalog.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    if not force and any(count_of(transaction, name, state) for state in UNFINISHED):
        return Changed.WRONG_STATE
    if force and queue.state is not QueueState.DRAINING and any(count_of(transaction, name, s) for s in WAITING):
        transaction.save_queue(structs.replace(queue, state=QueueState.DRAINING))
    return Changed.DONE


def bury_some(transaction: Transaction, name: str, actor: str) -> bool:
    """Make some waiting tasks of a queue dead; False when none is left. Bounded, so that writers never wait long."""
    transaction.refresh()
    records = Records(transaction)
    rows = some_waiting(transaction, [track.number for track in transaction.catalog.by_queue[name]])
    for record in records.adopt(transaction.adopted(rows)):
        records.put(*buried(record, Reason.QUEUE, actor, transaction.now))
    at_once(records.flush())
    return len(rows) == BURY_BATCH


def some_waiting(transaction: Transaction, tracks: list[int]) -> list[Row | UnreadableTask]:
    """A bounded number of waiting tasks of some streams: pending ones first, then those that wait for their time."""
    pending, passed = transaction.pending_by_track(), to_json(transaction.passed_over)
    rows: list[Row | UnreadableTask] = []
    for track in tracks:
        if track in pending and len(rows) < BURY_BATCH:
            rows += transaction.tasks("pending_of", track, BURY_BATCH - len(rows), passed)
    if len(rows) < BURY_BATCH:
        rows += transaction.tasks("due_of", to_json(tracks), BURY_BATCH - len(rows), passed)
    if len(rows) < BURY_BATCH:
        rows += transaction.tasks("blocked_of", to_json(tracks), BURY_BATCH - len(rows), passed)
    return rows


def delete_queue(transaction: Transaction, name: str, force: bool, actor: str) -> Changed:
    """Delete a queue without waiting tasks (see `bury_some`) and, without `force`, without running ones."""
    transaction.refresh()
    if name not in transaction.catalog.queues:
        return Changed.UNKNOWN
    keeps = WAITING if force else UNFINISHED
    if any(count_of(transaction, name, state) for state in keeps):
        return Changed.WRONG_STATE
    forget_some(transaction, name)
    transaction.run("delete_queue", name)
    del transaction.catalog.queues[name]
    transaction.next_generation()
    transaction.remember(actor, "delete queue", name, "force" if force else "")
    transaction.topics.add(ended_topic(name))
    return Changed.DONE


def forget_some(transaction: Transaction, name: str) -> bool:
    """Delete some limits and shares of a queue that is about to be deleted; False when none is left."""
    transaction.refresh()
    deleted = [
        transaction.run("forget_buckets", name, BURY_BATCH),
        transaction.run("forget_shares", name, BURY_BATCH),
    ]
    fair = [track.number for track in transaction.catalog.by_queue[name] if track.fair]
    deleted += [transaction.run("forget_turns", number, BURY_BATCH) for number in fair]
    return BURY_BATCH in deleted


def count_of(snapshot: Snapshot, queue: str, state: State) -> int:
    tracks = {track.number for track in snapshot.catalog.by_queue[queue]}
    return sum(n for what, whose, n in snapshot.all_counts() if what == state and whose in tracks)
