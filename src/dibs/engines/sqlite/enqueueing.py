"""enqueue: decide each item in order, then store what was accepted, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import cast

import msgspec
from msgspec import Struct

from dibs.core.priority import rank
from dibs.core.settings import FALLBACK, resolve
from dibs.core.states import UNFINISHED, State
from dibs.core.task import NewTask, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import ACCEPTED, Counter, EnqueueAnswer, EnqueueOutcome, work_topic
from dibs.engines.sqlite.rows import Facts, to_json
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["enqueue"]

ROWS = 20
"""Tasks that `enqueue_many.sql` takes."""


class HeldKey(Struct, array_like=True, frozen=True):
    """A row of dibs_keys. The key itself is JSON text: people choose it, and it may hold anything."""

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
        self.staged: dict[str, NewTask] = {}
        self.staged_keys: dict[tuple[str, str], NewTask] = {}
        self.depths: dict[str, int] = {}
        wanted = [(new.queue, to_json(new.key)) for new in tasks if new.key is not None]
        self.keys = self.find_keys(wanted) if wanted else {}
        # An id above all others can't be known. Ids are made in time order, so this spares nearly all lookups.
        ids = [new.id for new in tasks if new.id <= highest]
        ids += [held.task for held in self.keys.values()]
        self.records = self.find_records(ids) if ids else {}

    def find_keys(self, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], HeldKey]:
        found = keys_decoder.decode(self.transaction.value("find_keys", to_json(wanted)))
        return {(held.queue, held.key): held for held in found}

    def find_records(self, ids: list[str]) -> dict[str, TaskRecord]:
        return {task_id: self.transaction.record(row) for task_id, row in self.transaction.find(ids).items()}

    def is_full(self, queue: str, most: int) -> bool:
        """Whether a queue has as many pending tasks as it may; if not, one more is counted."""
        if queue not in self.depths:
            pending = self.transaction.pending_by_stream()
            streams = self.transaction.catalog.by_queue[queue]
            self.depths[queue] = sum(pending.get(stream.number, 0) for stream in streams)
        full = self.depths[queue] >= most
        self.depths[queue] += not full
        return full


def enqueue(transaction: Transaction, tasks: Sequence[NewTask], atomic: bool) -> list[EnqueueAnswer]:
    generation, highest = transaction.row("enqueue_look")
    transaction.refresh(generation)
    if len(tasks) == 1 and is_plain(transaction, tasks[0], highest):
        row = admitted(transaction, tasks[0])
        transaction.write("enqueue_one", *row)
        return [EnqueueAnswer(EnqueueOutcome.ENQUEUED, tasks[0].id, state_at_first(tasks[0], transaction.now))]
    known = Known(transaction, tasks, highest)
    answers = [decide(known, new, transaction.now) for new in tasks]
    if len(known.staged) < len(tasks) and refused(transaction, tasks, answers, atomic):
        abandoned = EnqueueOutcome.ABANDONED
        return [a if a.outcome not in ACCEPTED else EnqueueAnswer(abandoned, a.id) for a in answers]
    if known.staged:
        store(transaction, known.staged.values())
    return answers


def is_plain(transaction: Transaction, new: NewTask, highest: str) -> bool:
    """Whether nothing can stand in the way of a task. Most calls are of this kind, and spared the rest."""
    queue = transaction.catalog.queues.get(new.queue)
    open_to_all = queue is None or (queue.state is not QueueState.DRAINING and queue.settings.max_depth is None)
    return new.key is None and new.id > highest and open_to_all


def refused(transaction: Transaction, tasks: Sequence[NewTask], answers: list[EnqueueAnswer], atomic: bool) -> bool:
    """Count what was not simply stored; True if the whole batch is refused for it."""
    gives_up = atomic and any(answer.outcome not in ACCEPTED for answer in answers)
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome in (EnqueueOutcome.FULL, EnqueueOutcome.DRAINING):
            transaction.count(Counter.REJECTED, new.queue, 1)
        elif answer.outcome is EnqueueOutcome.DUPLICATE and not gives_up:
            transaction.count(Counter.DUPLICATES, new.queue, 1)
    return gives_up


def decide(known: Known, new: NewTask, now: Instant) -> EnqueueAnswer:
    if (there := known_id(known, new, now)) is not None:
        return there
    if new.key is not None and (held := held_key(known, new, now)) is not None:
        return held
    state = state_at_first(new, now)
    queue = known.transaction.catalog.queues.get(new.queue)
    if queue is not None:
        if queue.state is QueueState.DRAINING:
            return EnqueueAnswer(EnqueueOutcome.DRAINING, new.id)
        most = queue.settings.max_depth
        if most is not None and state is State.PENDING and known.is_full(new.queue, most):
            return EnqueueAnswer(EnqueueOutcome.FULL, new.id)
    known.staged[new.id] = new
    if new.key is not None:
        known.staged_keys[new.queue, new.key] = new
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, state)


def state_at_first(new: NewTask, now: Instant) -> State:
    """The state that a new task will be in."""
    return State.SCHEDULED if (new.at if new.at is not None else now + new.delay) > now else State.PENDING


def known_id(known: Known, new: NewTask, now: Instant) -> EnqueueAnswer | None:
    """The answer if the id is taken, by a stored task or by an earlier item."""
    record = known.records.get(new.id)
    there = record or known.staged.get(new.id)
    if there is None:
        return None
    same = (there.name, there.queue, there.args) == (new.name, new.queue, new.args)
    outcome = EnqueueOutcome.EXISTS if same else EnqueueOutcome.TAKEN
    return EnqueueAnswer(outcome, new.id, record.state if record else state_at_first(known.staged[new.id], now))


def held_key(known: Known, new: NewTask, now: Instant) -> EnqueueAnswer | None:
    """The answer if the key is taken, by a stored task or by an earlier item."""
    assert new.key is not None
    earlier = known.staged_keys.get((new.queue, new.key))
    if earlier is not None:
        same = earlier.fingerprint == new.fingerprint
        outcome = EnqueueOutcome.DUPLICATE if same else EnqueueOutcome.CONFLICT
        return EnqueueAnswer(outcome, earlier.id, state_at_first(earlier, now))
    held = known.keys.get((new.queue, to_json(new.key)))
    if held is None:
        return None
    record = known.records.get(held.task)
    if now >= held.held_until and (record is None or record.state not in UNFINISHED):
        return None
    outcome = EnqueueOutcome.DUPLICATE if held.fingerprint == new.fingerprint else EnqueueOutcome.CONFLICT
    return EnqueueAnswer(outcome, held.task, record.state if record else None)


def store(transaction: Transaction, tasks: Collection[NewTask]) -> None:
    """Write new tasks."""
    rows = rows_of(transaction, tasks)
    whole = len(rows) - len(rows) % ROWS
    for start in range(0, whole, ROWS):
        transaction.write("enqueue_many", *chain.from_iterable(rows[start : start + ROWS]))
    for row in rows[whole:]:
        transaction.write("enqueue_one", *row)
    keys = [
        (new.queue, to_json(new.key), new.id, new.fingerprint, transaction.now + new.window)
        for new in tasks
        if new.key is not None
    ]
    if keys:
        transaction.write("save_keys", to_json(keys))


def rows_of(transaction: Transaction, tasks: Collection[NewTask]) -> list[tuple[object, ...]]:
    """The row of each task. Batches are mostly of one kind: what follows from it is worked out once for each run."""
    rows: list[tuple[object, ...]] = []
    last: tuple[object, ...] = ()
    for new in tasks:
        kind = (
            new.queue, new.name, new.requires, new.priority, new.delay, new.at, new.deadline,
            new.options, new.app_options, new.key, new.parent, new.metadata, new.headers,
        )  # fmt: skip
        if kind == last:
            before = rows[-1]
            rows.append((new.id, *before[1:8], new.args.decode(), before[9]))
            transaction.changes[str(before[2]), cast(int, before[1])] += 1
            transaction.changes[Counter.ENQUEUED, new.queue] += 1
        else:
            rows.append(admitted(transaction, new))
            last = kind
    return rows


def admitted(transaction: Transaction, new: NewTask) -> tuple[object, ...]:
    """`moves.admit` straight to the columns that `enqueue_one.sql` takes, without a record in between."""
    catalog, now = transaction.catalog, transaction.now
    queue = catalog.queues.get(new.queue) or transaction.make_queue(new.queue)
    settings = queue.settings
    due_at = new.at if new.at is not None else now + new.delay
    later = due_at > now
    ready_at = due_at if later else now
    state = State.SCHEDULED if later else State.PENDING
    if new.deadline is None:
        ranking = catalog.ranking(queue, new.priority, now)
    else:
        ranking = rank(settings, priority=new.priority, deadline=new.deadline, ready_at=ready_at, now=now)
    stream = transaction.stream(new.queue, new.name, new.requires, ranking.lane, queue.epoch)
    options = resolve(new.options, new.app_options, settings, new.priority)
    transaction.changes[state, stream] += 1
    transaction.changes[Counter.ENQUEUED, new.queue] += 1
    transaction.topics.add(work_topic(new.queue))
    facts = Facts(
        priority=new.priority,
        created_at=now,
        options=None if options is FALLBACK else options,
        deadline=new.deadline,
        key=new.key,
        metadata=new.metadata,
        headers=new.headers,
        parent=new.parent,
    )
    return (
        new.id,
        stream,
        state,
        ready_at + ranking.offset,
        ready_at,
        due_at if later else None,
        None if ranking.rerank_in is None else ready_at + ranking.rerank_in,
        options.lease,
        new.args.decode(),
        to_json(facts),
    )
