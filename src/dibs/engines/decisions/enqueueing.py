"""What becomes of each new task of a batch: decided in order, each item seeing the ones before it."""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from dibs.core.graph import Verdict, inherited_within, judge
from dibs.core.limits import Bucket, Scope, client_limit, refill, spend, tokens, until_token
from dibs.core.moves import Change, admit, ended_by, replaced
from dibs.core.settings import Limit, QueueSettings
from dibs.core.states import ENDED, UNFINISHED, WAITING, State
from dibs.core.task import EndedBy, NewTask, QueueState, TaskRecord, is_like
from dibs.core.times import END, Instant
from dibs.engines.decisions.records import Ledger
from dibs.engines.decisions.schedules import SCHEDULER
from dibs.engines.decisions.transaction import Queue, Transaction
from dibs.engines.figures import Counter
from dibs.engines.values import ACCEPTED, REJECTED, EnqueueAnswer, EnqueueOutcome, UnreadableTask

__all__ = [
    "HeldKey",
    "Known",
    "all_plain",
    "answer_all",
    "due_at_first",
    "like_runs",
    "replace_all",
    "stored_answer",
    "unreadable_key",
]

STATE_AFTER = {Verdict.WAIT: State.BLOCKED, Verdict.CANCEL: State.CANCELLED, Verdict.BURY: State.DEAD}
NO_QUEUE = QueueSettings()


def all_plain(
    tasks: Iterable[NewTask], queues: Mapping[str, Queue], is_paid: bool = False, guarded: bool = False
) -> bool:
    """Whether tasks can be stored without a decision, if their ids are new. In most calls all can.

    `is_paid`: their clients' tokens have been taken. `guarded`: they may concern others.
    """
    checked = None
    for new in tasks:
        spec = new.spec
        if spec.key is not None or new.after or spec.workflow is not None:
            return False
        if new.queue != checked:
            checked = new.queue
            queue = queues.get(checked)
            if queue is not None and not (takes_all(queue, is_paid) and (guarded or not queue.is_guarded)):
                return False
    return True


def takes_all(queue: Queue, is_paid: bool) -> bool:
    """Whether a queue takes every task."""
    settings = queue.settings
    is_limited = settings.max_depth is not None or (settings.enqueue_rate is not None and not is_paid)
    return queue.state is not QueueState.DRAINING and not is_limited


class HeldKey(Struct, frozen=True):
    """What an idempotency key stands for."""

    task: str
    fingerprint: str
    held_until: Instant


def unreadable_key(task_id: str) -> HeldKey:
    """What an unreadable key stands for: no new task gets it, so that there are never two tasks for one key."""
    return HeldKey(task_id, "?", END)


