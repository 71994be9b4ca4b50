"""How much more the limits of a memory store allow."""

from __future__ import annotations

from dibs.core.limits import Bucket, LimitState, Scope, free_slots, limit_of, limit_state, refill, spend, tokens
from dibs.core.settings import Limit
from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.memory.store import Queue, Store

__all__ = ["Headrooms", "bucket_of", "limits_of"]

Whose = tuple[str, Scope, str]


def bucket_of(store: Store, queue: Queue, scope: Scope, whose: str, now: Instant) -> tuple[Limit | None, Bucket | None]:
    """A limit and its bucket as of now; None where there is none."""
    limit = limit_of(queue.settings, scope, whose)
    if limit is None or limit.rate is None:
        return limit, None
    return limit, refill(store.buckets.get((queue.name, scope, whose)), limit, now)


class Headrooms:
    """What one claim may still start, by queue, task name and partition."""

    def __init__(self, store: Store, now: Instant) -> None:
        self.store = store
        self.now = now
        self.left: dict[Whose, int | None] = {}
        for queue in store.queues.values():
            self.open_refilled(queue)

    def open_refilled(self, queue: Queue) -> None:
        """Open the partitions that were closed for lack of tokens and have some now."""
        for partition in list(queue.pending_index.without_tokens):
            limit, bucket = bucket_of(self.store, queue, Scope.PARTITION, partition, self.now)
            if limit is None or bucket is None or tokens(bucket) > 0:
                queue.pending_index.without_tokens.discard(partition)
                queue.pending_index.open(partition)

    def headroom(self, whose: Whose) -> int | None:
        """How many more may start; None: no limit."""
        if whose not in self.left:
            queue = self.store.queues[whose[0]]
            limit, bucket = bucket_of(self.store, queue, whose[1], whose[2], self.now)
            slots = None if limit is None else free_slots(limit, self.store.load[(State.RUNNING, *whose)])
            starts = None if bucket is None else tokens(bucket)
            self.left[whose] = min((each for each in (slots, starts) if each is not None), default=None)
        return self.left[whose]

    def is_full(self, queue: str, scope: Scope, whose: str) -> bool:
        return self.headroom((queue, scope, whose)) == 0

    def allows(self, record: TaskRecord) -> bool:
        """Whether a task's name and partition have headroom. A partition without headroom is closed."""
        if record.spec.partition is not None and self.is_full(record.queue, Scope.PARTITION, record.spec.partition):
            self.close(self.store.queues[record.queue], record.spec.partition)
            return False
        return not self.is_full(record.queue, Scope.TASK, record.name)

    def close(self, queue: Queue, partition: str) -> None:
        queue.pending_index.close(partition)
        _, bucket = bucket_of(self.store, queue, Scope.PARTITION, partition, self.now)
        if bucket is not None and tokens(bucket) == 0:
            queue.pending_index.without_tokens.add(partition)

    def take(self, record: TaskRecord) -> None:
        """A task starts: it takes a slot and a token of each of its limits."""
        queue = self.store.queues[record.queue]
        for whose in whose_of(record):
            headroom = self.headroom(whose)
            if headroom is not None:
                self.left[whose] = headroom - 1
            _, bucket = bucket_of(self.store, queue, whose[1], whose[2], self.now)
            if bucket is not None:
                self.store.buckets[whose] = spend(bucket, 1)
                if whose[1] is Scope.PARTITION and tokens(self.store.buckets[whose]) == 0:
                    queue.pending_index.without_tokens.add(whose[2])


def whose_of(record: TaskRecord) -> list[Whose]:
    """The limits that can apply to a task."""
    found = [(record.queue, Scope.QUEUE, ""), (record.queue, Scope.TASK, record.name)]
    if record.spec.partition is not None:
        found.append((record.queue, Scope.PARTITION, record.spec.partition))
    return found


def limits_of(store: Store, queue_name: str, task_id: str, now: Instant) -> list[LimitState]:
    """The limits of one task, for people."""
    record = store.tasks.get(task_id)
    queue = store.queues.get(queue_name)
    if record is None or queue is None or record.queue != queue_name:
        return []
    found = []
    for whose in whose_of(record):
        limit, bucket = bucket_of(store, queue, whose[1], whose[2], now)
        if limit is not None:
            running = store.load[(State.RUNNING, *whose)]
            found.append(limit_state(whose[1], whose[2], limit, running, bucket, now))
    return found
