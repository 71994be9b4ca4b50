"""settle, extend and rescue: what is written about running tasks, each write under its lease."""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from dibs.core.lease import LONGEST_RUN, RESCUE_BATCH, extended
from dibs.core.moves import lost, settled
from dibs.core.states import UNFINISHED, State
from dibs.core.task import HistoryEntry, HistoryEvent, Outcome, Settlement
from dibs.core.times import Instant, day_of
from dibs.engines.base import Counter, ExtendAnswer, ExtendOutcome, Extension, SettleOutcome
from dibs.engines.sqlite.records import Records
from dibs.engines.sqlite.rows import decode_facts, decode_rows, to_json
from dibs.engines.sqlite.transaction import Errand, Transaction, What

__all__ = ["extend", "lose", "settle", "take_back_expired"]

Rows = list[tuple[int, Settlement]]


class Fenced(Struct, array_like=True, frozen=True):
    """A run whose lease is current."""

    key: int
    stream: int
    partition: str | None


class Held(Struct, array_like=True, frozen=True):
    """A lease that is current. `facts` are there only if the task has been asked to stop."""

    key: int
    started_at: Instant
    facts: str | None


fenced_decoder = msgspec.json.Decoder(list[Fenced])
held_decoder = msgspec.json.Decoder(list[Held])
texts_decoder = msgspec.json.Decoder(list[str])


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> list[SettleOutcome]:
    generation, has_edges = transaction.row("settle_look")
    transaction.refresh(generation)
    answers: dict[int, SettleOutcome] = {}
    for part in without_repeats(settlements):
        settle_part(transaction, part, answers, bool(has_edges))
    if len(transaction.errands) > 1:  # tasks ended in the order in which they were reported
        places = {settlement.lease.id: i for i, settlement in enumerate(settlements)}
        transaction.errands = deque(sorted(transaction.errands, key=lambda errand: places.get(errand.about, 0)))
    return [answers[i] for i in range(len(settlements))]


def without_repeats(settlements: Sequence[Settlement]) -> Iterator[Rows]:
    """The settlements in parts, none of which names a task twice."""
    left = list(enumerate(settlements))
    while left:
        part: dict[str, tuple[int, Settlement]] = {}
        left = [each for each in left if part.setdefault(each[1].lease.id, each) is not each]
        yield list(part.values())


def settle_part(transaction: Transaction, part: Rows, answers: dict[int, SettleOutcome], has_edges: bool) -> None:
    """Completions with a current lease go in bulk, all else record by record."""
    leases = [(settlement.lease.id, settlement.lease.number) for _, settlement in part]
    fenced = fenced_decoder.decode(transaction.value("fence", to_json(leases)))
    runs = [run for run in fenced if part[run.key][1].outcome is Outcome.COMPLETED]
    if runs:
        completions = [part[run.key][1] for run in runs]
        complete(transaction, completions, Tally(run.stream for run in runs))
        for stream, partition in {(run.stream, run.partition) for run in runs}:
            if partition is not None:
                transaction.touch(transaction.catalog.streams[stream].queue, partition)
        if has_edges:
            follow_up(transaction, [settlement.lease.id for settlement in completions])
        answers.update((part[run.key][0], SettleOutcome.DONE) for run in runs)
    if len(runs) < len(part):
        bulk = {run.key for run in runs}
        others = [each for key, each in enumerate(part) if key not in bulk]
        settle_records(transaction, others, answers)


def follow_up(transaction: Transaction, completed: list[str]) -> None:
    """What `Records.flush` does for tasks that end one by one."""
    for task_id in texts_decoder.decode(transaction.value("followed", to_json(completed))):
        transaction.errands.append(Errand(What.ENDED, task_id, State.COMPLETED))


