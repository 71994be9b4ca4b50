"""claim: promote what is due, choose from the heads of what the worker can run, and lease it."""

from __future__ import annotations

from collections import Counter as Tally
from itertools import islice

import msgspec
from msgspec import Struct

from dibs.core.lease import PROMOTE_BATCH
from dibs.core.limits import Bucket, free_slots, refill, spend, tokens, until_token
from dibs.core.moves import leased
from dibs.core.priority import effective
from dibs.core.settings import FALLBACK, QueueSettings
from dibs.core.states import State
from dibs.core.task import LeasedTask, QueueState
from dibs.core.times import Duration, Instant
from dibs.engines.base import Claimed, ClaimRequest, Counter
from dibs.engines.sqlite.catalog import Queue, Stream
from dibs.engines.sqlite.ordering import Head, Lane, lanes_of
from dibs.engines.sqlite.rows import decode_facts, decode_rows, to_json
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["claim"]


class Due(Struct, array_like=True, frozen=True):
    """A group of tasks that were promoted together."""

    stream: int
    state: State
    n: int


class Given(Struct, array_like=True, frozen=True):
    """What a claimed row tells besides its head."""

    lease: int
    lease_expires_at: Instant
    args: str
    facts: str


due_decoder = msgspec.json.Decoder(list[Due])
given_decoder = msgspec.json.Decoder(list[Given])
bucket_decoder = msgspec.json.Decoder(Bucket)
pending_decoder = msgspec.json.Decoder(list[tuple[int, int]])


class Desk:
    """One claim at work: what is pending, and how much the limits of each queue still allow."""

    def __init__(self, transaction: Transaction, request: ClaimRequest) -> None:
        self.transaction = transaction
        self.request = request
        self.now = transaction.now
        generation, self.next_due, pending = transaction.row("claim_look")
        transaction.refresh(generation)
        self.pending = dict(pending_decoder.decode(pending))
        self.buckets: dict[str, Bucket] = {}
        self.queues = [
            (order, queue)
            for order, name in enumerate(dict.fromkeys(request.queues))
            if (queue := transaction.catalog.queues.get(name)) is not None and queue.state is not QueueState.PAUSED
        ]

    def promote(self) -> None:
        """A bounded number of due tasks become pending. Their ranks were computed for this moment."""
        if self.next_due is None or self.next_due > self.now:
            return
        write = self.transaction
        ids, groups = write.row("promote_look", self.now, PROMOTE_BATCH)
        write.write("promote", ids)
        for due in due_decoder.decode(groups):
            write.count(due.state, due.stream, -due.n)
            write.count(State.PENDING, due.stream, due.n)
            self.pending[due.stream] = self.pending.get(due.stream, 0) + due.n
        self.next_due = write.value("next_due")

    def allowance(self, queue: Queue) -> int | None:
        """How many more tasks of a queue may start now; None: as many as there are."""
        slots = None
        if queue.settings.max_concurrent is not None:
            slots = free_slots(queue.settings, self.live_leases(queue.name))
        if queue.settings.rate is None:
            return slots
        stored = self.transaction.value("bucket", queue.name)
        bucket = refill(None if stored is None else bucket_decoder.decode(stored), queue.settings, self.now)
        self.buckets[queue.name] = bucket
        starts = tokens(bucket)
        return starts if slots is None else min(slots, starts)

    def live_leases(self, queue: str) -> int:
        """Running tasks less those whose lease has ended, which are few: rescue takes them back."""
        streams = to_json([stream.number for stream in self.transaction.catalog.by_queue[queue]])
        live: int = self.transaction.value("live_leases", streams, self.now)
        return live

    def lanes(self) -> list[Lane]:
        """Lanes that have something for this worker."""
        request = self.request
        names = None if request.names is None else frozenset(request.names)
        offered = frozenset(request.capabilities)

        def fits(stream: Stream) -> bool:
            return (
                stream.number in self.pending
                and (names is None or stream.name in names)
                and offered.issuperset(stream.requires)
            )

        wanted = request.limit + request.prefetch
        by_queue = self.transaction.catalog.by_queue
        found = []
        for order, queue in self.queues:
            streams = [stream for stream in by_queue[queue.name] if fits(stream)]
            found += lanes_of(self.transaction, queue, order, streams, wanted)
        return found

    def choose(self) -> list[Head]:
        """The tasks to give, most urgent first."""
        request = self.request
        wanted = request.limit + request.prefetch
        if wanted <= 0:
            return []
        room = {queue.name: self.allowance(queue) for _, queue in self.queues}
        lanes = self.lanes()
        if len(lanes) == 1 and not request.floors and not lanes[0].queue.limited:
            return take(lanes[0], wanted)
        below = [0] * len(request.floors)
        chosen: list[Head] = []
        while lanes and len(chosen) < wanted:
            lane = min(lanes, key=lambda each: each.key(self.now, request.in_order))
            name, left = lane.queue.name, room[lane.queue.name]
            points = lane.effective(self.now)
            under = [i for i, floor in enumerate(request.floors) if points < floor.effective]
            if (
                left == 0
                or (lane.queue.limited and len(chosen) >= request.limit)
                or any(below[i] >= request.floors[i].below for i in under)
            ):
                lanes.remove(lane)
                continue
            chosen.append(lane.head)
            for i in under:
                below[i] += 1
            if left is not None:
                room[name] = left - 1
            if not lane.advance():
                lanes.remove(lane)
        return chosen

    def lease(self, chosen: list[Head]) -> list[LeasedTask]:
        """Give the chosen tasks to the worker."""
        if not chosen:
            return []
        request, transaction = self.request, self.transaction
        ids = to_json([head.id for head in chosen])
        taken = transaction.write("claim", self.now, request.worker, request.sequence, request.lease, ids)
        assert taken == len(chosen), "the pending index names tasks that are not pending"
        streams = transaction.catalog.streams
        for number, count in Tally(head.stream for head in chosen).items():
            transaction.count(State.PENDING, number, -count)
            transaction.count(State.RUNNING, number, count)
            transaction.count(Counter.CLAIMED, streams[number].queue, count)
            self.pending[number] -= count
        given = given_decoder.decode(transaction.value("claim_read", ids))
        rows = zip(chosen, given, strict=True)
        settings = {queue.name: queue.settings for _, queue in self.queues}
        tasks = []
        for head, row in rows:
            stream = streams[head.stream]
            tasks.append(leased_task(head, row, stream, settings[stream.queue], self.now))
        return tasks

    def spend(self, tasks: list[LeasedTask]) -> None:
        """Take the start tokens of what was given."""
        for name, bucket in self.buckets.items():
            started = sum(task.queue == name for task in tasks)
            if started:
                self.buckets[name] = spend(bucket, started)
                self.transaction.write("save_bucket", to_json(self.buckets[name]), name)

    def next_due_in(self) -> Duration | None:
        """In how long a waiting task or a start token falls due."""
        waits = [] if self.next_due is None else [max(0, self.next_due - self.now)]
        for _, queue in self.queues:
            bucket = self.buckets.get(queue.name)
            if bucket is not None and tokens(bucket) == 0 and self.has_pending(queue.name):
                waits.append(until_token(bucket, queue.settings))
        return min(waits, default=None)

    def has_pending(self, queue: str) -> bool:
        return any(self.pending.get(stream.number, 0) for stream in self.transaction.catalog.by_queue[queue])


