"""Which tasks a claim gives: the heads of kinds, lanes, shares and queues, merged, within their limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from heapq import heappush, merge
from itertools import takewhile

from msgspec import Struct

from dibs.core.fairness import next_virtual_time, start_virtual_time
from dibs.core.limits import Scope, tokens, until_token
from dibs.core.moves import claimed, expired, leased, promoted
from dibs.core.policy import EXPIRE_BATCH, PROMOTE_BATCH
from dibs.core.priority import effective, merge_key
from dibs.core.states import State
from dibs.core.task import Kind, LeasedTask, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.memory.follow_ups import run_follow_ups
from dibs.engines.memory.headroom import Headrooms, bucket_of
from dibs.engines.memory.pending_index import Entry
from dibs.engines.memory.store import Queue, Store, detached
from dibs.engines.topics import ended_topic
from dibs.engines.values import Claimed, ClaimRequest, Counter

__all__ = ["claim", "in_claim_order"]


def claim(store: Store, request: ClaimRequest, now: Instant) -> Claimed:
    """Do the upkeep, then lease the most urgent tasks that the worker can run."""
    if request.repeat and (again := given_before(store, request)):
        return Claimed(again, next_due_in(store, request, now))
    expire(store, now)
    promote(store, now)
    run_follow_ups(store, now)
    tasks = [leased(detached(record), store.settings(record.queue)) for record in choose(store, request, now)]
    return Claimed(tasks, next_due_in(store, request, now))


def given_before(store: Store, request: ClaimRequest) -> list[LeasedTask]:
    mine = [
        record
        for record in (store.tasks[task_id] for task_id in store.running)
        if record.worker == request.worker and record.sequence == request.sequence
    ]
    return [
        leased(detached(record), store.settings(record.queue)) for record in sorted(mine, key=lambda record: record.id)
    ]


def expire(store: Store, now: Instant) -> None:
    """End a bounded number of waiting tasks that have expired."""
    for _ in range(EXPIRE_BATCH):
        record = store.pop_late(now)
        if record is None:
            return
        store.put(*expired(record, now))
        store.topics.add(ended_topic(record.queue))


def promote(store: Store, now: Instant) -> None:
    """Make a bounded number of due tasks pending."""
    for _ in range(PROMOTE_BATCH):
        record = store.pop_due(now)
        if record is None:
            return
        store.put(promoted(record))


class Lane(Struct):
    """One lane of one share, with its first task."""

    queue: Queue
    share: str
    number: int
    order: int
    tasks: Iterator[TaskRecord]
    head: TaskRecord | None = None

    def effective(self, now: Instant) -> float:
        assert self.head is not None
        return effective(self.head.rank, self.number, self.queue.settings, now)

    def key(self, now: Instant, in_order: bool) -> tuple[float, ...]:
        assert self.head is not None
        key = merge_key(self.effective(now), self.head.ready_at or 0, self.order)
        return (self.order, *key, self.number) if in_order else (*key, self.number)

    def advance(self) -> bool:
        """Continue with the next task; False if there is none."""
        self.head = next(self.tasks, None)
        return self.head is not None


class QueueCursor:
    """The next task of one queue for one worker: from the first share in turn that has a task for it."""

    def __init__(self, queue: Queue, order: int, request: ClaimRequest, headrooms: Headrooms, stack: ExitStack) -> None:
        self.queue = queue
        self.order = order
        self.headrooms = headrooms
        self.names = None if request.names is None else frozenset(request.names)
        self.offered = frozenset(request.capabilities)
        self.stack = stack
        self.lanes: dict[str, list[Lane]] = {}
        self.aside: list[Entry] = []
        stack.callback(self.put_back)

    def can_run(self, kind: Kind) -> bool:
        return (self.names is None or kind.name in self.names) and self.offered.issuperset(kind.requires)

    def lane(self, now: Instant) -> Lane | None:
        """The lane that gives next."""
        while (share := self.queue.pending_index.next_share()) is not None:
            if share not in self.lanes:
                self.lanes[share] = self.open_lanes(share)
            self.lanes[share] = [lane for lane in self.lanes[share] if self.has_next(lane)]
            if self.lanes[share]:
                return min(self.lanes[share], key=lambda each: each.key(now, in_order=False))
            self.aside.append(self.queue.pending_index.set_aside())
        return None

    def has_next(self, lane: Lane) -> bool:
        """Advance to the first task of a lane that may start; False if there is none."""
        while lane.head is not None and not self.headrooms.allows(lane.head):
            lane.advance()
        return lane.head is not None

    def open_lanes(self, share: str) -> list[Lane]:
        by_number: dict[int, list[Kind]] = {}
        for number, kind in self.queue.pending_index.heaps.get(share, {}):
            if self.can_run(kind):
                by_number.setdefault(number, []).append(kind)
        lanes = []
        for number, kinds in by_number.items():
            tracks = [self.of_kind(share, number, kind) for kind in kinds]
            tasks = merge(*tracks, key=lambda record: (record.rank, record.id))
            lanes.append(Lane(self.queue, share, number, self.order, tasks, next(tasks, None)))
        return lanes

    def of_kind(self, share: str, number: int, kind: Kind) -> Iterator[TaskRecord]:
        """The tasks of one kind, while the limits of its name allow more."""
        tasks = self.stack.enter_context(closing(self.queue.pending_index.in_order(share, number, kind)))  # type: ignore[type-var]
        return takewhile(lambda _: not self.headrooms.is_full(self.queue.name, Scope.TASK, kind.name), tasks)

    def end(self, lane: Lane) -> None:
        """Take nothing more from this lane in this claim."""
        self.lanes[lane.share].remove(lane)

    def put_back(self) -> None:
        for entry in self.aside:
            heappush(self.queue.pending_index.turns, entry)


def choose(store: Store, request: ClaimRequest, now: Instant) -> list[TaskRecord]:
    """Lease the tasks to give, most urgent first."""
    headrooms = Headrooms(store, now)
    below = [0] * len(request.floors)
    chosen: list[TaskRecord] = []
    with ExitStack() as stack:
        cursors = open_cursors(store, request, headrooms, stack)
        while len(chosen) < request.limit + request.prefetch:
            found = [(lane, cursor) for cursor in cursors if (lane := cursor.lane(now)) is not None]
            if not found:
                break
            lane, cursor = min(found, key=lambda each: each[0].key(now, request.in_order))
            record, settings = lane.head, lane.queue.settings
            assert record is not None
            under = [i for i, floor in enumerate(request.floors) if lane.effective(now) < floor.effective]
            if headrooms.is_full(record.queue, Scope.QUEUE, "") or (
                settings.limits_starts and len(chosen) >= request.limit
            ):
                cursors.remove(cursor)
            elif any(below[i] >= request.floors[i].below for i in under):
                cursor.end(lane)
            else:
                taken = claimed(record, request.worker, request.sequence, request.lease, now)
                store.put(taken)
                store.counters[taken.queue][Counter.CLAIMED] += 1
                headrooms.take(record)
                lane.queue.pending_index.served(record.share, settings)
                chosen.append(taken)
                for i in under:
                    below[i] += 1
                lane.advance()
    return chosen


def open_cursors(store: Store, request: ClaimRequest, headrooms: Headrooms, stack: ExitStack) -> list[QueueCursor]:
    served = [
        (order, store.queues[name])
        for order, name in enumerate(dict.fromkeys(request.queues))
        if name in store.queues and store.queues[name].state is not QueueState.PAUSED
    ]
    return [QueueCursor(queue, order, request, headrooms, stack) for order, queue in served]


def in_claim_order(store: Store, queue_name: str, now: Instant) -> Iterator[TaskRecord]:
    """All pending tasks of a queue in the order in which claims would give them, without limits."""
    queue = store.queue(queue_name)
    settings, clock = queue.settings, queue.pending_index.clock
    shares: dict[str, dict[int, list[TaskRecord]]] = {}
    for record in store.tasks.values():
        if record.queue == queue_name and record.state is State.PENDING:
            shares.setdefault(record.share, {}).setdefault(record.lane, []).append(record)
    virtual_times = {share: queue.pending_index.virtual_times.get(share, 0) for share in shares}
    orders = {share: merged_lanes(queue, share, lanes, now) for share, lanes in shares.items()}
    while orders:
        share = min(orders, key=lambda each: (start_virtual_time(clock, virtual_times[each]), each))
        best = next(orders[share], None)
        if best is None:
            del orders[share]
            continue
        yield best
        if settings.fair:
            clock = start_virtual_time(clock, virtual_times[share])
            virtual_times[share] = next_virtual_time(settings, share, clock)


def merged_lanes(queue: Queue, share: str, records: dict[int, list[TaskRecord]], now: Instant) -> Iterator[TaskRecord]:
    """The tasks of one share in order."""
    lanes = []
    for number, members in records.items():
        members.sort(key=lambda record: (record.rank, record.id))
        lane = Lane(queue, share, number, 0, iter(members))
        lane.advance()
        lanes.append(lane)
    while lanes:
        lane = min(lanes, key=lambda each: each.key(now, in_order=False))
        assert lane.head is not None
        yield lane.head
        if not lane.advance():
            lanes.remove(lane)


def next_due_in(store: Store, request: ClaimRequest, now: Instant) -> int | None:
    """In how long a waiting task, an expiry or a start token is due; 0 if follow-ups are left."""
    if store.edges.follow_ups:
        return 0
    instants = [at for at in (store.next_due(), store.next_expiry()) if at is not None]
    waits = [max(0, at - now) for at in instants]
    for name in dict.fromkeys(request.queues):
        queue = store.queues.get(name)
        if queue is not None and queue.state is not QueueState.PAUSED and store.counts[name][State.PENDING]:
            waits += token_waits(store, queue, now)
    return min(waits, default=None)


def token_waits(store: Store, queue: Queue, now: Instant) -> Iterator[int]:
    """How long until each empty bucket of a queue has a token, if pending tasks need it."""
    scopes = [(Scope.QUEUE, ""), *((Scope.TASK, name) for name in queue.settings.per_task)]
    scopes += [(Scope.PARTITION, partition) for partition in queue.pending_index.without_tokens]
    for scope, whose in scopes:
        if store.load[State.PENDING, queue.name, scope, whose]:
            limit, bucket = bucket_of(store, queue, scope, whose, now)
            if limit is not None and bucket is not None and tokens(bucket) == 0:
                yield until_token(bucket, limit)
