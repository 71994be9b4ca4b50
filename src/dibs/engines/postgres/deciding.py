"""What becomes of each new task of a batch, decided in order; nothing is written here."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence

from msgspec import Struct

from dibs.core.graph import Verdict, judge
from dibs.core.limits import Bucket, Scope, client_limit, refill, spend, tokens, until_token
from dibs.core.moves import admit, replaced
from dibs.core.states import UNFINISHED, WAITING, State
from dibs.core.task import NewTask, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import EnqueueAnswer, EnqueueOutcome
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import columns, to_json
from dibs.engines.postgres.transaction import Transaction

__all__ = ["SCHEDULER", "Known", "decide", "due_at_first", "worst_verdict"]

SCHEDULER = "schedule"
"""The client by which schedules enqueue; no limit on enqueueing holds for it."""

STATE_AFTER = {Verdict.WAIT: State.BLOCKED, Verdict.CANCEL: State.CANCELLED, Verdict.BURY: State.DEAD}


class HeldKey(Struct, frozen=True):
    """What an idempotency key stands for."""

    task: str
    fingerprint: str
    held_until: Instant


class Known:
    """What the store knows that matters to these new tasks, and what earlier items have added to it."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.staged: dict[str, NewTask] = {}
        self.staged_keys: dict[tuple[str, str], TaskRecord] = {}
        self.fingerprints: dict[tuple[str, str], str] = {}
        """Of the staged keys."""
        self.replacements: list[tuple[NewTask, str]] = []
        self.keys: dict[tuple[str, str], HeldKey] = {}
        self.new_keys: set[tuple[str, str]] = set()
        """Keys that are held for now, so that nobody else takes them before it is decided who does."""
        self.holders = Records(transaction)
        self.records: dict[str, TaskRecord] = {}
        self.states: dict[str, State] = {}
        """States of prerequisites, and of what has been staged."""
        self.depths: dict[str, int] = {}
        self.buckets: dict[tuple[str, str], Bucket] = {}
        self.spent: Tally[tuple[str, str]] = Tally()

    @classmethod
    async def about(cls, transaction: Transaction, tasks: Sequence[NewTask]) -> Known:
        """Lock, and read, all that has a say about these tasks: keys, prerequisites, clients' buckets."""
        known = cls(transaction)
        await known.lock_keys(tasks)
        needed = sorted({edge.id for new in tasks for edge in new.after})
        if needed:
            rows = await transaction.rows("lock_needed", needed)
            known.states = {str(row["id"]): State(row["state"]) for row in rows}
        found = await transaction.find([new.id for new in tasks])
        known.records |= {task_id: transaction.record(row) for task_id, row in found.items()}
        await known.read_depths(tasks)
        await known.read_buckets(tasks)
        return known

    async def lock_keys(self, tasks: Sequence[NewTask]) -> None:
        wanted = sorted({(new.queue, to_json(new.key)) for new in tasks if new.key is not None})
        if not wanted:
            return
        for row in await self.transaction.rows("lock_keys", *columns(wanted, 2)):
            self.keys[row["queue"], row["key"]] = HeldKey(str(row["task"]), row["fingerprint"], row["held_until"])
        self.new_keys = {*wanted} - {*self.keys}
        await self.holders.load(held.task for held in self.keys.values())
        self.records |= self.holders.current

    async def read_depths(self, tasks: Sequence[NewTask]) -> None:
        bounded = {new.queue for new in tasks if self.transaction.settings(new.queue).max_depth is not None}
        for queue in bounded:
            streams = [stream.number for stream in self.transaction.catalog.of_queue(queue)]
            self.depths[queue] = await self.transaction.value("depth", streams)

    async def read_buckets(self, tasks: Sequence[NewTask]) -> None:
        clients = {(new.queue, new.client) for new in tasks if new.client != SCHEDULER}
        limited = sorted(each for each in clients if client_limit(self.transaction.settings(each[0])) is not None)
        for queue, client in limited:
            limit = client_limit(self.transaction.settings(queue))
            assert limit is not None
            await self.transaction.write("make_bucket", queue, Scope.CLIENT, client)
            level, at = await self.transaction.row("lock_bucket", queue, Scope.CLIENT, client)
            stored = None if level < 0 else Bucket(level, at)
            self.buckets[queue, client] = refill(stored, limit, self.transaction.now)

    def stage(self, new: NewTask, state: State) -> None:
        """Later items see that this one will be stored."""
        self.staged[new.id] = new
        self.states[new.id] = state
        self.spent[new.queue, new.client] += 1
        if new.key is not None:
            settings = self.transaction.settings(new.queue)
            record = admit(new, settings, self.transaction.now, blocked=state is State.BLOCKED)
            record.state = state
            self.staged_keys[new.queue, new.key] = record
            self.fingerprints[new.queue, new.key] = new.fingerprint
        if state is State.PENDING and new.queue in self.depths:
            self.depths[new.queue] += 1

    def too_fast(self, new: NewTask) -> EnqueueAnswer | None:
        """The answer if the client has used up what it may enqueue."""
        bucket = self.buckets.get((new.queue, new.client))
        limit = client_limit(self.transaction.settings(new.queue))
        if bucket is None or limit is None:
            return None
        bucket = spend(bucket, self.spent[new.queue, new.client])
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
        if (too_fast := known.too_fast(new)) is not None:
            return too_fast
        most = queue.settings.max_depth
        if most is not None and state is State.PENDING and known.depths[new.queue] >= most:
            return EnqueueAnswer(EnqueueOutcome.FULL, new.id)
    known.stage(new, state)
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, state)


def due_at_first(new: NewTask, now: Instant) -> Instant:
    """When a new task is to run."""
    return new.at if new.at is not None else now + new.delay


def first_state(known: Known, new: NewTask, now: Instant) -> State:
    """The state that a new task will be in."""
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
    state = known.states.get(new.id, record.state if record else None)
    return EnqueueAnswer(outcome, new.id, state)


def held_key(known: Known, new: NewTask, now: Instant) -> EnqueueAnswer | None:
    """The answer if the key is taken, by a stored task or by an earlier item."""
    assert new.key is not None
    staged = known.staged_keys.get((new.queue, new.key))
    if staged is not None:
        record: TaskRecord | None = staged
        task_id, fingerprint = staged.id, known.fingerprints[new.queue, new.key]
    else:
        held = known.keys.get((new.queue, to_json(new.key)))
        if held is None:
            return None
        record, task_id, fingerprint = known.records.get(held.task), held.task, held.fingerprint
        if now >= held.held_until and (record is None or record.state not in UNFINISHED):
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
    known.staged_keys[new.queue, new.key or ""] = after
    known.fingerprints[new.queue, new.key or ""] = new.fingerprint
    known.replacements.append((new, record.id))
    known.states[record.id] = after.state
    if record.queue in known.depths:
        known.depths[record.queue] += (after.state is State.PENDING) - (record.state is State.PENDING)
    return EnqueueAnswer(EnqueueOutcome.REPLACED, record.id, after.state)
