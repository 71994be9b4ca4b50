"""enqueue: each item is decided in order, then the accepted ones are stored."""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Sequence

from msgspec import structs

from dibs.core.graph import Verdict, inherited_within, judge
from dibs.core.limits import Scope, client_limit, refill, spend, tokens, until_token
from dibs.core.moves import admit, ended_by, replaced
from dibs.core.states import ENDED, UNFINISHED, WAITING, State
from dibs.core.task import EndedBy, NewTask, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.schedules import SCHEDULER
from dibs.engines.memory.follow_ups import recompute
from dibs.engines.memory.store import HeldKey, Store, Workflow, detached
from dibs.engines.topics import ended_topic, work_topic
from dibs.engines.values import ACCEPTED, REJECTED, Counter, EnqueueAnswer, EnqueueOutcome, Need, NewWorkflow

__all__ = ["enqueue"]


class Staged:
    """What earlier items of the same batch have decided to store."""

    def __init__(self) -> None:
        self.tasks: dict[str, NewTask] = {}
        self.states: dict[str, State] = {}
        self.keys: dict[tuple[str, str], tuple[TaskRecord, HeldKey]] = {}
        """What keys will stand for, and these tasks as they will be then."""
        self.pending: Totals[str] = Totals()
        self.spent: Totals[tuple[str, str]] = Totals()


def enqueue(
    store: Store, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None, now: Instant
) -> list[EnqueueAnswer]:
    staged = Staged()
    answers = [decide(store, new, staged, now) for new in tasks]
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome in REJECTED:
            store.counters[new.queue][Counter.REJECTED] += 1
    if atomic and any(answer.outcome not in ACCEPTED for answer in answers):
        abandoned = EnqueueOutcome.ABANDONED
        return [a if a.outcome not in ACCEPTED else EnqueueAnswer(abandoned, a.id) for a in answers]
    if workflow is not None and workflow.id not in store.workflows:
        store.workflows[workflow.id] = Workflow(workflow, now, [])
    heirs = heirs_of(staged)
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome is EnqueueOutcome.ENQUEUED:
            store_new(store, new, answer.state, heirs.get(new.id, 0), now)
        elif answer.outcome is EnqueueOutcome.REPLACED:
            replace(store, new, answer.id, now)
        elif answer.outcome is EnqueueOutcome.DUPLICATE:
            store.counters[new.queue][Counter.DUPLICATES] += 1
    for new in staged.tasks.values():
        for edge in new.after:
            if edge.id not in staged.tasks:
                recompute(store, edge.id, now)
    spend_tokens(store, staged, now)
    return answers


def decide(store: Store, new: NewTask, staged: Staged, now: Instant) -> EnqueueAnswer:
    if (known := known_id(store, new, staged)) is not None:
        return known
    for edge in new.after:
        if edge.id not in staged.tasks and edge.id not in store.tasks:
            return EnqueueAnswer(EnqueueOutcome.UNKNOWN, edge.id)
    if new.spec.key is not None and (held := held_key(store, new, staged, now)) is not None:
        return held
    queue, settings = store.queues.get(new.queue), store.settings(new.queue)
    if queue is not None and queue.state is QueueState.DRAINING:
        return EnqueueAnswer(EnqueueOutcome.DRAINING, new.id)
    if (too_fast := limited(store, new, staged, now)) is not None:
        return too_fast
    state = first_state(store, new, staged, now)
    depth = store.counts[new.queue][State.PENDING] + staged.pending[new.queue]
    if state is State.PENDING and settings.max_depth is not None and depth >= settings.max_depth:
        return EnqueueAnswer(EnqueueOutcome.FULL, new.id)
    staged.tasks[new.id] = new
    staged.states[new.id] = state
    staged.spent[new.queue, new.client] += 1
    if new.spec.key is not None:
        record = structs.replace(admit(new, settings, now), state=state)
        staged.keys[new.queue, new.spec.key] = record, held_by(new, new.id, now)
    if state is State.PENDING:
        staged.pending[new.queue] += 1
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, state)


def limited(store: Store, new: NewTask, staged: Staged, now: Instant) -> EnqueueAnswer | None:
    """The answer if the client has no tokens left."""
    limit = client_limit(store.settings(new.queue))
    if limit is None or new.client == SCHEDULER:
        return None
    bucket = refill(store.buckets.get((new.queue, Scope.CLIENT, new.client)), limit, now)
    bucket = spend(bucket, staged.spent[new.queue, new.client])
    if tokens(bucket) > 0:
        return None
    return EnqueueAnswer(EnqueueOutcome.LIMITED, new.id, retry_in=until_token(bucket, limit))


def spend_tokens(store: Store, staged: Staged, now: Instant) -> None:
    for (queue, client), count in staged.spent.items():
        limit = client_limit(store.settings(queue))
        if limit is not None and client != SCHEDULER:
            whose = (queue, Scope.CLIENT, client)
            store.buckets[whose] = spend(refill(store.buckets.get(whose), limit, now), count)


