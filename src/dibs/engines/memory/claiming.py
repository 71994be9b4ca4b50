"""Which tasks a claim gives: heads merged across kinds, lanes and queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from heapq import merge

from msgspec import Struct

from dibs.core.lease import PROMOTE_BATCH
from dibs.core.limits import free_slots, refill, spend, tokens, until_token
from dibs.core.moves import claimed, leased, promoted
from dibs.core.priority import effective, merge_key
from dibs.core.states import State
from dibs.core.task import Kind, LeasedTask, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import Claimed, ClaimRequest, Counter
from dibs.engines.memory.store import Queue, Store, detached

__all__ = ["claim", "in_claim_order"]


def claim(store: Store, request: ClaimRequest, now: Instant) -> Claimed:
    """Promote what is due, then lease the most urgent tasks that the worker can run."""
    if request.repeat and (again := given_before(store, request)):
        return Claimed(again, next_due_in(store, request, now))
    promote(store, now)
    chosen = choose(store, request, now)
    tasks = []
    for record in chosen:
        taken = claimed(record, request.worker, request.sequence, request.lease, now)
        store.put(taken)
        store.counters[taken.queue][Counter.CLAIMED] += 1
        tasks.append(leased(detached(taken), store.settings(taken.queue)))
    return Claimed(tasks, next_due_in(store, request, now))


def given_before(store: Store, request: ClaimRequest) -> list[LeasedTask]:
    mine = [
        record
        for running in store.running.values()
        for record in (store.tasks[task_id] for task_id in running)
        if record.worker == request.worker and record.sequence == request.sequence
    ]
    return [
        leased(detached(record), store.settings(record.queue)) for record in sorted(mine, key=lambda record: record.id)
    ]


def promote(store: Store, now: Instant) -> None:
    """A bounded number of due tasks become pending."""
    for _ in range(PROMOTE_BATCH):
        record = store.pop_due(now)
        if record is None:
            return
        store.put(promoted(record))


class Lane(Struct):
    """The head of one lane, and how many more its queue may give (None: no limit)."""

    queue: Queue
    number: int
    order: int
    tasks: Iterator[TaskRecord]
    head: TaskRecord | None = None

    def key(self, now: Instant, in_order: bool) -> tuple[float, ...]:
        assert self.head is not None
        points = effective(self.head.rank, self.number, self.queue.settings, now)
        key = merge_key(points, self.head.ready_at or 0, self.order)
        return (self.order, *key, self.number) if in_order else (*key, self.number)


def choose(store: Store, request: ClaimRequest, now: Instant) -> list[TaskRecord]:
    """The tasks to give, most urgent first; spends the start tokens of limited queues."""
    room = {name: allowance(store, name, now) for name in request.queues}
    below = dict.fromkeys(range(len(request.floors)), 0)
    chosen: list[TaskRecord] = []
    with ExitStack() as stack:
        lanes = open_lanes(store, request, stack)
        while lanes and len(chosen) < request.limit + request.prefetch:
            lane = min(lanes, key=lambda each: each.key(now, request.in_order))
            name, record = lane.queue.name, lane.head
            assert record is not None
            points = effective(record.rank, lane.number, lane.queue.settings, now)
            under = [i for i, floor in enumerate(request.floors) if points < floor.effective]
            if (
                room[name] == 0
                or (lane.queue.limited and len(chosen) >= request.limit)
                or any(below[i] >= request.floors[i].below for i in under)
            ):
                lanes.remove(lane)
                continue
            chosen.append(record)
            for i in under:
                below[i] += 1
            if room[name] is not None:
                room[name] = (room[name] or 0) - 1
            lane.head = next(lane.tasks, None)
            if lane.head is None:
                lanes.remove(lane)
    spend_tokens(store, chosen, now)
    return chosen


def open_lanes(store: Store, request: ClaimRequest, stack: ExitStack) -> list[Lane]:
    """Lanes of the active queues that have something for this worker, each with its head."""
    names = None if request.names is None else frozenset(request.names)
    offered = frozenset(request.capabilities)

    def can_run(kind: Kind) -> bool:
        return (names is None or kind.name in names) and offered.issuperset(kind.requires)

    lanes = []
    for order, name in enumerate(request.queues):
        queue = store.queues.get(name)
        if queue is None or queue.state is QueueState.PAUSED:
            continue
        for number, kinds in store.pending[name].items():
            runnable = [kind for kind in kinds if can_run(kind)]
            lane = Lane(queue, number, order, merged(store, name, number, runnable, stack))
            lane.head = next(lane.tasks, None)
            if lane.head is not None:
                lanes.append(lane)
    return lanes


def merged(store: Store, queue: str, lane: int, kinds: list[Kind], stack: ExitStack) -> Iterator[TaskRecord]:
    """Pending tasks of several kinds in one lane, by (rank, id)."""
    streams = [stack.enter_context(closing(store.lane_order(queue, lane, kind))) for kind in kinds]  # type: ignore[type-var]
    return merge(*streams, key=lambda record: (record.rank, record.id))


def in_claim_order(store: Store, queue_name: str, now: Instant) -> Iterator[TaskRecord]:
    """All pending tasks of a queue as claims would give them."""
    queue = store.queue(queue_name)
    with ExitStack() as stack:
        lanes = []
        for number, kinds in store.pending[queue_name].items():
            lane = Lane(queue, number, 0, merged(store, queue_name, number, list(kinds), stack))
            lane.head = next(lane.tasks, None)
            if lane.head is not None:
                lanes.append(lane)
        while lanes:
            lane = min(lanes, key=lambda each: each.key(now, in_order=False))
            assert lane.head is not None
            yield lane.head
            lane.head = next(lane.tasks, None)
            if lane.head is None:
                lanes.remove(lane)


def allowance(store: Store, name: str, now: Instant) -> int | None:
    """How many more tasks of a queue may start now; None: as many as there are."""
    queue = store.queues.get(name)
    if queue is None:
        return 0
    slots = None
    if queue.settings.max_concurrent is not None:
        slots = free_slots(queue.settings, store.live_leases(name, now))
    if queue.settings.rate is not None:
        queue.bucket = refill(queue.bucket, queue.settings, now)
        starts = tokens(queue.bucket)
        return starts if slots is None else min(slots, starts)
    return slots


def spend_tokens(store: Store, chosen: list[TaskRecord], now: Instant) -> None:
    for record in chosen:
        queue = store.queues[record.queue]
        if queue.settings.rate is not None:
            queue.bucket = spend(refill(queue.bucket, queue.settings, now), 1)


def next_due_in(store: Store, request: ClaimRequest, now: Instant) -> int | None:
    """In how long a waiting task or a start token falls due."""
    due_at = store.next_due()
    waits = [] if due_at is None else [max(0, due_at - now)]
    for name in request.queues:
        queue = store.queues.get(name)
        if queue is None or queue.settings.rate is None or queue.state is QueueState.PAUSED:
            continue
        bucket = refill(queue.bucket, queue.settings, now)
        if tokens(bucket) == 0 and store.counts[name][State.PENDING]:
            waits.append(until_token(bucket, queue.settings))
    return min(waits, default=None)
