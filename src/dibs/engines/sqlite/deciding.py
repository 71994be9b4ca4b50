"""What becomes of each new task of a batch, decided in order; nothing is written here."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from dibs.core.graph import Verdict, judge
from dibs.core.limits import Bucket, Scope, client_limit, refill, spend, tokens, until_token
from dibs.core.moves import admit, replaced
from dibs.core.states import UNFINISHED, WAITING, State
from dibs.core.task import NewTask, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import EnqueueAnswer, EnqueueOutcome
from dibs.engines.sqlite.rows import to_json
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["SCHEDULER", "Known", "decide", "due_at_first", "worst_verdict"]

SCHEDULER = "schedule"
"""The client by which schedules enqueue; no limit on enqueueing holds for it."""


class HeldKey(Struct, array_like=True, frozen=True):
    """A row of dibs_keys. The key itself is JSON text: people choose it, and it may hold anything."""

    queue: str
    key: str
    task: str
    fingerprint: str
    held_until: Instant


keys_decoder = msgspec.json.Decoder(list[HeldKey])
states_decoder = msgspec.json.Decoder(list[tuple[str, State]])

STATE_AFTER = {Verdict.WAIT: State.BLOCKED, Verdict.CANCEL: State.CANCELLED, Verdict.BURY: State.DEAD}


class Known:
    """What the store knows that matters to these new tasks, and what earlier items have added to it."""

    def __init__(self, transaction: Transaction, tasks: Sequence[NewTask], highest: str) -> None:
        self.transaction = transaction
        self.staged: dict[str, NewTask] = {}
        self.staged_keys: dict[tuple[str, str], tuple[TaskRecord, str]] = {}
        """Who will hold a key, as it will be then, and the fingerprint."""
        self.replacements: list[tuple[NewTask, str]] = []
        self.depths: dict[str, int] = {}
        self.arrived: Tally[str] = Tally()
        """How many more pending tasks each queue will have."""
        self.buckets: dict[tuple[str, str], Bucket] = {}
        self.spent: Tally[tuple[str, str]] = Tally()
        wanted = [(new.queue, to_json(new.key)) for new in tasks if new.key is not None]
        self.keys = self.find_keys(wanted) if wanted else {}
        # An id above all others can't be known. Ids are made in time order, so this spares nearly all lookups.
        ids = [new.id for new in tasks if new.id <= highest]
        ids += [held.task for held in self.keys.values()]
        self.records = self.find_records(ids) if ids else {}
        needed = {edge.id: None for new in tasks for edge in new.after if edge.id <= highest}
        self.states = self.find_states(list(needed)) if needed else {}
        """States of prerequisites, and of what has been staged."""

    def find_keys(self, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], HeldKey]:
        found = keys_decoder.decode(self.transaction.value("find_keys", to_json(wanted)))
        return {(held.queue, held.key): held for held in found}

    def find_records(self, ids: list[str]) -> dict[str, TaskRecord]:
        return {task_id: self.transaction.record(row) for task_id, row in self.transaction.find(ids).items()}

    def find_states(self, ids: list[str]) -> dict[str, State]:
        places = self.transaction.row("states", to_json(ids))
        return {task_id: state for place in places for task_id, state in states_decoder.decode(place)}

    def stage(self, new: NewTask, state: State) -> None:
        """Later items see that this one will be stored."""
        self.staged[new.id] = new
        self.states[new.id] = state
        self.spent[new.queue, new.client] += 1
        self.arrived[new.queue] += state is State.PENDING
        if new.key is not None:
            record = admit(new, self.transaction.settings(new.queue), self.transaction.now)
            self.staged_keys[new.queue, new.key] = structs.replace(record, state=state), new.fingerprint

    def is_full(self, queue: str, most: int) -> bool:
        """Whether a queue has as many pending tasks as it may."""
        if queue not in self.depths:
            pending = self.transaction.pending_by_stream()
            streams = self.transaction.catalog.by_queue[queue]
            self.depths[queue] = sum(pending.get(stream.number, 0) for stream in streams)
        return self.depths[queue] + self.arrived[queue] >= most

    def too_fast(self, new: NewTask) -> EnqueueAnswer | None:
        """The answer if the client has used up what it may enqueue."""
        limit = client_limit(self.transaction.settings(new.queue))
        if limit is None or new.client == SCHEDULER:
            return None
        whose = (new.queue, new.client)
        if whose not in self.buckets:
            stored = self.transaction.row("bucket", new.queue, Scope.CLIENT, new.client)
            self.buckets[whose] = refill(None if stored is None else Bucket(*stored), limit, self.transaction.now)
        bucket = spend(self.buckets[whose], self.spent[whose])
        if tokens(bucket) > 0:
            return None
        return EnqueueAnswer(EnqueueOutcome.LIMITED, new.id, retry_in=until_token(bucket, limit))


def decide(known: Known, new: NewTask, now: Instant) -> EnqueueAnswer:
    if (there := known_id(known, new)) is not None:
        return there
    for edge in new.after:
        if edge.id not in known.states:
            return EnqueueAnswer(EnqueueOutcome.UNKNOWN, edge.id)
    if new.key is not None and (held := held_key(known, new, now)) is not None:
        return held
    state = first_state(known, new, now)
    queue = known.transaction.catalog.queues.get(new.queue)
    if queue is not None:
        if queue.state is QueueState.DRAINING:
            return EnqueueAnswer(EnqueueOutcome.DRAINING, new.id)
        if queue.settings.enqueue_rate is not None and (too_fast := known.too_fast(new)) is not None:
            return too_fast
        most = queue.settings.max_depth
        if most is not None and state is State.PENDING and known.is_full(new.queue, most):
            return EnqueueAnswer(EnqueueOutcome.FULL, new.id)
    known.stage(new, state)
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, state)


def due_at_first(new: NewTask, now: Instant) -> Instant:
    """When a new task is to run."""
    return new.at if new.at is not None else now + new.delay


def first_state(known: Known, new: NewTask, now: Instant) -> State:
    """The state that a new task will be in."""
    if new.after:
        verdict, _ = worst_verdict(known, new)
        if verdict is not Verdict.GO:
            return STATE_AFTER[verdict]
    return State.SCHEDULED if due_at_first(new, now) > now else State.PENDING


def worst_verdict(known: Known, new: NewTask) -> tuple[Verdict, str]:
    """What the edges of a new task say together, and why: the first that ends it, else any that makes it wait."""
    found = Verdict.GO
    for edge in new.after:
        state = known.states[edge.id]
        verdict = judge(edge.rule, state)
        if verdict in (Verdict.CANCEL, Verdict.BURY):
            return verdict, f"{edge.id} is {state}"
        if verdict is Verdict.WAIT:
            found = verdict
    return found, ""


def known_id(known: Known, new: NewTask) -> EnqueueAnswer | None:
    """The answer if the id is taken, by a stored task or by an earlier item."""
    record = known.records.get(new.id)
    there = record or known.staged.get(new.id)
    if there is None:
        return None
    same = (there.name, there.queue, there.args) == (new.name, new.queue, new.args)
    outcome = EnqueueOutcome.EXISTS if same else EnqueueOutcome.TAKEN
    return EnqueueAnswer(outcome, new.id, known.states.get(new.id, record.state if record else None))


def held_key(known: Known, new: NewTask, now: Instant) -> EnqueueAnswer | None:
    """The answer if the key is taken, by a stored task or by an earlier item."""
    assert new.key is not None
    record: TaskRecord | None
    if (new.queue, new.key) in known.staged_keys:
        record, fingerprint = known.staged_keys[new.queue, new.key]
        task_id = record.id
    elif (held := known.keys.get((new.queue, to_json(new.key)))) is not None:
        record, fingerprint, task_id = known.records.get(held.task), held.fingerprint, held.task
        if now >= held.held_until and (record is None or record.state not in UNFINISHED):
            return None
    else:
        return None
    if new.replace:
        return None if record is None else replacing(known, record, new, now)
    outcome = EnqueueOutcome.DUPLICATE if fingerprint == new.fingerprint else EnqueueOutcome.CONFLICT
    return EnqueueAnswer(outcome, task_id, record.state if record else None)


def replacing(known: Known, record: TaskRecord, new: NewTask, now: Instant) -> EnqueueAnswer | None:
    """The answer to a task that would take the place of one that still waits."""
    if record.state not in WAITING:
        return None
    if record.name != new.name:
        return EnqueueAnswer(EnqueueOutcome.CONFLICT, record.id, record.state)
    after, _ = replaced(record, new, known.transaction.settings(record.queue), now)
    known.staged_keys[new.queue, new.key or ""] = after, new.fingerprint
    known.states[record.id] = after.state
    known.replacements.append((new, record.id))
    known.arrived[record.queue] += (after.state is State.PENDING) - (record.state is State.PENDING)
    return EnqueueAnswer(EnqueueOutcome.REPLACED, record.id, after.state)
