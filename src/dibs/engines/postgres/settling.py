"""settle, extend and rescue: what is written about running tasks, each write under its lease."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from dibs.core.lease import LONGEST_RUN, RESCUE_BATCH, extended
from dibs.core.moves import lost, settled
from dibs.core.states import UNFINISHED, State
from dibs.core.task import HistoryEntry, HistoryEvent, Lease, Outcome, Settlement
from dibs.core.times import Instant
from dibs.engines.base import Counter, ExtendAnswer, ExtendOutcome, Extension, Rescued, SettleOutcome, ended_topic
from dibs.engines.postgres.cursors import BEGINNING
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import Row, columns, decode_facts, encode
from dibs.engines.postgres.store import TASKS, Store
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.postgres.working import bury

__all__ = ["extend", "rescue", "settle"]

Rows = list[tuple[int, Settlement]]

NEWCOMER_SECONDS = 8.0
"""Whoever has just opened the store can't know whether it has been away. If it has, every lease has run out, and those
who live extend theirs within this time."""

END: Instant = 2**62


async def settle(store: Store, settlements: Sequence[Settlement], now: Instant | None) -> list[SettleOutcome]:
    """Completions that concern nobody else go in bulk, all else record by record."""
    answers: dict[int, SettleOutcome] = {}
    for part in without_repeats(settlements):
        completions = [each for each in part if each[1].outcome is Outcome.COMPLETED]
        if completions:
            await complete(store, completions, answers, now)
        others = [each for each in part if each[0] not in answers]
        if others:
            found = await store.write(settle_records, now, TASKS, [each[1] for each in others])
            answers.update((each[0], answer) for each, answer in zip(others, found, strict=True))
    return [answers[i] for i in range(len(settlements))]


def without_repeats(settlements: Sequence[Settlement]) -> Iterator[Rows]:
    """The settlements in parts, none of which names a task twice."""
    left = list(enumerate(settlements))
    while left:
        part: dict[str, tuple[int, Settlement]] = {}
        left = [each for each in left if part.setdefault(each[1].lease.id, each) is not each]
        yield list(part.values())


async def complete(store: Store, part: Rows, answers: dict[int, SettleOutcome], now: Instant | None) -> None:
    """`moves.settled` for completions: rows move to where finished tasks are kept, in one statement."""
    runs = sorted((each.lease.id, each.lease.number, each.result, position) for position, each in part)
    ids, numbers, results, positions = zip(*runs, strict=True)
    ((done, streams),) = await store.rows("complete", now, ids, numbers, results)
    if done is not None:  # not all of them
        places = dict(zip(ids, positions, strict=True))
        positions = tuple(places[str(task_id)] for task_id in done)
    answers.update(dict.fromkeys(positions, SettleOutcome.DONE))
    await store.bells.ring(await ended_topics(store, {*(streams or ())}))


async def ended_topics(store: Store, streams: set[int]) -> set[str]:
    if not streams.issubset(store.catalog.streams):
        await store.refresh()
    catalog, topics = store.catalog, set()
    for queue in {catalog.streams[number].queue for number in streams}:
        topics.add(ended_topic(queue))
        if catalog.settings(queue).limits_starts:  # a slot has come free
            topics.add(f"work:{queue}")
    return topics


async def settle_records(transaction: Transaction, settlements: Sequence[Settlement]) -> list[SettleOutcome]:
    records = Records(transaction)
    await records.load(settlement.lease.id for settlement in settlements)
    answers = [settle_one(transaction, records, settlement) for settlement in settlements]
    await records.flush()
    return answers


def settle_one(transaction: Transaction, records: Records, settlement: Settlement) -> SettleOutcome:
    lease = settlement.lease
    record = records.get(lease.id)
    if record is None or record.state is not State.RUNNING or record.lease != lease.number:
        if record is not None and 0 < lease.number == record.settled_lease:
            return SettleOutcome.ALREADY
        return refuse(transaction, records, settlement)
    after, entry = settled(record, settlement, transaction.standing(record.queue), transaction.now)
    records.put(after, entry)
    if settlement.outcome is Outcome.RETRY and after.state is State.RETRYING:
        transaction.tally(Counter.RETRIES, after.queue)
    transaction.tell(record.queue, after.state)
    return SettleOutcome.DONE


def refuse(transaction: Transaction, records: Records, settlement: Settlement) -> SettleOutcome:
    """A zombie's report: counted, and noted in the history of a task that is still unfinished."""
    record = records.get(settlement.lease.id)
    transaction.tally(Counter.REFUSED, record.queue if record else "")
    if record is not None and record.state in UNFINISHED:
        number = settlement.lease.number
        note = f"a late {settlement.outcome} by lease {number}"
        entry = HistoryEntry(at=transaction.now, event=HistoryEvent.REFUSED, lease=number, note=note)
        records.note(record.id, entry)
    return SettleOutcome.REFUSED


