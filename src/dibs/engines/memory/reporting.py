"""settle, extend and rescue."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from dibs.core.lease import is_exhausted, span_left, taken_until
from dibs.core.moves import lost, settled
from dibs.core.policy import RESCUE_BATCH
from dibs.core.states import UNFINISHED, WAITING, State
from dibs.core.task import HistoryEntry, HistoryEvent, Lease, Settlement, WorkerState
from dibs.core.times import Instant
from dibs.engines.memory.store import Store
from dibs.engines.topics import ended_topic, work_topic
from dibs.engines.values import (
    Counter,
    ExtendAnswer,
    ExtendOutcome,
    Extension,
    Rescued,
    SettleAnswer,
    SettleOutcome,
    Term,
    settle_answer,
)

__all__ = ["extend", "rescue", "settle"]


def holds(store: Store, lease: Lease) -> bool:
    """The fence: whether the lease is the current one."""
    record = store.tasks.get(lease.id)
    return record is not None and record.state is State.RUNNING and record.lease == lease.number


def extend(store: Store, extensions: Sequence[Extension], now: Instant) -> list[ExtendAnswer]:
    return [extend_one(store, extension, now) for extension in extensions]


def extend_one(store: Store, extension: Extension, now: Instant) -> ExtendAnswer:
    if not holds(store, extension.lease):
        return ExtendAnswer(ExtendOutcome.LOST)
    record = store.tasks[extension.lease.id]
    changes: dict[str, object] = {"lease_expires_at": now + span_left(extension.by, extension.ran)}
    if extension.progress is not None:
        changes |= {"progress": extension.progress, "progress_message": extension.message}
    record = structs.replace(record, **changes)
    store.put(record)
    if record.cancel_reason is not None:
        return ExtendAnswer(ExtendOutcome.CANCEL, record.lease_expires_at, record.cancel_reason)
    outcome = ExtendOutcome.EXHAUSTED if is_exhausted(extension.ran) else ExtendOutcome.HELD
    return ExtendAnswer(outcome, record.lease_expires_at)


def settle(store: Store, settlements: Sequence[Settlement], now: Instant) -> list[SettleAnswer]:
    return [settle_one(store, settlement, now) for settlement in settlements]


def settle_one(store: Store, settlement: Settlement, now: Instant) -> SettleAnswer:
    lease = settlement.lease
    record = store.tasks.get(lease.id)
    if not holds(store, lease):
        if record is not None and 0 < lease.number == record.settled_lease:
            return settle_answer(SettleOutcome.ALREADY, record, now)
        return refuse(store, settlement, now)
    assert record is not None
    after, entry = settled(record, settlement, store.settings_if_exists(record.queue), now)
    store.put(after, entry)
    if after.state is State.RETRYING:
        store.counters[after.queue][Counter.RETRIES] += 1
    tell(store, record.queue, after.state)
    return settle_answer(SettleOutcome.DONE, after, now)


def refuse(store: Store, settlement: Settlement, now: Instant) -> SettleAnswer:
    """Count a settlement with an outdated lease, and note it in the history of an unfinished task."""
    record = store.tasks.get(settlement.lease.id)
    store.counters[record.queue if record else ""][Counter.REFUSED] += 1
    if record is not None and record.state in UNFINISHED:
        note = f"a late {settlement.outcome} by lease {settlement.lease.number}"
        store.histories[record.id].append(
            HistoryEntry(at=now, event=HistoryEvent.REFUSED, lease=settlement.lease.number, note=note)
        )
    return SettleAnswer(SettleOutcome.REFUSED)


def rescue(store: Store, ended_by: Instant | None, not_after: Instant | None, now: Instant) -> Rescued:
    """Take back the tasks of expired leases; mark workers whose record has expired."""
    until = taken_until(now, ended_by, not_after)
    if until is None:
        return Rescued(at=now, stalled=True)
    found: list[str] = []
    while len(found) < RESCUE_BATCH and (record := store.pop_expired(until)) is not None:
        after, entry = lost(record, store.settings_if_exists(record.queue), now)
        store.put(after, entry)
        store.counters[record.queue][Counter.LOSSES] += 1
        tell(store, record.queue, after.state)
        found.append(record.id)
    dead = []
    for worker in store.workers.values():
        if worker.state is not WorkerState.DEAD and worker.expires_at <= until:
            worker.state = WorkerState.DEAD
            dead.append(worker.id)
    if store.term is not None and store.term.worker in dead:
        store.term = Term(store.term.number, "", 0)
    return Rescued(found, dead, len(found) == RESCUE_BATCH, now)


def tell(store: Store, queue: str, state: State) -> None:
    """Gather the topics to notify for a task that is now in `state`."""
    if state in WAITING:  # also for later work: a worker that sleeps until the next due time must learn of it
        store.topics.add(work_topic(queue))
    else:
        store.topics.add(ended_topic(queue))
    if store.settings(queue).limits_starts:  # a slot may have come free
        store.topics.add(work_topic(queue))
