"""Claims in which more than ranks decides: limits, shares, reserved slots.

The queues concerned are locked against other claims. Candidates are read from the index in growing pages, chosen
(`choosing`), and leased.
"""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Iterable

from msgspec import Struct

from dibs.core.limits import Scope
from dibs.core.moves import leased
from dibs.core.policy import PROMOTE_BATCH
from dibs.core.states import State
from dibs.core.task import LeasedTask, QueueState
from dibs.core.times import SECOND, Duration, Instant
from dibs.engines.decisions import facts
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.catalog import Catalog, Track
from dibs.engines.postgres.choosing import Chosen, QueueCursor, choose
from dibs.engines.postgres.head_pages import NeedMore, Pages
from dibs.engines.postgres.headroom import Headrooms
from dibs.engines.postgres.index_bloat import Bounds, DueWindow
from dibs.engines.postgres.partitions import next_refill, open_refilled, promote_heads
from dibs.engines.postgres.rows import TaskRow, columns
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.unreadable import UNREADABLE, problem_of
from dibs.engines.values import Claimed, ClaimRequest, Counter

__all__ = [
    "RETRY_LOCKED",
    "NeedsUpkeep",
    "Unread",
    "given_before",
    "is_chosen_from",
    "lease",
    "leased_tasks",
    "serve",
    "served_queues",
    "tracks_for",
]

RETRY_LOCKED: Duration = SECOND // 10
"""When to try again what another transaction has locked (the same as in `functions/claim.sql`)."""


class Unread(Exception):
    """Some of the chosen tasks can't be read, and are set aside: the claim chooses again.

    An exception, because it must roll back the leases that the transaction has written.
    """


class NeedsUpkeep(Struct, frozen=True):
    """A claim found upkeep that must be done first: tasks to expire or promote, or follow-ups."""


def served_queues(catalog: Catalog, request: ClaimRequest) -> list[tuple[int, Queue]]:
    """The queues that give tasks, with their position in the request."""
    return [
        (order, queue)
        for order, name in enumerate(dict.fromkeys(request.queues))
        if (queue := catalog.queues.get(name)) is not None and queue.state is not QueueState.PAUSED
    ]


def is_chosen_from(catalog: Catalog, queue: Queue) -> bool:
    """Whether more than ranks decides what a queue gives."""
    return queue.settings.limits_starts or queue.name in catalog.guarded


def tracks_for(catalog: Catalog, queue: Queue, request: ClaimRequest) -> list[Track]:
    """The tracks of a queue that a worker can run."""
    names = None if request.names is None else frozenset(request.names)
    offered = frozenset(request.capabilities)
    return [
        track
        for track in catalog.of_queue(queue.name)
        if not track.retired
        and track.number not in catalog.aside.crowded
        and (names is None or track.name in names)
        and (not track.requires or offered.issuperset(track.requires))
    ]


def leased_task(row: TaskRow, catalog: Catalog, now: Instant) -> LeasedTask:
    """`moves.leased`, directly from the row."""
    track = catalog.track(row["track"])
    if row["ready_at"] is None:
        raise ValueError("it is pending, but has no ready_at")
    return facts.leased_task(
        facts.decode_facts(row["facts"]),
        track,
        catalog.settings(track.queue),
        id=str(row["id"]),
        lease=row["lease"],
        expires_at=row["lease_expires_at"],
        ready_at=row["ready_at"],
        rank=row["rank"],
        args=row["args"],
        now=now,
    )


def leased_tasks(rows: Iterable[TaskRow], catalog: Catalog, now: Instant) -> tuple[list[LeasedTask], list[TaskRow]]:
    """Claimed tasks for the worker, and the rows of those that can't be read, which are set aside."""
    tasks, unreadable = [], []
    for row in rows:
        try:
            tasks.append(leased_task(row, catalog, now))
        except UNREADABLE as error:
            catalog.aside.log_once("task", row["id"], problem_of(error))
            catalog.aside.skip_task(str(row["id"]), row["track"])
            unreadable.append(row)
    return tasks, unreadable


async def given_before(transaction: Transaction, request: ClaimRequest, window: DueWindow) -> Claimed | None:
    """What an earlier call with the same sequence claimed and still holds."""
    rows = await transaction.rows("claim_repeat", request.worker, request.sequence, list(transaction.catalog.tracks))
    if not rows:
        return None
    records = transaction.records(rows)
    tasks = [leased(record, transaction.settings(record.queue)) for record in records]
    return Claimed(tasks, await next_due_in(transaction, request, window, window.bounds))


async def serve(
    transaction: Transaction, request: ClaimRequest, skip_upkeep: bool, window: DueWindow, at: Instant | None
) -> Claimed | NeedsUpkeep:
    """Choose tasks and lease them.

    `at`: now, None for the clock, which is read again after waiting for the locks of queues. `skip_upkeep`: it has just
    been done.
    """
    served = served_queues(transaction.catalog, request)
    wanted = sorted(queue.name for _, queue in served if is_chosen_from(transaction.catalog, queue))
    locked = wanted
    if wanted:
        several = len(request.queues) > 1  # even if the others are empty or don't exist yet
        locked, transaction.now = await transaction.row("lock_for_claim", wanted, at, several)
    queues = [(order, queue) for order, queue in served if queue.name in locked or queue.name not in wanted]
    bounds = low, _ = window.bounds
    follow_ups = list(transaction.aside.steps)
    needs_upkeep, due = await transaction.row("upkeep", transaction.now, low, transaction.passed_over, follow_ups)
    if needs_upkeep and not skip_upkeep:
        return NeedsUpkeep()
    promoted = await transaction.value("promote", transaction.now, PROMOTE_BATCH, low) if due else 0
    await open_refilled(transaction, [queue for _, queue in queues])
    await pass_over(transaction, queues)
    cursors, chosen = await chosen_from(transaction, request, queues)
    tasks = await lease(transaction, request, chosen)
    for cursor in cursors:
        await cursor.finish()
    if transaction.partitions:
        await promote_heads(transaction)
    due_in = await next_due_in(transaction, request, window, bounds)
    if len(locked) < len(wanted):
        due_in = RETRY_LOCKED if due_in is None else min(due_in, RETRY_LOCKED)
    return Claimed(tasks, RETRY_LOCKED if due_in == 0 and promoted < PROMOTE_BATCH else due_in)


