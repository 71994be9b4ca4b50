"""What producers and workers do to a memory store, but for claiming."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from dibs.core.lease import LONGEST_RUN, RESCUE_BATCH, extended
from dibs.core.moves import admit, lost, settled
from dibs.core.states import UNFINISHED, WAITING, State
from dibs.core.task import (
    HistoryEntry,
    HistoryEvent,
    Lease,
    NewTask,
    Outcome,
    QueueState,
    Settlement,
    TaskRecord,
    WorkerState,
)
from dibs.core.times import Instant
from dibs.engines.base import (
    ACCEPTED,
    Counter,
    EnqueueAnswer,
    EnqueueOutcome,
    ExtendAnswer,
    ExtendOutcome,
    Extension,
    Rescued,
    SettleOutcome,
    ended_topic,
    work_topic,
)
from dibs.engines.memory.store import HeldKey, Store, detached

__all__ = ["enqueue", "extend", "rescue", "settle"]


class Staged(Struct):
    """New tasks that earlier items of the same batch have already decided to store."""

    tasks: dict[str, NewTask] = {}
    keys: dict[tuple[str, str], NewTask] = {}
    pending: dict[str, int] = {}


def enqueue(store: Store, tasks: Sequence[NewTask], atomic: bool, now: Instant) -> list[EnqueueAnswer]:
    """Decide each item in order, then store what was accepted."""
    staged = Staged({}, {}, {})
    answers = [decide(store, new, staged, now) for new in tasks]
    refused = [answer for answer in answers if answer.outcome not in ACCEPTED]
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome in (EnqueueOutcome.FULL, EnqueueOutcome.DRAINING):
            store.counters[new.queue][Counter.REJECTED] += 1
    if atomic and refused:
        abandoned = EnqueueOutcome.ABANDONED
        return [a if a.outcome not in ACCEPTED else EnqueueAnswer(abandoned, a.id) for a in answers]
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome is EnqueueOutcome.ENQUEUED:
            store_new(store, new, now)
        elif answer.outcome is EnqueueOutcome.DUPLICATE:
            store.counters[new.queue][Counter.DUPLICATES] += 1
    return answers


def decide(store: Store, new: NewTask, staged: Staged, now: Instant) -> EnqueueAnswer:
    queue = store.queues.get(new.queue)
    settings = store.settings(new.queue)
    state = first_state(new, now)
    if (known := known_id(store, new, staged, now)) is not None:
        return known
    if new.key is not None and (held := held_key(store, new, staged, now)) is not None:
        return held
    if queue is not None and queue.state is QueueState.DRAINING:
        return EnqueueAnswer(EnqueueOutcome.DRAINING, new.id)
    depth = store.counts[new.queue][State.PENDING] + staged.pending.get(new.queue, 0)
    if state is State.PENDING and settings.max_depth is not None and depth >= settings.max_depth:
        return EnqueueAnswer(EnqueueOutcome.FULL, new.id)
    staged.tasks[new.id] = new
    if new.key is not None:
        staged.keys[new.queue, new.key] = new
    if state is State.PENDING:
        staged.pending[new.queue] = staged.pending.get(new.queue, 0) + 1
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, state)


def first_state(new: NewTask, now: Instant) -> State:
    """The state that a task is stored in."""
    return State.SCHEDULED if (new.at if new.at is not None else now + new.delay) > now else State.PENDING


def known_id(store: Store, new: NewTask, staged: Staged, now: Instant) -> EnqueueAnswer | None:
    there = store.tasks.get(new.id) or staged.tasks.get(new.id)
    if there is None:
        return None
    state = there.state if isinstance(there, TaskRecord) else first_state(there, now)
    same = (there.name, there.queue, there.args) == (new.name, new.queue, new.args)
    outcome = EnqueueOutcome.EXISTS if same else EnqueueOutcome.TAKEN
    return EnqueueAnswer(outcome, new.id, state)


def held_key(store: Store, new: NewTask, staged: Staged, now: Instant) -> EnqueueAnswer | None:
    """The answer if the key is taken, by a stored task or by an earlier item."""
    assert new.key is not None
    earlier = staged.keys.get((new.queue, new.key))
    if earlier is not None:
        outcome = EnqueueOutcome.DUPLICATE if earlier.fingerprint == new.fingerprint else EnqueueOutcome.CONFLICT
        return EnqueueAnswer(outcome, earlier.id, first_state(earlier, now))
    held = store.keys.get((new.queue, new.key))
    if held is None:
        return None
    record = store.tasks.get(held.task_id)
    if now >= held.until and (record is None or record.state not in UNFINISHED):
        return None
    outcome = EnqueueOutcome.DUPLICATE if held.fingerprint == new.fingerprint else EnqueueOutcome.CONFLICT
    return EnqueueAnswer(outcome, held.task_id, record.state if record else None)


def store_new(store: Store, new: NewTask, now: Instant) -> None:
    record = detached(admit(new, store.queue(new.queue).settings, now))
    store.put(record)
    store.counters[new.queue][Counter.ENQUEUED] += 1
    if new.key is not None:
        store.keys[new.queue, new.key] = HeldKey(new.id, new.fingerprint, now + new.window)
    store.topics.add(work_topic(new.queue))


def holds(store: Store, lease: Lease) -> bool:
    """The fence."""
    record = store.tasks.get(lease.id)
    return record is not None and record.state is State.RUNNING and record.lease == lease.number


def extend(store: Store, extensions: Sequence[Extension], now: Instant) -> list[ExtendAnswer]:
    return [extend_one(store, extension, now) for extension in extensions]


def extend_one(store: Store, extension: Extension, now: Instant) -> ExtendAnswer:
    if not holds(store, extension.lease):
        return ExtendAnswer(ExtendOutcome.LOST)
    record = store.tasks[extension.lease.id]
    assert record.started_at is not None
    changes: dict[str, object] = {"lease_expires_at": extended(record.started_at, now, extension.by)}
    if extension.progress is not None:
        changes |= {"progress": extension.progress, "progress_message": extension.message}
    record = structs.replace(record, **changes)
    store.put(record)
    if record.cancel_reason is not None:
        return ExtendAnswer(ExtendOutcome.CANCEL, record.lease_expires_at, record.cancel_reason)
    over = now >= (record.started_at or 0) + LONGEST_RUN
    return ExtendAnswer(ExtendOutcome.EXHAUSTED if over else ExtendOutcome.HELD, record.lease_expires_at)


def settle(store: Store, settlements: Sequence[Settlement], now: Instant) -> list[SettleOutcome]:
    return [settle_one(store, settlement, now) for settlement in settlements]


def settle_one(store: Store, settlement: Settlement, now: Instant) -> SettleOutcome:
    lease = settlement.lease
    record = store.tasks.get(lease.id)
    if not holds(store, lease):
        if record is not None and 0 < lease.number == record.settled_lease:
            return SettleOutcome.ALREADY
        return refuse(store, settlement, now)
    assert record is not None
    after, entry = settled(record, settlement, store.standing(record.queue), now)
    store.put(after, entry)
    if settlement.outcome is Outcome.RETRY and after.state is State.RETRYING:
        store.counters[after.queue][Counter.RETRIES] += 1
    tell(store, record.queue, after.state)
    return SettleOutcome.DONE


def refuse(store: Store, settlement: Settlement, now: Instant) -> SettleOutcome:
    """A zombie's report: counted, and noted in the history of a task that is still unfinished."""
    record = store.tasks.get(settlement.lease.id)
    store.counters[record.queue if record else ""][Counter.REFUSED] += 1
    if record is not None and record.state in UNFINISHED:
        note = f"a late {settlement.outcome} by lease {settlement.lease.number}"
        store.histories[record.id].append(
            HistoryEntry(at=now, event=HistoryEvent.REFUSED, lease=settlement.lease.number, note=note)
        )
    return SettleOutcome.REFUSED


def rescue(store: Store, now: Instant) -> Rescued:
    """Take back what expired leases held; mark workers whose record has expired."""
    found: list[str] = []
    while len(found) < RESCUE_BATCH and (record := store.pop_expired(now)) is not None:
        after, entry = lost(record, store.standing(record.queue), now)
        store.put(after, entry)
        store.counters[record.queue][Counter.LOSSES] += 1
        tell(store, record.queue, after.state)
        found.append(record.id)
    dead = []
    for worker in store.workers.values():
        if worker.state is not WorkerState.DEAD and worker.expires_at <= now:
            worker.state = WorkerState.DEAD
            dead.append(worker.id)
    return Rescued(found, dead, len(found) == RESCUE_BATCH)


def tell(store: Store, queue: str, state: State) -> None:
    """Note whom to ring for a task that has come to `state`."""
    if state in WAITING:  # for later, too: whoever sleeps until something falls due must learn of it
        store.topics.add(work_topic(queue))
    else:
        store.topics.add(ended_topic(queue))
    if store.settings(queue).max_concurrent is not None:  # a slot may have come free
        store.topics.add(work_topic(queue))