async def extend(store: Store, extensions: Sequence[Extension], now: Instant | None) -> list[ExtendAnswer]:
    """One statement. A lease named twice gets the later span; progress stays unless it is given."""
    if not extensions:
        return []
    merged: dict[Lease, tuple[int, bytes | None]] = {}
    for each in extensions:
        progress = None if each.progress is None else encode((each.progress, each.message))
        if progress is None and each.lease in merged:
            progress = merged[each.lease][1]
        merged[each.lease] = (each.by, progress)
    asked = sorted((lease.id, lease.number, by, progress) for lease, (by, progress) in merged.items())
    rows = await store.rows("extend", now, *columns(asked, 4), LONGEST_RUN)
    held = {Lease(str(row["id"]), row["lease"]): row for row in rows}
    return [held_answer(held.get(each.lease), each) for each in extensions]


def held_answer(row: Row | None, extension: Extension) -> ExtendAnswer:
    if row is None:
        return ExtendAnswer(ExtendOutcome.LOST)
    now, started_at = row["now"], row["started_at"]
    expires_at = extended(started_at, now, extension.by)
    if row["facts"] is not None:
        return ExtendAnswer(ExtendOutcome.CANCEL, expires_at, decode_facts(row["facts"]).cancel_reason or "")
    over = now >= started_at + LONGEST_RUN
    return ExtendAnswer(ExtendOutcome.EXHAUSTED if over else ExtendOutcome.HELD, expires_at)


async def rescue(store: Store, now: Instant | None) -> Rescued:
    """Take back what expired leases and lost workers held, but for rows that somebody is at; mark dead workers."""
    cursor, at = store.rescue_cursor, time.monotonic()
    low = cursor.low(at) if now is None else BEGINNING
    if now is None and at - store.opened_at < NEWCOMER_SECONDS:
        low = END  # no lease has ended after that
    absent = await store.presence.absent()
    rescued, instant = await store.write(take_back, now, TASKS, low, absent)
    if now is None and low != END:
        cursor.learn(instant, at, ended=not rescued.more, full=low == BEGINNING)
    return rescued


async def take_back(transaction: Transaction, low: Instant, absent: list[str]) -> tuple[Rescued, Instant]:
    streams = list(transaction.catalog.streams)
    expired = await lose(transaction, await transaction.rows("expired", transaction.now, RESCUE_BATCH, streams, low))
    held: list[str] = []
    if absent:
        absent = [row["id"] for row in await transaction.rows("still_absent", absent)]
        held = await lose(transaction, await transaction.rows("running_of", absent, RESCUE_BATCH, streams))
        busy = {row["worker"] for row in await transaction.rows("has_running", absent, streams)}
        absent = [worker for worker in absent if worker not in busy]  # the others stay on the list for the rest
    dead = await bury(transaction, absent)
    return Rescued(expired + held, dead, RESCUE_BATCH in (len(expired), len(held))), transaction.now


async def lose(transaction: Transaction, rows: list[Row]) -> list[str]:
    """`moves.lost` for tasks whose rows are locked; their ids."""
    records, found = Records(transaction), []
    for record in records.see(rows):
        after, entry = lost(record, transaction.standing(record.queue), transaction.now)
        records.put(after, entry)
        transaction.tally(Counter.LOSSES, record.queue)
        transaction.tell(record.queue, after.state)
        found.append(record.id)
    await records.flush()
    return found
