"""claim: expire, promote, continue follow-ups; then choose tasks and lease them."""

from __future__ import annotations

from collections import Counter as Totals

import msgspec
from msgspec import Struct

from dibs.core.limits import Scope
from dibs.core.moves import leased
from dibs.core.policy import PROMOTE_BATCH
from dibs.core.states import State
from dibs.core.task import LeasedTask, QueueState
from dibs.core.times import Duration, Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import decode_facts, leased_task
from dibs.engines.decisions.partition import Partition
from dibs.engines.port import at_once
from dibs.engines.sqlite.catalog import Track
from dibs.engines.sqlite.choosing import QueueCursor, choose
from dibs.engines.sqlite.headroom import Headrooms
from dibs.engines.sqlite.heads import Head
from dibs.engines.sqlite.partitions import next_refill, open_refilled, promote_heads
from dibs.engines.sqlite.row_decoder import RowDecoder, TaskDecoder
from dibs.engines.sqlite.steps import resume
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.unreadable import UNREADABLE, problem_of
from dibs.engines.values import Claimed, ClaimRequest, Counter
from dibs.engines.verbs.upkeep import expire

__all__ = ["claim"]


class Due(Struct, array_like=True, frozen=True):
    """A task that is due."""

    id: str
    track: int
    state: State
    share: str
    partition: str | None


class Given(Struct, array_like=True, frozen=True):
    """The columns of a chosen row that its head lacks."""

    id: str
    lease: int
    lease_for: Duration
    args: str
    facts: str


PROMOTED = (State.SCHEDULED, State.RETRYING)

TRIES = 50
"""How often one claim chooses again because chosen tasks can't be read."""

DUE = TaskDecoder(Due, "task")
GIVEN = TaskDecoder(Given, "task")
PARTITIONS = RowDecoder(str, "partition")

pending_decoder = msgspec.json.Decoder(list[tuple[int, int]])