async def pass_over(transaction: Transaction, queues: list[tuple[int, Queue]]) -> None:
    """Where partitions are limited, promote the heads behind tasks that are set aside."""
    limited = {queue.name for _, queue in queues if queue.settings.per_partition is not None}
    if limited and transaction.aside.tasks:
        for row in await transaction.rows("partitions_of", transaction.passed_over):
            partition = Partition.parse(row["partition"])
            if partition.queue in limited:
                transaction.mark_changed(partition)
        if transaction.partitions:
            await promote_heads(transaction)


async def chosen_from(
    transaction: Transaction, request: ClaimRequest, queues: list[tuple[int, Queue]]
) -> tuple[list[QueueCursor], list[Chosen]]:
    """Choose; if what was read is not enough, read more and start over."""
    wanted = request.limit + request.prefetch
    if wanted <= 0:
        return [], []
    headrooms = await Headrooms.of(transaction, [queue for _, queue in queues])
    tracks = {queue.name: tracks_for(transaction.catalog, queue, request) for _, queue in queues}
    pages = Pages(transaction, wanted)
    await pages.open(queues, tracks)
    while True:
        left = headrooms.copy()
        cursors = [QueueCursor(pages, queue, order, tracks[queue.name], left) for order, queue in queues]
        found = choose(cursors, request, left, transaction.now)
        if not isinstance(found, NeedMore):
            return cursors, found
        await pages.read_more(found)
        if found.partitions:  # the choice will need the others that were read as well
            await headrooms.know(headrooms.unknown(pages.partitions()))


async def lease(transaction: Transaction, request: ClaimRequest, chosen: list[Chosen]) -> list[LeasedTask]:
    """Lease the chosen tasks to the worker, except those that another transaction has locked."""
    if not chosen:
        return []
    ids = [each.head.id for each in chosen]
    rows = await transaction.rows("lease", transaction.now, request.worker, request.sequence, request.lease, ids)
    catalog = transaction.catalog
    given = {str(row["id"]): row for row in rows}
    taken = [each for each in chosen if each.head.id in given]
    for each in taken:
        transaction.count_pending(each.head.track, each.share, -1)
        transaction.count(State.RUNNING, each.head.track, 1)
        if each.head.partition is not None:
            transaction.mark_changed(each.head.partition)
    for queue, n in Totals(catalog.track(each.head.track).queue for each in taken).items():
        transaction.count_event(Counter.CLAIMED, queue, n)
    await spend(transaction, taken)
    tasks, unreadable = leased_tasks([given[each.head.id] for each in taken], catalog, transaction.now)
    if unreadable:
        raise Unread
    return tasks


async def spend(transaction: Transaction, taken: list[Chosen]) -> None:
    """Spend the start tokens of the leased tasks."""
    headrooms: dict[tuple[str, Scope, str], tuple[object, ...]] = {}
    starts: Totals[tuple[str, Scope, str]] = Totals()
    for each in taken:
        for whose, headroom in each.headrooms:
            if headroom.full is not None:
                starts[whose] += 1
                bucket = headroom.spent(starts[whose])
                headrooms[whose] = (*whose, bucket.level, bucket.at, None)
    if headrooms:
        await transaction.write("save_buckets", *columns(list(headrooms.values()), 6))


async def next_due_in(
    transaction: Transaction, request: ClaimRequest, window: DueWindow, bounds: Bounds
) -> Duration | None:
    """In how long a waiting task, an expiry or a start token is due; 0 if follow-ups are left."""
    low, ahead = bounds
    until = None if ahead is None else transaction.now + ahead
    follow_ups = list(transaction.aside.steps)
    next_at, follow_ups_left, took = await transaction.row("next_due", low, until, transaction.passed_over, follow_ups)
    window.learn(low, transaction.now, took, due=next_at is not None and next_at <= transaction.now)
    if follow_ups_left:
        return 0
    times = [each for each in (next_at, until) if each is not None]
    waits = [max(0, each - transaction.now) for each in times]
    for _, queue in served_queues(transaction.catalog, request):
        if queue.settings.limits_starts:
            waits += await token_waits(transaction, queue)
    return min(waits, default=None)


async def token_waits(transaction: Transaction, queue: Queue) -> list[Duration]:
    """How long until each empty bucket of a queue has a token, if pending tasks need it."""
    headrooms = await Headrooms.of(transaction, [queue])
    pending = {row[0] for row in await transaction.rows("tracks_with_pending", tracks_of(transaction, queue))}
    names = {transaction.catalog.track(number).name for number in pending}
    waits = [
        headroom.refills_in
        for whose, headroom in headrooms.known.items()
        if headroom is not None
        and headroom.refills_in is not None
        and (names if whose[1] is Scope.QUEUE else whose[2] in names)
    ]
    limit = queue.settings.per_partition
    refills_in = None if limit is None or limit.rate is None else await next_refill(transaction, queue.name, limit)
    return [each for each in (*waits, refills_in) if each is not None]


def tracks_of(transaction: Transaction, queue: Queue) -> list[int]:
    return [track.number for track in transaction.catalog.of_queue(queue.name)]
