"""settle, extend and rescue: what is written about running tasks, each write under its lease."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dibs.core.lease import is_exhausted, span_left
from dibs.core.moves import lost, settled
from dibs.core.states import UNFINISHED, State
from dibs.core.task import HistoryEntry, HistoryEvent, Outcome, Settlement, TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.facts import decode_facts
from dibs.engines.decisions.records import Ledger
from dibs.engines.decisions.transaction import Transaction
from dibs.engines.figures import Counter
from dibs.engines.values import (
    ExtendAnswer,
    ExtendOutcome,
    Extension,
    LostTask,
    SettleAnswer,
    SettleOutcome,
    lost_task,
    settle_answer,
)

__all__ = ["Part", "held_answer", "is_plain", "lose_all", "settle_one", "without_repeats"]

Part = list[tuple[int, Settlement]]
"""Settlements, each with its position in the batch."""


def without_repeats(settlements: Sequence[Settlement]) -> Iterator[Part]:
    """The settlements in parts, none of which names a task twice."""
    left = list(enumerate(settlements))
    while left:
        part: dict[str, tuple[int, Settlement]] = {}
        left = [each for each in left if part.setdefault(each[1].lease.id, each) is not each]
        yield list(part.values())


def is_plain(settlement: Settlement) -> bool:
    """Whether it completes a task and changes nothing else about it: such completions can be written in bulk."""
    return settlement.outcome is Outcome.COMPLETED and not settlement.metadata


def settle_one(transaction: Transaction, records: Ledger, settlement: Settlement) -> SettleAnswer:
    lease = settlement.lease
    record = records.get(lease.id)
    if record is None or record.state is not State.RUNNING or record.lease != lease.number:
        if record is not None and 0 < lease.number == record.settled_lease:
            return settle_answer(SettleOutcome.ALREADY, record, transaction.now)
        return refuse(transaction, records, settlement)
    after, entry = settled(record, settlement, transaction.settings_if_exists(record.queue), transaction.now)
    records.put(after, entry)
    if settlement.timed_out and after.attempts > record.attempts:
        transaction.count_event_of(Counter.TIMEOUTS, record.id)
        if after.state is State.RETRYING:
            transaction.count_event_of(Counter.TIMEOUT_RETRIES, record.id)
    transaction.tell(record.queue, after.state)
    return settle_answer(SettleOutcome.DONE, after, transaction.now)


def refuse(transaction: Transaction, records: Ledger, settlement: Settlement) -> SettleAnswer:
    """Count a settlement with an outdated lease, and note it in the history of an unfinished task."""
    record = records.get(settlement.lease.id)
    if record is None:
        transaction.count_event(Counter.REFUSED, "")
    else:
        transaction.count_event_of(Counter.REFUSED, record.id)
    if record is not None and record.state in UNFINISHED:
        number = settlement.lease.number
        note = f"a late {settlement.outcome}, by a lease that is over"
        entry = HistoryEntry(at=transaction.now, event=HistoryEvent.REFUSED, lease=number, note=note)
        records.note(record.id, entry)
    return SettleAnswer(SettleOutcome.REFUSED)


def held_answer(extension: Extension, now: Instant, facts: str | bytes | None) -> ExtendAnswer:
    """The answer to the holder of a current lease. `facts` are given only if the task has been asked to stop."""
    expires_at = now + span_left(extension.by, extension.ran)
    if facts is not None:
        return ExtendAnswer(ExtendOutcome.CANCEL, expires_at, why_cancelled(facts))
    return ExtendAnswer(ExtendOutcome.EXHAUSTED if is_exhausted(extension.ran) else ExtendOutcome.HELD, expires_at)


def why_cancelled(facts: str | bytes) -> str:
    """The reason of a cancel request, if one was given; the request itself is in a column."""
    try:
        return decode_facts(facts).cancel_reason or ""
    except (msgspec.DecodeError, ValueError):
        return ""


def lose_all(transaction: Transaction, records: Ledger, running: Iterable[TaskRecord]) -> list[LostTask]:
    """These running tasks have lost their worker: they run again, or are dead after too many losses."""
    found = []
    for record in running:
        after, entry = lost(record, transaction.settings_if_exists(record.queue), transaction.now)
        records.put(after, entry)
        transaction.tell(record.queue, after.state)
        found.append(lost_task(record, after, transaction.now))
    return found