def take(lane: Lane, wanted: int) -> list[Head]:
    """The first tasks of a lane."""
    return [lane.head, *islice(lane.tasks, wanted - 1)]


def claim(transaction: Transaction, request: ClaimRequest) -> Claimed:
    desk = Desk(transaction, request)
    if request.repeat and (again := given_before(transaction, request)):
        for _, queue in desk.queues:
            desk.allowance(queue)
        return Claimed(again, desk.next_due_in())
    desk.promote()
    tasks = desk.lease(desk.choose())
    desk.spend(tasks)
    return Claimed(tasks, desk.next_due_in())


def given_before(transaction: Transaction, request: ClaimRequest) -> list[LeasedTask]:
    """What an earlier call with the same sequence took and still holds."""
    rows = decode_rows(transaction.value("claim_repeat", request.worker, request.sequence))
    records = [transaction.record(row) for row in rows]
    return [leased(record, transaction.settings(record.queue)) for record in records]


def leased_task(head: Head, given: Given, stream: Stream, settings: QueueSettings, now: Instant) -> LeasedTask:
    """`moves.leased`, straight from the row."""
    facts = decode_facts(given.facts)
    return LeasedTask(
        id=head.id,
        lease=given.lease,
        lease_expires_at=given.lease_expires_at,
        claimed_at=now,
        ready_at=head.ready_at,
        queue=stream.queue,
        name=stream.name,
        args=given.args.encode(),
        priority=facts.priority,
        effective=effective(head.rank, stream.lane, settings, now),
        options=facts.options or FALLBACK,
        attempts=facts.attempts,
        losses=facts.losses,
        deadline=facts.deadline,
        metadata=facts.metadata,
        headers=facts.headers,
        parent=facts.parent,
    )
