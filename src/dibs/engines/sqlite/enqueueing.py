"""enqueue: decide each item in order, then store what was accepted, in one statement."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from dibs.core.moves import admit
from dibs.core.states import UNFINISHED, State
from dibs.core.task import NewTask, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import ACCEPTED, Counter, EnqueueAnswer, EnqueueOutcome, work_topic
from dibs.engines.sqlite.rows import new_columns, to_json
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["enqueue"]


class HeldKey(Struct, array_like=True, frozen=True):
    """A row of dibs_keys."""

    queue: str
    key: str
    task: str
    fingerprint: str
    held_until: Instant


keys_decoder = msgspec.json.Decoder(list[HeldKey])


class Known:
    """What the store knows that matters to these new tasks, and what earlier items have added to it."""

    def __init__(self, transaction: Transaction, tasks: Sequence[NewTask], highest: str) -> None:
        self.transaction = transaction
        self.keys = self.find_keys(tasks)
        # An id above all others can't be known. Ids are made in time order, so this spares nearly all lookups.
        ids = [new.id for new in tasks if new.id <= highest]
        ids += [held.task for held in self.keys.values()]
        found = transaction.find(ids) if ids else {}
        self.records = {task_id: transaction.record(row) for task_id, row in found.items()}
        self.staged: dict[str, NewTask] = {}
        self.staged_keys: dict[tuple[str, str], NewTask] = {}
        self.depths: dict[str, int] = {}

    def find_keys(self, tasks: Sequence[NewTask]) -> dict[tuple[str, str], HeldKey]:
        wanted = [(new.queue, new.key) for new in tasks if new.key is not None]
        if not wanted:
            return {}
        found = keys_decoder.decode(self.transaction.value("find_keys", to_json(wanted)))
        return {(held.queue, held.key): held for held in found}

    def is_full(self, queue: str, most: int) -> bool:
        """Whether a queue has as many pending tasks as it may; if not, one more is counted."""
        if queue not in self.depths:
            pending = self.transaction.pending_by_stream()
            streams = self.transaction.catalog.by_queue[queue]
            staged = sum(new.queue == queue for new in self.staged.values())
            self.depths[queue] = staged + sum(pending.get(stream.number, 0) for stream in streams)
        full = self.depths[queue] >= most
        self.depths[queue] += not full
        return full


def enqueue(transaction: Transaction, tasks: Sequence[NewTask], atomic: bool) -> list[EnqueueAnswer]:
    generation, highest = transaction.row("enqueue_look")
    transaction.refresh(generation)
    known = Known(transaction, tasks, highest)
    answers = [decide(known, new, transaction.now) for new in tasks]
    refused = False
    for new, answer in zip(tasks, answers, strict=True):
        refused = refused or answer.outcome not in ACCEPTED
        if answer.outcome is EnqueueOutcome.FULL or answer.outcome is EnqueueOutcome.DRAINING:
            transaction.count(Counter.REJECTED, new.queue, 1)
    if atomic and refused:
        abandoned = EnqueueOutcome.ABANDONED
        return [a if a.outcome not in ACCEPTED else EnqueueAnswer(abandoned, a.id) for a in answers]
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome is EnqueueOutcome.DUPLICATE:
            transaction.count(Counter.DUPLICATES, new.queue, 1)
    if known.staged:
        store(transaction, list(known.staged.values()))
    return answers


def decide(known: Known, new: NewTask, now: Instant) -> EnqueueAnswer:
    if (there := known_id(known, new)) is not None:
        return there
    if new.key is not None and (held := held_key(known, new, now)) is not None:
        return held
    queue = known.transaction.catalog.queues.get(new.queue)
    later = (new.at if new.at is not None else now + new.delay) > now
    if queue is not None:
        if queue.state is QueueState.DRAINING:
            return EnqueueAnswer(EnqueueOutcome.DRAINING, new.id)
        most = queue.settings.max_depth
        if most is not None and not later and known.is_full(new.queue, most):
            return EnqueueAnswer(EnqueueOutcome.FULL, new.id)
    known.staged[new.id] = new
    if new.key is not None:
        known.staged_keys[new.queue, new.key] = new
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, State.SCHEDULED if later else State.PENDING)


def known_id(known: Known, new: NewTask) -> EnqueueAnswer | None:
    record = known.records.get(new.id)
    there = record or known.staged.get(new.id)
    if there is None:
        return None
    same = (there.name, there.queue, there.args) == (new.name, new.queue, new.args)
    outcome = EnqueueOutcome.EXISTS if same else EnqueueOutcome.TAKEN
    return EnqueueAnswer(outcome, new.id, record.state if record else State.PENDING)


def held_key(known: Known, new: NewTask, now: Instant) -> EnqueueAnswer | None:
    """The answer if the key is taken, by a stored task or by an earlier item."""
    assert new.key is not None
    earlier = known.staged_keys.get((new.queue, new.key))
    if earlier is not None:
        same = earlier.fingerprint == new.fingerprint
        return EnqueueAnswer(EnqueueOutcome.DUPLICATE if same else EnqueueOutcome.CONFLICT, earlier.id, State.PENDING)
    held = known.keys.get((new.queue, new.key))
    if held is None:
        return None
    record = known.records.get(held.task)
    if now >= held.held_until and (record is None or record.state not in UNFINISHED):
        return None
    outcome = EnqueueOutcome.DUPLICATE if held.fingerprint == new.fingerprint else EnqueueOutcome.CONFLICT
    return EnqueueAnswer(outcome, held.task, record.state if record else None)


def store(transaction: Transaction, tasks: list[NewTask]) -> None:
    """Write new tasks."""
    now = transaction.now
    rows = []
    keys = []
    for new in tasks:
        record = admit(new, transaction.make_queue(new.queue).settings, now)
        rows.append(columns(transaction, record))
        if new.key is not None:
            keys.append((new.queue, new.key, new.id, new.fingerprint, now + new.window))
    transaction.write("enqueue", to_json(rows))
    if keys:
        transaction.write("save_keys", to_json(keys))


def columns(transaction: Transaction, record: TaskRecord) -> tuple[object, ...]:
    stream = transaction.stream_of(record)
    changes = transaction.changes
    changes[record.state, stream] += 1
    changes[Counter.ENQUEUED, record.queue] += 1
    if record.state is State.PENDING:
        transaction.topics.add(work_topic(record.queue))
    return new_columns(record, stream)