class Known:
    """What the store knows that matters to these new tasks, and what has been decided about them.

    The verb fills in `keys`, `records`, `states`, `depths` and `buckets` before anything is decided.
    """

    def __init__(self, tasks: Sequence[NewTask], queues: Mapping[str, Queue], now: Instant) -> None:
        self.tasks = tasks
        self.queues = queues
        self.now = now
        self.keys: dict[tuple[str, str], HeldKey] = {}
        self.records: dict[str, TaskRecord] = {}
        """Tasks with the same ids, and tasks that hold the keys."""
        self.unreadable: dict[str, UnreadableTask] = {}
        """Those of them that can't be read."""
        self.states: dict[str, State] = {}
        """States of prerequisites, and of staged tasks."""
        self.depths: dict[str, int] = {}
        """How many pending tasks each queue of `bounded` will have."""
        self.buckets: dict[tuple[str, str], Bucket] = {}
        """By queue and client, refilled to now, for each of `limited_clients`."""
        self.staged: dict[str, NewTask] = {}
        self.staged_keys: dict[tuple[str, str], tuple[TaskRecord | None, HeldKey]] = {}
        """What keys will stand for, and these tasks as they will be then; None for a staged one."""
        self.replacements: list[tuple[NewTask, str]] = []
        self.spent: Totals[tuple[str, str]] = Totals()
        self.refused = False
        """None of them will be stored."""

    def settings(self, name: str) -> QueueSettings:
        queue = self.queues.get(name)
        return NO_QUEUE if queue is None else queue.settings

    def know(self, found: Iterable[TaskRecord | UnreadableTask]) -> None:
        """Tasks with the same ids, or that hold the keys."""
        for record in found:
            if isinstance(record, UnreadableTask):
                self.unreadable[record.id] = record
            else:
                self.records[record.id] = record

    # What the verb must read.

    def wanted_keys(self) -> set[tuple[str, str]]:
        return {(new.queue, new.spec.key) for new in self.tasks if new.spec.key is not None}

    def prerequisites(self) -> set[str]:
        return {edge.id for new in self.tasks for edge in new.after}

    def bounded(self) -> list[str]:
        """Queues that may be full."""
        return [queue for queue in {new.queue for new in self.tasks} if self.settings(queue).max_depth is not None]

    def limited_clients(self) -> list[tuple[str, str, Limit]]:
        """Queue, client and limit of those that may enqueue too fast, in order."""
        limits = {queue: client_limit(self.settings(queue)) for queue in {new.queue for new in self.tasks}}
        if not any(limits.values()):
            return []
        clients = sorted({(new.queue, new.client) for new in self.tasks if new.client != SCHEDULER})
        return [(queue, client, limit) for queue, client in clients if (limit := limits[queue]) is not None]

    def know_bucket(self, queue: str, client: str, limit: Limit, stored: Bucket | None) -> None:
        self.buckets[queue, client] = refill(stored, limit, self.now)

    # What was decided.

    def stage(self, new: NewTask, state: State) -> None:
        """Later items see that this one will be stored."""
        self.staged[new.id] = new
        self.states[new.id] = state
        self.spent[new.queue, new.client] += 1
        if state is State.PENDING and new.queue in self.depths:
            self.depths[new.queue] += 1
        if new.spec.key is not None:
            self.staged_keys[new.queue, new.spec.key] = None, self.held_by(new, new.id)

    def admit(self, new: NewTask, heirs: Mapping[str, int]) -> Change:
        """The record of a staged task; one that ends at once is blocked first."""
        state = self.states[new.id]
        blocked = state is State.BLOCKED or state in ENDED
        record = admit(new, self.settings(new.queue), self.now, blocked=blocked, inherited=heirs.get(new.id, 0))
        if state not in ENDED:
            return record, None
        verdict, cause = self.worst_verdict(new)
        assert cause is not None
        return ended_by(record, verdict, cause, self.now)

    def take_plain(self) -> list[NewTask]:
        """Staged tasks that are stored like those that need no decision. They are staged no longer."""
        needed = self.prerequisites()
        plain = [
            new for new in self.staged.values() if not new.after and new.spec.workflow is None and new.id not in needed
        ]
        for new in plain:
            del self.staged[new.id]
        return plain

    def worst_verdict(self, new: NewTask) -> tuple[Verdict, EndedBy | None]:
        """The combined verdict of a new task's edges, and why: the first that ends it, else any that makes it wait."""
        found = Verdict.GO
        for edge in new.after:
            state = self.states[edge.id]
            verdict = judge(edge.rule, state)
            if verdict in (Verdict.CANCEL, Verdict.BURY):
                return verdict, EndedBy(edge.id, state)
            if verdict is Verdict.WAIT:
                found = verdict
        return found, None

    def heirs(self) -> dict[str, int]:
        """What new tasks inherit from each other."""
        staged, states = self.staged, self.states
        edges = {new.id: [edge.id for edge in new.after] for new in staged.values() if states[new.id] is State.BLOCKED}
        if not edges:
            return {}
        priorities = {new.id: new.spec.priority for new in staged.values() if states[new.id] not in ENDED}
        return inherited_within(list(priorities), edges, priorities)

    def edges(self, records: Ledger) -> list[tuple[object, ...]]:
        """(dependent, slot, prerequisite, rule, weight, is open) of each edge of the staged tasks.

        An edge is open if its task waits and its prerequisite has not ended.
        """
        states = self.states
        return [
            (
                new.id, slot, edge.id, edge.rule, records.current[new.id].urgency,
                states[new.id] is State.BLOCKED and states[edge.id] not in ENDED,
            )
            for new in self.staged.values()
            for slot, edge in enumerate(new.after)
        ]  # fmt: skip

    def needed(self) -> list[str]:
        """Stored tasks that new ones wait for, without those that have ended: they inherit nothing."""
        edges = (edge for new in self.staged.values() for edge in new.after)
        return list({e.id: None for e in edges if e.id not in self.staged and self.states[e.id] not in ENDED})

    def held_by(self, new: NewTask, task_id: str) -> HeldKey:
        """What the key of a new task stands for once that is stored, or has replaced another."""
        return HeldKey(task_id, new.fingerprint, self.now + new.window)

    def holder(self, queue: str, key: str) -> tuple[TaskRecord | None, HeldKey | None]:
        """What a key stands for, by now: the record of its task, if that is there, and what is kept of the key."""
        if (queue, key) in self.staged_keys:
            record, staged = self.staged_keys[queue, key]
            return record or self.admit(self.staged[staged.task], {})[0], staged
        held = self.keys.get((queue, key))
        return None if held is None else self.records.get(held.task), held

    def held_keys(self) -> dict[tuple[str, str], HeldKey]:
        """Whom keys will stand for."""
        return {whose: held for whose, (_, held) in self.staged_keys.items()}

    def spent_buckets(self) -> list[tuple[str, Scope, str, int, Instant, None]]:
        """The buckets after what clients have enqueued: queue, scope, client, level, at."""
        spent = [(whose, spend(full, self.spent[whose])) for whose, full in self.buckets.items() if self.spent[whose]]
        return [(queue, Scope.CLIENT, client, bucket.level, bucket.at, None) for (queue, client), bucket in spent]


