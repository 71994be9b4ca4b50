"""claim: expire, promote, continue follow-ups; then choose tasks and lease them.

Mostly this is one statement (`functions/claim.sql`; `claim_limits` says when). Else `verbs.claiming` decides. Queues
with limits or shares are locked against other claims.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from asyncpg.exceptions import NumericValueOutOfRangeError, QueryCanceledError
from msgspec import Struct

from dibs.core.lease import LONGEST_RUN
from dibs.core.policy import PROMOTE_BATCH
from dibs.core.priority import scale
from dibs.core.times import SECOND, Duration, Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import Track
from dibs.engines.postgres.catalog import Stale
from dibs.engines.postgres.claim_limits import is_chosen_from, limits_of, takes_one_statement
from dibs.engines.postgres.index_bloat import LAG, START, Bounds, DueWindow, ReadFloors, arrivals
from dibs.engines.postgres.rows import TaskRow
from dibs.engines.postgres.steps import resume
from dibs.engines.postgres.store import NOTHING, ONCE, TASKS, Store
from dibs.engines.postgres.transaction import Transaction, Unread, leased_tasks
from dibs.engines.topics import EVENTS, room_topic
from dibs.engines.unreadable import MAX_ROWS
from dibs.engines.values import Claimed, ClaimRequest
from dibs.engines.verbs.claiming import give, given_before, served_queues, token_waits, tracks_for
from dibs.engines.verbs.partitions import open_refilled, pass_over, promote_heads
from dibs.engines.verbs.records import Records
from dibs.engines.verbs.upkeep import expire
from dibs.errors import StoreBusy, StoreError
from dibs.observe.events import EventType

__all__ = ["RETRY_LOCKED", "claim"]

TRIES = 50
"""How often one claim chooses again because none of the chosen tasks can be read."""

EACH: Duration = 10
"""The approximate time to read and lock a task."""

RETRY_LOCKED: Duration = SECOND // 10
"""When to try again what another transaction has locked (the same as in `functions/claim.sql`)."""


BY_VERBS = 20
"""How many claims of a queue `serve` makes once one statement could not say what its limits allow."""


class NeedsUpkeep(Struct, frozen=True):
    """A claim found upkeep that must be done first: tasks to expire or promote, or follow-ups."""


async def claim(store: Store, request: ClaimRequest, now: Instant | None) -> Claimed:
    if request.repeat:
        again = await store.write(repeat, now, NOTHING, request, window_for(store, now))
        if again is not None:
            return again
    await store.look_again()
    return store.aside.paced(await claim_again(store, request, now))


async def claim_again(store: Store, request: ClaimRequest, now: Instant | None) -> Claimed:
    """Choose again if none of the chosen tasks can be read: they are set aside."""
    for _ in range(TRIES):
        size = store.aside.size
        try:
            return await claim_readable(store, request, now)
        except Unread:
            pass
        except StoreError as error:
            if not isinstance(error.__cause__, NumericValueOutOfRangeError):
                raise
            await skip_unleasable(store)
        if store.aside.size == size:
            break  # no more tasks can be set aside
    return Claimed([], 0)


async def skip_unleasable(store: Store) -> None:
    """Set aside tasks that no claim can lease: their lease number or expiry would be out of range."""
    for row in await store.rows("unleasable", LONGEST_RUN, MAX_ROWS):
        store.aside.log_once("task", row["id"], "its lease is out of range")
        store.aside.skip_task(str(row["id"]))


async def claim_readable(store: Store, request: ClaimRequest, now: Instant | None) -> Claimed:
    """Claim, with the upkeep that must be done first. Raises `Unread` if no chosen task can be read."""
    found = await store.persist(lambda: claim_once(store, request, now, skip_upkeep=False), ONCE)
    if not isinstance(found, NeedsUpkeep):
        return found
    more = await store.write(bring_up_to_date, now, TASKS, window_for(store, now).bounds[0])
    found = await store.persist(lambda: claim_once(store, request, now, skip_upkeep=True), ONCE)
    assert not isinstance(found, NeedsUpkeep)
    if more:
        return Claimed(found.tasks, 0)
    return Claimed(found.tasks, RETRY_LOCKED) if found.next_due_in == 0 else found


async def claim_once(
    store: Store, request: ClaimRequest, now: Instant | None, *, skip_upkeep: bool
) -> Claimed | NeedsUpkeep:
    """Claim in one transaction. `skip_upkeep`: it has just been done."""
    if takes_one_statement(store.catalog, request, served_queues(store.catalog.queues, request)):
        first = request.queues[0]
        if store.by_verbs[first] > 0:
            store.by_verbs[first] -= 1
        else:
            found = await claim_at_once(store, request, now, skip_upkeep)
            if found is not None:
                return found
            store.by_verbs[first] = BY_VERBS
    found = await store.write(serve, now, ONCE, request, skip_upkeep, window_for(store, now), now)
    if now is None:
        store.floor_probe.start_if_due(store.catalog)
    return found


async def repeat(transaction: Transaction, request: ClaimRequest, window: DueWindow) -> Claimed | None:
    """What an earlier call with the same sequence claimed and still holds."""
    tasks = await given_before(transaction, request)
    if not tasks:
        return None
    waits = await token_waits(transaction, served_queues(transaction.queues, request))
    return Claimed(tasks, await next_due_in(transaction, window, window.bounds, waits))


async def serve(
    transaction: Transaction, request: ClaimRequest, skip_upkeep: bool, window: DueWindow, at: Instant | None
) -> Claimed | NeedsUpkeep:
    """Choose tasks and lease them.

    `at`: now, None for the clock, which is read again after waiting for the locks of queues. `skip_upkeep`: it has just
    been done.
    """
    served = served_queues(transaction.queues, request)
    wanted = sorted(queue.name for queue in served if is_chosen_from(transaction.catalog, queue))
    locked = wanted
    if wanted:
        several = len(request.queues) > 1  # even if the others are empty or don't exist yet
        locked, transaction.now = await transaction.row("lock_for_claim", wanted, at, several)
    queues = [queue for queue in served if queue.name in locked or queue.name not in wanted]
    bounds = low, _ = window.bounds
    steps = list(transaction.aside.steps)
    needs_upkeep, due = await transaction.row("upkeep", transaction.now, low, transaction.passed_over, steps)
    if needs_upkeep and not skip_upkeep:
        return NeedsUpkeep()
    promoted = await promote(transaction, low) if due else 0
    more = await open_refilled(transaction, queues)
    await pass_over(transaction, queues)
    if transaction.partitions:
        await promote_heads(transaction)
        await transaction.flush()  # the turns of those that may start now
    given = await give(transaction, request, queues)
    assert given is not None  # what can't be read is an exception here
    if transaction.partitions:
        await promote_heads(transaction)
    due_in = await next_due_in(transaction, window, bounds, await token_waits(transaction, queues, given.headrooms))
    if len(locked) < len(wanted):
        due_in = RETRY_LOCKED if due_in is None else min(due_in, RETRY_LOCKED)
    if due_in == 0 and promoted < PROMOTE_BATCH:
        due_in = RETRY_LOCKED
    return Claimed(given.tasks, 0 if more or given.more else due_in)


async def next_due_in(
    transaction: Transaction, window: DueWindow, bounds: Bounds, waits: list[Duration]
) -> Duration | None:
    """In how long a waiting task, an expiry or a start token (`waits`) is due; 0 if follow-ups are left."""
    low, ahead = bounds
    until = None if ahead is None else transaction.now + ahead
    steps = list(transaction.aside.steps)
    next_at, steps_left, took = await transaction.row("next_due", low, until, transaction.passed_over, steps)
    window.learn(low, transaction.now, took, due=next_at is not None and next_at <= transaction.now)
    if steps_left:
        return 0
    times = [max(0, each - transaction.now) for each in (next_at, until) if each is not None]
    return min([*times, *waits], default=None)


async def claim_at_once(
    store: Store, request: ClaimRequest, now: Instant | None, skip_upkeep: bool
) -> Claimed | NeedsUpkeep | None:
    """Claim in one statement; None if that can't say what limits allow. Raises `Stale` if the catalog has changed.

    A task that is ungated, or of a tenant whose turn it is, may be far below what was last claimed: there, claims read
    from the start.
    """
    catalog = store.catalog
    queues = served_queues(catalog.queues, request)
    lines = [
        (track, order, scale(queue.settings, track.lane))
        for order, queue in enumerate(queues)
        for track in tracks_for(catalog.open_tracks(queue.name), request, catalog.aside.crowded)
    ]
    tracks = [line[0] for line in lines]
    wanted = request.limit + request.prefetch
    limits = limits_of(catalog, request, queues, tracks)
    floors = store.floor_probe.floors if now is None and not limits.queues else ReadFloors()
    window = window_for(store, now)
    numbers = [track.number for track in tracks]
    lows, bounds, at = floors.lows(tracks), window.bounds, time.monotonic()
    began = dict(zip(numbers, lows, strict=True))
    watched, watched_due = (catalog.watched(each, now) for each in (EventType.TASK_STARTED, EventType.TASK_PROMOTED))
    try:
        rows = await store.rows_once(
            "claim",
            now,
            catalog.generation,
            request.worker,
            request.sequence,
            request.lease,
            wanted,
            numbers,
            [line[1] for line in lines],
            [track.lane for track in tracks],
            [line[2] for line in lines],
            lows,
            request.in_order,
            skip_upkeep,
            *bounds,
            to_json(store.aside.tasks),
            list(store.aside.steps),
            watched,
            watched_due,
            *limits,
        )
    except StoreBusy as error:
        if now is None and not limits.queues and isinstance(error.__cause__, QueryCanceledError):
            await begin_later(store, tracks, began, bounds[0], at)
        raise
    last = rows.pop()
    if last["status"] == "stale":
        raise Stale
    if last["status"] != "done":
        return NeedsUpkeep() if last["status"] == "upkeep" else None
    instant: Instant = last["now"]
    next_at: Instant | None = last["next_at"]
    window.learn(bounds[0], instant, last["looked"], due=next_at is not None and next_at <= instant)
    if wanted > 0:
        floors.claimed(max(0, last["took"] - EACH * len(rows)))  # without the time that the given tasks take anyway
    if wanted > 0 and floors.is_slow and not limits.queues:
        floors.know(tracks)
        floors.raise_to({row["track"]: row["rank"] - LAG for row in rows}, began)
    if now is None:
        store.floor_probe.start_if_due(catalog)
    if rows and catalog.bounded:
        taken = {catalog.track(row["track"]).queue for row in rows}
        await store.notifier.notify({room_topic(queue) for queue in taken & catalog.bounded})
    tasks, unreadable = leased_tasks(in_order(rows, last["given"]), catalog, instant)
    if watched is not None or watched_due is not None:
        await store.notifier.notify({EVENTS})
    if unreadable:
        await store.rows("unlease", [row["id"] for row in unreadable], [row["lease"] for row in unreadable])
        if not tasks:
            raise Unread
        return Claimed(tasks, 0)  # there may be others behind those that were set aside
    return Claimed(tasks, None if next_at is None else max(0, next_at - instant))


def in_order(rows: list[TaskRow], ids: Sequence[Any] | None) -> list[TaskRow]:
    """Claimed tasks in the order they are given: that of these ids, or by rank and id."""
    if ids is None:
        return sorted(rows, key=itemgetter("rank", "id"))
    by_id = {row["id"]: row for row in rows}
    return [by_id[each] for each in ids if each in by_id]


async def begin_later(store: Store, tracks: list[Track], began: Mapping[int, int], low: Instant, at: float) -> None:
    """After a claim that timed out: where it read from the start, the next claims begin at what arrives now.

    `began`, `low`: where it began to read the tracks, and due tasks. `at`: when it began. The probe finds the tasks
    that claims skip.
    """
    floors, window = store.floor_probe.floors, store.floor_probe.window
    ((_, instant),) = await store.rows("begin_read", None)
    took = round((time.monotonic() - at) * SECOND)
    if low == START:
        window.learn(low, instant, took, due=False)
    floors.claimed(took)
    floors.know(tracks)
    ranks = arrivals(store.catalog, tracks, window)
    floors.raise_to({track: rank for track, rank in ranks.items() if began[track] == START}, began)
    store.floor_probe.start_if_due(store.catalog)


def window_for(store: Store, now: Instant | None) -> DueWindow:
    """A caller that gives the instant gets everything in its exact order, however long that takes."""
    return store.floor_probe.window if now is None else DueWindow()


async def bring_up_to_date(transaction: Transaction, low: Instant) -> bool:
    """Do the upkeep: expire, promote, continue follow-ups; True if some of it is left.

    `low`: nothing that is due earlier was left.
    """
    more = await expire(transaction, low)
    records = Records(transaction)
    due = await transaction.rows("due_guarded", transaction.now, PROMOTE_BATCH, low, transaction.passed_over)
    for record in records.adopt(transaction.adopted(due)):
        records.promote(record)
    await records.flush()
    promoted = await promote(transaction, low)
    steps_left = await resume(transaction)
    if transaction.partitions:
        await promote_heads(transaction)
    return more or steps_left or PROMOTE_BATCH in (len(due), promoted)


async def promote(transaction: Transaction, low: Instant) -> int:
    """Make due tasks pending whose moves concern no others; how many. `low`: none that is due earlier is left."""
    watched = transaction.catalog.watched(EventType.TASK_PROMOTED, transaction.now)
    promoted: int = await transaction.value("promote", transaction.now, PROMOTE_BATCH, low, watched)
    if promoted and watched is not None:
        transaction.topics.add(EVENTS)
    return promoted