def complete(transaction: Transaction, settlements: list[Settlement], streams: Tally[int]) -> None:
    """`moves.settled` for completions: rows move to where finished tasks are kept."""
    results = [None if s.result is None else s.result.decode() for s in settlements]
    runs = to_json([(s.lease.id, s.lease.number, r) for s, r in zip(settlements, results, strict=True)])
    day = day_of(transaction.now)
    moved = transaction.write("complete", runs, day, transaction.now)
    assert moved == len(settlements), "a completed task did not move"
    deleted = transaction.write("complete_delete", runs)
    assert deleted == len(settlements), "a completed task stayed behind"
    ids = [settlement.lease.id for settlement in settlements]
    transaction.write("save_day", day, min(ids), max(ids))
    for stream, count in streams.items():
        transaction.count(State.RUNNING, stream, -count)
        transaction.count(State.COMPLETED, stream, count)
        transaction.tell(transaction.catalog.streams[stream].queue, State.COMPLETED)


def settle_records(transaction: Transaction, part: Rows, answers: dict[int, SettleOutcome]) -> None:
    records = Records(transaction, [settlement.lease.id for _, settlement in part])
    for position, settlement in part:
        answers[position] = settle_one(transaction, records, settlement)
    records.flush()


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
        transaction.count(Counter.RETRIES, after.queue, 1)
    transaction.tell(record.queue, after.state)
    return SettleOutcome.DONE


def refuse(transaction: Transaction, records: Records, settlement: Settlement) -> SettleOutcome:
    """A zombie's report: counted, and noted in the history of a task that is still unfinished."""
    record = records.get(settlement.lease.id)
    transaction.count(Counter.REFUSED, record.queue if record else "", 1)
    if record is not None and record.state in UNFINISHED:
        number = settlement.lease.number
        note = f"a late {settlement.outcome} by lease {number}"
        entry = HistoryEntry(at=transaction.now, event=HistoryEvent.REFUSED, lease=number, note=note)
        records.note(record.id, entry)
    return SettleOutcome.REFUSED


def extend(transaction: Transaction, extensions: Sequence[Extension]) -> list[ExtendAnswer]:
    answers = [ExtendAnswer(ExtendOutcome.LOST)] * len(extensions)
    leases = to_json([(each.lease.id, each.lease.number) for each in extensions])
    changes: dict[str, tuple[str, int, Instant, str | None]] = {}
    for held in held_decoder.decode(transaction.value("extend_look", leases)):
        extension = extensions[held.key]
        expires_at = extended(held.started_at, transaction.now, extension.by)
        progress = None if extension.progress is None else to_json((extension.progress, extension.message))
        task_id, number = extension.lease.id, extension.lease.number
        if progress is None and task_id in changes:  # the same lease twice: the later one wins, progress stays
            progress = changes[task_id][3]
        changes[task_id] = (task_id, number, expires_at, progress)
        answers[held.key] = held_answer(held, expires_at, transaction.now)
    if changes:
        transaction.write("extend", to_json(list(changes.values())))
    return answers


def held_answer(held: Held, expires_at: Instant, now: Instant) -> ExtendAnswer:
    if held.facts is not None:
        return ExtendAnswer(ExtendOutcome.CANCEL, expires_at, decode_facts(held.facts).cancel_reason or "")
    over = now >= held.started_at + LONGEST_RUN
    return ExtendAnswer(ExtendOutcome.EXHAUSTED if over else ExtendOutcome.HELD, expires_at)


def take_back_expired(transaction: Transaction) -> list[str]:
    """Tasks whose lease has ended run again, or have run too often."""
    return lose(transaction, transaction.value("expired", transaction.now, RESCUE_BATCH))


def lose(transaction: Transaction, rows: str) -> list[str]:
    """These running tasks (rows as JSON) have lost their worker."""
    records = Records(transaction)
    found = []
    for record in records.see(decode_rows(rows)):
        after, entry = lost(record, transaction.standing(record.queue), transaction.now)
        records.put(after, entry)
        transaction.count(Counter.LOSSES, record.queue, 1)
        transaction.tell(record.queue, after.state)
        found.append(record.id)
    records.flush()
    return found