class ClaimInProgress:
    """One claim."""

    def __init__(self, transaction: Transaction, request: ClaimRequest) -> None:
        self.transaction = transaction
        self.request = request
        self.now = transaction.now
        transaction.refresh(self.look())
        transaction.look_again()
        self.queues = [
            (order, queue)
            for order, name in enumerate(dict.fromkeys(request.queues))
            if (queue := transaction.catalog.queues.get(name)) is not None and queue.state is not QueueState.PAUSED
        ]
        self.shares: dict[str, str] = {}
        self.more = open_refilled(transaction, [queue for _, queue in self.queues])
        self.pass_over()

    def look(self) -> int:
        """Read what upkeep is due and how many tasks are pending; returns the generation."""
        transaction = self.transaction
        if transaction.aside.is_empty:
            found = transaction.row("claim_state")
        else:
            follow_ups = to_json(list(transaction.aside.steps))
            found = transaction.row("claim_state_past", to_json(transaction.passed_over), follow_ups)
        generation, due, expiry, self.has_follow_ups, pending = found
        self.next_due, self.next_expiry = instant_or_none(due), instant_or_none(expiry)
        self.pending = dict(pending_decoder.decode(pending))
        return int(generation)

    def pass_over(self) -> None:
        """Where partitions are limited, ungate the tasks behind those that are set aside."""
        transaction = self.transaction
        limited = {queue.name for _, queue in self.queues if queue.settings.per_partition is not None}
        if limited and transaction.aside.tasks:
            for key in transaction.many(PARTITIONS, "partitions_of", to_json(transaction.passed_over)):
                partition = Partition.parse(key)
                if partition.queue in limited:
                    transaction.mark_changed(partition)

    def is_due(self, at: Instant | None) -> bool:
        return at is not None and at <= self.now

    def bring_up_to_date(self) -> None:
        """Do the upkeep. Most claims have none to do."""
        transaction = self.transaction
        expires, promotes = self.is_due(self.next_expiry), self.is_due(self.next_due)
        if expires:
            at_once(expire(transaction, 0))
        if promotes:
            self.promote()
        if transaction.steps or self.has_follow_ups:
            resume(transaction)
        elif not expires and not promotes and not transaction.partitions:
            return
        if transaction.partitions:
            promote_heads(transaction)
        transaction.write_counts()
        self.look()

    def promote(self) -> None:
        """Make a bounded number of due tasks pending. Their ranks were computed for this moment."""
        transaction, tracks = self.transaction, self.transaction.catalog.tracks
        found = transaction.many(DUE, "due_tasks", self.now, PROMOTE_BATCH, to_json(transaction.passed_over))
        due = [each for each in found if self.can_be_promoted(each)]
        if not due:
            return
        limited = {name for name, queue in transaction.catalog.queues.items() if queue.settings.per_partition}
        gated = [number for number, track in tracks.items() if track.queue in limited] if limited else []
        transaction.run("promote", to_json([each.id for each in due]), to_json(gated))
        for (track, state, share), n in Totals((each.track, each.state, each.share) for each in due).items():
            transaction.count(state, track, -n)
            transaction.count_pending(track, share, n)
        for each in due:
            if each.partition is not None:
                transaction.mark_changed(Partition.parse(each.partition))

    def can_be_promoted(self, due: Due) -> bool:
        """Whether a due task can become pending; if not, it is set aside."""
        if due.track not in self.transaction.catalog.tracks:
            problem = f"it is in track {due.track}, which does not exist"
        elif due.state not in PROMOTED:
            problem = "it is due, but its state is not one that waits"
        else:
            return True
        self.transaction.set_aside(due.id, due.track, due.state, False, None, problem)
        return False

    def cursors(self, headrooms: Headrooms) -> list[QueueCursor]:
        """The queues that have tasks for this worker."""
        request = self.request
        names = None if request.names is None else frozenset(request.names)
        offered = frozenset(request.capabilities)
        crowded = self.transaction.aside.crowded

        def fits(track: Track) -> bool:
            return (
                track.number in self.pending
                and track.number not in crowded
                and (names is None or track.name in names)
                and offered.issuperset(track.requires)
            )

        wanted = request.limit + request.prefetch
        by_queue = self.transaction.catalog.by_queue
        found = []
        for order, queue in self.queues:
            tracks = [track for track in by_queue[queue.name] if fits(track)]
            if tracks:
                found.append(QueueCursor(self.transaction, queue, order, tracks, headrooms, wanted))
        return found

    def give(self) -> tuple[list[LeasedTask], Headrooms]:
        """Choose tasks and lease them. Chosen tasks that can't be read are set aside, and others are chosen."""
        queues = [queue for _, queue in self.queues]
        if self.request.limit + self.request.prefetch <= 0:
            return [], Headrooms(self.transaction, queues)
        aside = self.transaction.aside
        for _ in range(TRIES):
            size, number = aside.size, len(aside.tasks)
            headrooms = Headrooms(self.transaction, queues)
            cursors = self.cursors(headrooms)
            chosen = choose(cursors, self.request, self.now)
            tasks = self.read(chosen)
            if len(tasks) == len(chosen):
                self.finish(cursors)
                self.lease(chosen)
                return tasks, headrooms
            if aside.size == size:
                break  # no more tasks can be skipped
            self.more = self.more or len(aside.tasks) > number  # there may be others behind them
        return [], Headrooms(self.transaction, queues)

    def finish(self, cursors: list[QueueCursor]) -> None:
        by_queue = self.transaction.catalog.by_queue
        for cursor in cursors:
            fair = [each.number for each in by_queue[cursor.queue.name] if each.fair and each.number in self.pending]
            cursor.finish(fair)
            self.shares |= cursor.shares
            self.more = self.more or cursor.stopped or cursor.is_truncated

    def read(self, chosen: list[Head]) -> list[LeasedTask]:
        """The chosen tasks for the worker, without those that can't be read."""
        if not chosen:
            return []
        transaction, tracks = self.transaction, self.transaction.catalog.tracks
        given = transaction.many(GIVEN, "claim_read", to_json([head.id for head in chosen]))
        if len(given) < len(chosen):
            known = {row.id for row in given}
            for head in chosen:
                if head.id not in known:
                    transaction.aside.skip_task(head.id, head.track)
            return []
        settings = {queue.name: queue.settings for _, queue in self.queues}
        tasks = []
        for head, row in zip(chosen, given, strict=True):
            track = tracks[head.track]
            expires_at = self.now + (row.lease_for if self.request.lease is None else self.request.lease)
            try:
                tasks.append(
                    leased_task(
                        decode_facts(row.facts),
                        track,
                        settings[track.queue],
                        id=head.id,
                        lease=row.lease + 1,
                        expires_at=expires_at,
                        ready_at=head.ready_at,
                        rank=head.rank,
                        args=row.args.encode(),
                        now=self.now,
                    )
                )
            except UNREADABLE as error:
                transaction.set_aside(head.id, head.track, State.PENDING, False, None, problem_of(error))
        return tasks

    def lease(self, chosen: list[Head]) -> None:
        """Lease the chosen tasks to the worker."""
        if not chosen:
            return
        request, transaction = self.request, self.transaction
        ids = to_json([head.id for head in chosen])
        taken = transaction.run("claim", self.now, request.worker, request.sequence, request.lease, ids)
        assert taken == len(chosen), "the pending index names tasks that are not pending"
        tracks = transaction.catalog.tracks
        for (number, share), count in self.groups(chosen).items():
            transaction.count_pending(number, share, -count)
            transaction.count(State.RUNNING, number, count)
            transaction.count_event(Counter.CLAIMED, tracks[number].queue, count)
            self.pending[number] -= count
        if self.next_expiry is not None:  # it may have been claimed just now
            self.next_expiry = instant_or_none(transaction.value("next_expiry", to_json(transaction.passed_over)))

    def groups(self, chosen: list[Head]) -> dict[tuple[int, str], int]:
        """How many tasks were chosen, by track and share."""
        if self.shares:
            return Totals((head.track, self.shares.get(head.id, "")) for head in chosen)
        return {(number, ""): count for number, count in Totals(head.track for head in chosen).items()}

    def next_due_in(self, headrooms: Headrooms) -> Duration | None:
        """In how long a waiting task, an expiry or a start token is due; 0 if upkeep is left."""
        if self.has_follow_ups or self.more:
            return 0
        waits = [max(0, at - self.now) for at in (self.next_due, self.next_expiry) if at is not None]
        for _, queue in self.queues:
            settings, by_name = queue.settings, self.pending_by_name(queue.name)
            if not settings.limits_starts or not by_name:
                continue
            under = [headrooms.of(queue.name, Scope.QUEUE, "")]
            under += [headrooms.of(queue.name, Scope.TASK, name) for name in settings.per_task if by_name[name]]
            waits += [
                headroom.refills_in for headroom in under if headroom is not None and headroom.refills_in is not None
            ]
            if settings.per_partition is not None and settings.per_partition.rate is not None:
                refills_in = next_refill(self.transaction, queue.name, settings.per_partition)
                waits += [] if refills_in is None else [refills_in]
        return min(waits, default=None)

    def pending_by_name(self, queue: str) -> Totals[str]:
        found: Totals[str] = Totals()
        for track in self.transaction.catalog.by_queue[queue]:
            if self.pending.get(track.number):
                found[track.name] += self.pending[track.number]
        return found


def claim(transaction: Transaction, request: ClaimRequest) -> Claimed:
    claiming = ClaimInProgress(transaction, request)
    queues = [queue for _, queue in claiming.queues]
    if request.repeat and (again := given_before(transaction, request)):
        return Claimed(again, claiming.next_due_in(Headrooms(transaction, queues)))
    claiming.bring_up_to_date()
    tasks, headrooms = claiming.give()
    headrooms.save()
    return transaction.aside.paced(Claimed(tasks, claiming.next_due_in(headrooms)))


def given_before(transaction: Transaction, request: ClaimRequest) -> list[LeasedTask]:
    """What an earlier call with the same sequence claimed and still holds."""
    records = transaction.records(transaction.tasks("claim_repeat", request.worker, request.sequence))
    return [leased(record, transaction.settings(record.queue)) for record in records]


def instant_or_none(stored: object) -> Instant | None:
    """The first entry of an index of instants, None if it is something else."""
    return int(stored) if isinstance(stored, int | float) else None