def answer_all(transaction: Transaction, known: Known, atomic: bool) -> list[EnqueueAnswer]:
    """Decide about each task, and count duplicates and rejections. `atomic`: all or none."""
    answers = [decide(known, new) for new in known.tasks]
    if len(known.staged) == len(answers):
        return answers
    known.refused = atomic and any(answer.outcome not in ACCEPTED for answer in answers)
    for new, answer in zip(known.tasks, answers, strict=True):
        if answer.outcome in REJECTED:
            if not new.waits:
                limited = answer.outcome is EnqueueOutcome.LIMITED
                transaction.count_event(Counter.LIMITED if limited else Counter.REJECTED, new.queue)
        elif answer.outcome is EnqueueOutcome.DUPLICATE and not known.refused:
            transaction.count_event(Counter.DUPLICATES, new.queue)
    if known.refused:
        abandoned = EnqueueOutcome.ABANDONED
        return [a if a.outcome not in ACCEPTED else EnqueueAnswer(abandoned, a.id) for a in answers]
    return answers


def decide(known: Known, new: NewTask) -> EnqueueAnswer:
    if (there := known_id(known, new)) is not None:
        return there
    for edge in new.after:
        if edge.id not in known.states:
            return EnqueueAnswer(EnqueueOutcome.UNKNOWN, edge.id)
    if new.spec.key is not None and (held := held_key(known, new)) is not None:
        return held
    state = first_state(known, new)
    queue = known.queues.get(new.queue)
    if queue is not None:
        if queue.state is QueueState.DRAINING:
            return EnqueueAnswer(EnqueueOutcome.DRAINING, new.id)
        if known.buckets and (answer := too_fast(known, new)) is not None:
            return answer
        most = queue.settings.max_depth
        if most is not None and state is State.PENDING and known.depths[new.queue] >= most:
            return EnqueueAnswer(EnqueueOutcome.FULL, new.id)
    known.stage(new, state)
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, state)