def first_state(store: Store, new: NewTask, staged: Staged, now: Instant) -> State:
    """The initial state of a new task."""
    verdict = worst_verdict(store, new, staged.states)[0]
    if verdict is not Verdict.GO:
        return {Verdict.WAIT: State.BLOCKED, Verdict.CANCEL: State.CANCELLED, Verdict.BURY: State.DEAD}[verdict]
    return State.SCHEDULED if (new.at if new.at is not None else now + new.delay) > now else State.PENDING


def worst_verdict(store: Store, new: NewTask, states: dict[str, State]) -> tuple[Verdict, EndedBy | None]:
    """The combined verdict of a new task's edges, and why: the first that ends it, else any that makes it wait."""
    found = Verdict.GO
    for edge in new.after:
        state = states[edge.id] if edge.id in states else store.tasks[edge.id].state
        verdict = judge(edge.rule, state)
        if verdict in (Verdict.CANCEL, Verdict.BURY):
            return verdict, EndedBy(edge.id, state)
        if verdict is Verdict.WAIT:
            found = verdict
    return found, None


def known_id(store: Store, new: NewTask, staged: Staged) -> EnqueueAnswer | None:
    there = store.tasks.get(new.id) or staged.tasks.get(new.id)
    if there is None:
        return None
    state = there.state if isinstance(there, TaskRecord) else None
    same = (there.name, there.queue, there.args) == (new.name, new.queue, new.args)
    outcome = EnqueueOutcome.EXISTS if same else EnqueueOutcome.TAKEN
    return EnqueueAnswer(outcome, new.id, staged.states.get(new.id, state))


def held_key(store: Store, new: NewTask, staged: Staged, now: Instant) -> EnqueueAnswer | None:
    """The answer if the key is taken, by a stored task or by an earlier item."""
    key = (new.queue, new.spec.key or "")
    record: TaskRecord | None
    if key in staged.keys:
        record, held = staged.keys[key]
    elif key in store.keys:
        held = store.keys[key]
        record = store.tasks.get(held.task_id)
    else:
        return None
    if now >= held.until and (record is None or record.state not in UNFINISHED):
        return None
    if new.replace:
        return None if record is None else replacing(store, record, new, staged, now)
    outcome = EnqueueOutcome.DUPLICATE if held.fingerprint == new.fingerprint else EnqueueOutcome.CONFLICT
    return EnqueueAnswer(outcome, held.task_id, record.state if record else None)


def replacing(store: Store, record: TaskRecord, new: NewTask, staged: Staged, now: Instant) -> EnqueueAnswer | None:
    """The answer to a task that replaces one that still waits."""
    if record.state not in WAITING:
        return None
    if record.name != new.name:
        return EnqueueAnswer(EnqueueOutcome.CONFLICT, record.id, record.state)
    after, _ = replaced(record, new, store.settings(record.queue), now)
    staged.keys[new.queue, new.spec.key or ""] = after, held_by(new, record.id, now)
    staged.states[record.id] = after.state
    staged.pending[record.queue] += (after.state is State.PENDING) - (record.state is State.PENDING)
    return EnqueueAnswer(EnqueueOutcome.REPLACED, record.id, after.state)


def heirs_of(staged: Staged) -> dict[str, int]:
    """What new tasks inherit from each other."""
    waiting = [new for new in staged.tasks.values() if staged.states[new.id] is State.BLOCKED]
    if not waiting:
        return {}
    edges = {new.id: [edge.id for edge in new.after] for new in waiting}
    unended = {key: new.spec.priority for key, new in staged.tasks.items() if staged.states[key] not in ENDED}
    return inherited_within(list(unended), edges, unended)


def store_new(store: Store, new: NewTask, state: State | None, inherited: int, now: Instant) -> None:
    settings = store.queue(new.queue).settings
    verdict, cause = worst_verdict(store, new, {})
    record = detached(admit(new, settings, now, blocked=verdict is not Verdict.GO, inherited=inherited))
    if new.after:
        needs = [
            Need(edge.id, edge.rule, verdict is Verdict.WAIT and store.tasks[edge.id].state not in ENDED)
            for edge in new.after
        ]
        store.edges.add(new.id, needs, record.urgency)
    store.put(record)
    if cause is not None:
        store.put(*ended_by(record, verdict, cause, now))
    store.counters[new.queue][Counter.ENQUEUED] += 1
    if new.spec.workflow in store.workflows:
        store.workflows[new.spec.workflow or ""].members.append(new.id)
    hold_key(store, new, new.id, now)
    store.topics.add(ended_topic(new.queue) if state in ENDED else work_topic(new.queue))


def replace(store: Store, new: NewTask, task_id: str, now: Instant) -> None:
    """A waiting task gets the content of a newer one. It may have been replayed into another queue."""
    record = store.tasks[task_id]
    after, entry = replaced(record, new, store.settings(record.queue), now)
    store.put(detached(after), entry)
    hold_key(store, new, task_id, now)
    store.topics.add(work_topic(record.queue))


def hold_key(store: Store, new: NewTask, task_id: str, now: Instant) -> None:
    if new.spec.key is not None:
        store.keys[new.queue, new.spec.key] = held_by(new, task_id, now)


def held_by(new: NewTask, task_id: str, now: Instant) -> HeldKey:
    return HeldKey(task_id, new.fingerprint, now + new.window)
