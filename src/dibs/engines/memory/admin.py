"""The admin verbs of a memory store, its reads, and its chores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from msgspec import structs

from dibs.core.fairness import start_virtual_time
from dibs.core.limits import Scope, limit_of, refill
from dibs.core.moves import buried, cancelled, edited, replayed, reranked
from dibs.core.policy import CHORE_BATCH, KEEP_AUDIT, KEEP_MINUTES, KEEP_WORKERS
from dibs.core.settings import QueueSettings, reranks
from dibs.core.states import ENDED, UNFINISHED, WAITING, Reason, State
from dibs.core.task import Edit, QueueRecord, QueueState, TaskRecord, WorkerState
from dibs.core.times import DAY, Duration, Instant, day_of
from dibs.engines.decisions.admin import alike, changes_text, ids_done, target
from dibs.engines.decisions.searching import matches, may_match
from dibs.engines.memory.claiming import in_claim_order
from dibs.engines.memory.follow_ups import recompute
from dibs.engines.memory.headroom import limits_of
from dibs.engines.memory.store import Queue, Store, detached
from dibs.engines.memory.workflows import cancel_workflows, prune_workflows, replay_workflows
from dibs.engines.topics import ended_topic, work_topic, worker_topic
from dibs.engines.values import (
    COUNT_LIMIT,
    VISIT_LIMIT,
    Act,
    Beat,
    Cancel,
    CancelWorkflow,
    Changed,
    Counter,
    Counts,
    Edges,
    Page,
    Peeked,
    Position,
    Purge,
    Query,
    Replay,
    ReplayWorkflow,
    Standing,
    TenantRecord,
    worker_record,
)

__all__ = [
    "CHORES",
    "act",
    "beat",
    "counts",
    "delete_queue",
    "edges_of",
    "peek",
    "search",
    "set_queue",
    "set_queue_state",
    "set_worker_state",
    "standing",
]


def act(store: Store, acts: Sequence[Act], actor: str, now: Instant) -> list[Changed]:
    answers: list[Changed] = []
    for group in alike(acts):
        answers += ACTS[type(group[0])](store, group, actor, now)
    return answers


def cancel(store: Store, acts: Sequence[Cancel], actor: str, now: Instant) -> list[Changed]:
    answers = [cancel_one(store, act, actor, now) for act in acts]
    changed = [act.id for act, (_, is_new) in zip(acts, answers, strict=True) if is_new]
    remember_many(store, actor, "cancel", changed, acts[0].note, now)
    return [answer for answer, _ in answers]


def cancel_one(store: Store, act: Cancel, actor: str, now: Instant) -> tuple[Changed, bool]:
    """The answer, and whether this changed anything."""
    record = store.tasks.get(act.id)
    if record is None:
        return Changed.UNKNOWN, False
    if record.state in ENDED:
        return Changed.WRONG_STATE, False
    if record.state is State.RUNNING:
        is_new = record.cancel_reason is None
        if is_new:
            store.put(*cancelled(record, act.note, actor, now))
        store.topics.add(worker_topic(record.worker or ""))
        return Changed.REQUESTED, is_new
    store.put(*cancelled(record, act.note, actor, now))
    store.topics.add(ended_topic(record.queue))
    return Changed.DONE, True


def edit(store: Store, acts: Sequence[Edit], actor: str, now: Instant) -> list[Changed]:
    answers = [edit_one(store, act, actor, now) for act in acts]
    remember_many(store, actor, "edit", ids_done([act.id for act in acts], answers), "", now)
    return answers


def edit_one(store: Store, change: Edit, actor: str, now: Instant) -> Changed:
    record = store.tasks.get(change.id)
    if record is None:
        return Changed.UNKNOWN
    if record.state not in WAITING:
        return Changed.WRONG_STATE
    after, entry = edited(record, change, store.settings(record.queue), actor, now)
    if entry is None:
        return Changed.UNCHANGED
    store.put(detached(after), entry)
    store.topics.add(work_topic(record.queue))
    return Changed.DONE


def replay(store: Store, acts: Sequence[Replay], actor: str, now: Instant) -> list[Changed]:
    answers = [replay_one(store, act, actor, now) for act in acts]
    remember_many(store, actor, "replay", ids_done([act.id for act in acts], answers), acts[0].queue or "", now)
    return answers


def replay_one(store: Store, act: Replay, actor: str, now: Instant) -> Changed:
    record = store.tasks.get(act.id)
    if record is None:
        return Changed.UNKNOWN
    if record.state is not State.DEAD:
        return Changed.WRONG_STATE
    into = store.queue(act.queue or record.queue)
    if into.state is QueueState.DRAINING:
        return Changed.DRAINING
    store.put(*replayed(record, into.settings, act.queue, act.reset, actor, now))
    recompute(store, act.id, now)
    store.counters[into.name][Counter.REPLAYED] += 1
    store.topics.add(work_topic(into.name))
    return Changed.DONE


def purge(store: Store, acts: Sequence[Purge], actor: str, now: Instant) -> list[Changed]:
    answers = [purge_one(store, act, now) for act in acts]
    remember_many(store, actor, "purge", ids_done([act.id for act in acts], answers), "", now)
    return answers


def purge_one(store: Store, act: Purge, now: Instant) -> Changed:
    record = store.tasks.get(act.id)
    if record is None:
        return Changed.UNKNOWN
    if record.state not in ENDED:
        return Changed.WRONG_STATE
    for prerequisite in store.remove(record):  # what has cancelled it in the same call has not been followed up yet
        recompute(store, prerequisite, now)
    free_key(store, record)
    return Changed.DONE


def free_key(store: Store, record: TaskRecord) -> None:
    """A purged task no longer holds its key. (A pruned one does, until the key's window is over.)"""
    held = store.keys.get((record.queue, record.spec.key or ""))
    if record.spec.key is not None and held is not None and held.task_id == record.id:
        del store.keys[record.queue, record.spec.key]


def remember_many(store: Store, actor: str, act: str, ids: list[str], detail: str, now: Instant) -> None:
    if ids:
        store.remember(actor, act, target(ids), detail, now)


def search(store: Store, query: Query) -> Page:
    ids = sorted((i for i in store.tasks if query.cursor is None or i < query.cursor), reverse=True)
    found: list[TaskRecord] = []
    for visited, task_id in enumerate(ids, 1):
        record = store.tasks[task_id]
        if may_match(query, record.state, record.queue, record.name, record.worker) and matches(query, record):
            found.append(detached(record))
        if len(found) == query.limit or visited == VISIT_LIMIT:
            return Page(found, task_id if visited < len(ids) else None)
    return Page(found)


def peek(store: Store, queue: str, limit: int, until: str | None, now: Instant) -> Peeked:
    position = None if until is None else position_of(store, queue, until, now)
    found = in_claim_order(store, queue, now) if queue in store.queues else iter(())
    return Peeked([detached(record) for record in islice(found, limit)], position)


def position_of(store: Store, queue: str, task_id: str, now: Instant) -> Position | None:
    record = store.tasks.get(task_id)
    if record is None or record.state is not State.PENDING or record.queue != queue:
        return None
    for ahead, other in enumerate(islice(in_claim_order(store, queue, now), COUNT_LIMIT)):
        if other.id == task_id:
            return Position(ahead)
    return Position(COUNT_LIMIT, more=True)


def set_queue(
    store: Store, name: str, settings: QueueSettings, expected: int, actor: str, now: Instant
) -> QueueRecord | None:
    queue = store.queues.get(name)
    wanted = structs.replace(settings, version=expected + 1)
    if queue is not None and queue.settings == wanted:
        return queue.record()
    if (queue.settings.version if queue else 0) != expected:
        return None
    queue = store.queue(name)
    old, queue.settings = queue.settings, wanted
    if old.per_partition != wanted.per_partition:
        store.restock(queue)
    if reranks(old, wanted):
        queue.stale = deque(sorted(r.id for r in store.tasks.values() if r.queue == name and r.state in UNFINISHED))
    store.remember(actor, "set queue", name, changes_text(old, wanted), now)
    store.topics.add(work_topic(name))
    return queue.record()


def set_queue_state(store: Store, name: str, state: QueueState, actor: str, now: Instant) -> Changed:
    queue = store.queues.get(name)
    if queue is None:
        return Changed.UNKNOWN
    if queue.state is state:
        return Changed.UNCHANGED
    queue.state = state
    store.remember(actor, f"set queue {state}", name, "", now)
    store.topics.add(work_topic(name))
    return Changed.DONE


def delete_queue(store: Store, name: str, force: bool, actor: str, now: Instant) -> Changed:
    if name not in store.queues:
        return Changed.UNKNOWN
    unfinished = [r for r in store.tasks.values() if r.queue == name and r.state in UNFINISHED]
    if unfinished and not force:
        return Changed.WRONG_STATE
    for record in unfinished:
        if record.state in WAITING:
            store.put(*buried(record, Reason.QUEUE, actor, now))
    del store.queues[name]
    for whose in [whose for whose in store.buckets if whose[0] == name]:
        del store.buckets[whose]
    store.remember(actor, "delete queue", name, "force" if force else "", now)
    store.topics.add(ended_topic(name))
    return Changed.DONE


def standing(store: Store, queue: str, tasks: Sequence[str], most_tenants: int, now: Instant) -> Standing:
    limits = [limits_of(store, queue, task_id, now) for task_id in tasks]
    return Standing(limits, tenants(store, queue, most_tenants))


def edges_of(store: Store, task_id: str, followers: int) -> Edges:
    followed = store.edges.followed.get(task_id)
    waiting = sorted({link[0] for link in followed.links})[:followers] if followed else []
    return Edges(list(store.edges.needs.get(task_id, ())), waiting)


def counts(store: Store) -> Counts:
    names = {*store.queues, *(name for name, by_state in store.counts.items() if +by_state)}
    tasks = {name: {state: store.counts[name][state] for state in State} for name in sorted(names)}
    return Counts(tasks, {name: dict(+events) for name, events in sorted(store.counters.items()) if +events})


def tenants(store: Store, queue_name: str, limit: int) -> list[TenantRecord]:
    queue = store.queues.get(queue_name)
    if queue is None or not queue.settings.fair:
        return []
    pending_index = queue.pending_index
    found = [
        TenantRecord(
            tenant=share,
            pending=count,
            virtual_time=start_virtual_time(pending_index.clock, pending_index.virtual_times.get(share, 0)),
        )
        for share, count in pending_index.pending.items()
        if count
    ]
    return sorted(found, key=lambda each: (each.virtual_time, each.tenant))[:limit]


def beat(store: Store, sign: Beat, now: Instant) -> WorkerState:
    old = store.workers.get(sign.id)
    state, started_at = (None, now) if old is None else (old.state, old.started_at)
    record = store.workers[sign.id] = worker_record(sign, state, started_at, now)
    for minute in sign.minutes:
        store.minutes[minute.minute, minute.worker, minute.queue, minute.tier] = minute
    return record.state


def set_worker_state(store: Store, worker: str, state: WorkerState, actor: str, now: Instant) -> Changed:
    record = store.workers.get(worker)
    if record is None:
        return Changed.UNKNOWN
    if record.state is WorkerState.DEAD or state is WorkerState.DEAD:
        return Changed.WRONG_STATE
    if record.state is state:
        return Changed.UNCHANGED
    record.state = state
    store.remember(actor, f"set worker {state}", worker, "", now)
    store.topics.add(worker_topic(worker))
    return Changed.DONE


def rerank(store: Store, now: Instant) -> int:
    """Rank again the tasks that are due for it, then those that a change of settings left behind."""
    count = 0
    while count < CHORE_BATCH and (record := store.pop_rerank(now)) is not None:
        store.put(reranked(record, store.settings(record.queue), now))
        count += 1
    left = CHORE_BATCH
    for queue in sorted((q for q in store.queues.values() if q.stale), key=lambda q: q.name):
        left -= rerank_stale(store, queue, left, now)
    return count + CHORE_BATCH - left


def rerank_stale(store: Store, queue: Queue, most: int, now: Instant) -> int:
    taken = 0
    while queue.stale and taken < most:
        record = store.tasks.get(queue.stale.popleft())
        taken += 1
        if record is not None and record.queue == queue.name and record.state in WAITING:
            store.put(reranked(record, queue.settings, now))
    return taken


def prune_finished(store: Store, now: Instant) -> int:
    return prune_ended(store, (State.COMPLETED, State.CANCELLED), "keep", now)


def prune_dead(store: Store, now: Instant) -> int:
    return prune_ended(store, (State.DEAD,), "keep_dead", now)


def prune_ended(store: Store, states: tuple[State, ...], setting: str, now: Instant) -> int:
    def is_old(record: TaskRecord) -> bool:
        keep: Duration = getattr(store.settings(record.queue), setting)
        return (day_of(record.finished_at or 0) + 1) * DAY <= now - keep

    old = islice((r for r in store.tasks.values() if r.state in states and is_old(r)), CHORE_BATCH)
    doomed = list(old)
    for record in doomed:
        store.remove(record)
    return len(doomed)


def prune_keys(store: Store, now: Instant) -> int:
    def is_free(task_id: str, until: Instant) -> bool:
        record = store.tasks.get(task_id)
        return now >= until and (record is None or record.state not in UNFINISHED)

    free = list(islice((k for k, held in store.keys.items() if is_free(held.task_id, held.until)), CHORE_BATCH))
    for key in free:
        del store.keys[key]
    return len(free)


def prune_workers(store: Store, now: Instant) -> int:
    old = [w.id for w in store.workers.values() if w.state is WorkerState.DEAD and w.expires_at + KEEP_WORKERS <= now]
    for worker in old:
        del store.workers[worker]
    return len(old)


def prune_audit(store: Store, now: Instant) -> int:
    count = 0
    while store.audit and store.audit[0].at + KEEP_AUDIT <= now and count < CHORE_BATCH:
        store.audit.popleft()
        count += 1
    return count


def prune_stats(store: Store, now: Instant) -> int:
    oldest = now // 60_000_000 - KEEP_MINUTES
    old = list(islice((key for key in store.minutes if key[0] < oldest), CHORE_BATCH))
    for key in old:
        del store.minutes[key]
    return len(old)


def prune_buckets(store: Store, now: Instant) -> int:
    """Delete buckets that are full again, or whose limit is no longer set: both equal no bucket."""

    def is_idle(whose: tuple[str, Scope, str]) -> bool:
        limit = limit_of(store.settings(whose[0]), whose[1], whose[2])
        return (
            limit is None or limit.rate is None or refill(store.buckets[whose], limit, now) == refill(None, limit, now)
        )

    doomed = list(islice((whose for whose in store.buckets if is_idle(whose)), CHORE_BATCH))
    for whose in doomed:
        del store.buckets[whose]
    return len(doomed)


ACTS: dict[type[Act], Callable[[Store, Sequence[Any], str, Instant], list[Changed]]] = {
    Cancel: cancel,
    Edit: edit,
    Replay: replay,
    Purge: purge,
    CancelWorkflow: cancel_workflows,
    ReplayWorkflow: replay_workflows,
}

CHORES = {
    "rerank": rerank,
    "prune_finished": prune_finished,
    "prune_dead": prune_dead,
    "prune_keys": prune_keys,
    "prune_workers": prune_workers,
    "prune_audit": prune_audit,
    "prune_stats": prune_stats,
    "prune_workflows": prune_workflows,
    "prune_buckets": prune_buckets,
}