def too_fast(known: Known, new: NewTask) -> EnqueueAnswer | None:
    """The answer if the client has no tokens left."""
    full, limit = known.buckets.get((new.queue, new.client)), client_limit(known.settings(new.queue))
    if full is None or limit is None:
        return None
    bucket = spend(full, known.spent[new.queue, new.client])
    if tokens(bucket) > 0:
        return None
    return EnqueueAnswer(EnqueueOutcome.LIMITED, new.id, retry_in=until_token(bucket, limit))


def due_at_first(new: NewTask, now: Instant) -> Instant:
    """When a new task is due."""
    return new.at if new.at is not None else now + new.delay


def first_state(known: Known, new: NewTask) -> State:
    """The initial state of a new task."""
    if new.after:
        verdict, _ = known.worst_verdict(new)
        if verdict is not Verdict.GO:
            return STATE_AFTER[verdict]
    return State.SCHEDULED if due_at_first(new, known.now) > known.now else State.PENDING


def known_id(known: Known, new: NewTask) -> EnqueueAnswer | None:
    """The answer if the id is taken, by a stored task or by an earlier item."""
    if new.id in known.unreadable:
        return EnqueueAnswer(EnqueueOutcome.TAKEN, new.id, known.unreadable[new.id].state)
    record = known.records.get(new.id)
    there = record or known.staged.get(new.id)
    if there is None:
        return None
    same = (there.name, there.queue, there.args) == (new.name, new.queue, new.args)
    outcome = EnqueueOutcome.EXISTS if same else EnqueueOutcome.TAKEN
    return EnqueueAnswer(outcome, new.id, known.states.get(new.id, record.state if record else None))


def held_key(known: Known, new: NewTask) -> EnqueueAnswer | None:
    """The answer if the key is held, by a stored task or by an earlier item."""
    assert new.spec.key is not None
    record, held = known.holder(new.queue, new.spec.key)
    if held is None:
        return None
    if (unreadable := known.unreadable.get(held.task)) is not None and unreadable.state in UNFINISHED:
        return EnqueueAnswer(EnqueueOutcome.CONFLICT, unreadable.id, unreadable.state)
    if known.now >= held.held_until and (record is None or record.state not in UNFINISHED):
        return None
    if new.replace:
        return None if record is None else replacing(known, record, new)
    outcome = EnqueueOutcome.DUPLICATE if held.fingerprint == new.fingerprint else EnqueueOutcome.CONFLICT
    return EnqueueAnswer(outcome, held.task, record.state if record else None)


def replacing(known: Known, record: TaskRecord, new: NewTask) -> EnqueueAnswer | None:
    """The answer to a task that replaces one that still waits."""
    if record.state not in WAITING:
        return None
    if record.name != new.name:
        return EnqueueAnswer(EnqueueOutcome.CONFLICT, record.id, record.state)
    after, _ = replaced(record, new, known.settings(record.queue), known.now)
    known.staged_keys[new.queue, new.spec.key or ""] = after, known.held_by(new, record.id)
    known.states[record.id] = after.state
    known.replacements.append((new, record.id))
    if record.queue in known.depths:
        known.depths[record.queue] += (after.state is State.PENDING) - (record.state is State.PENDING)
    return EnqueueAnswer(EnqueueOutcome.REPLACED, record.id, after.state)


def replace_all(transaction: Transaction, known: Known, records: Ledger) -> None:
    """Give waiting tasks the content of newer ones with the same key."""
    for new, task_id in known.replacements:
        record = records.get(task_id)
        assert record is not None
        records.put(*replaced(record, new, transaction.settings(record.queue), transaction.now))
        transaction.tell(record.queue, record.state)


def stored_answer(new: NewTask, now: Instant) -> EnqueueAnswer:
    """The answer about a plain task that was stored."""
    state = State.SCHEDULED if due_at_first(new, now) > now else State.PENDING
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, state)


def like_runs(tasks: Sequence[NewTask]) -> list[list[NewTask]]:
    """Most batches are of one kind: what such tasks share is computed once for each run of them."""
    runs: list[list[NewTask]] = []
    last: NewTask | None = None
    for new in tasks:
        if last is None or not is_like(new, last):
            last = new
            runs.append([])
        runs[-1].append(new)
    return runs
