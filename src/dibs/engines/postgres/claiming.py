"""claim: expire, promote, continue follow-ups; then choose tasks and lease them.

Where only ranks decide, this is one statement (`functions/claim.sql`). With limits, shares or reserved slots,
`claim_limited` decides, with the queues concerned locked against other claims.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from asyncpg.exceptions import NumericValueOutOfRangeError, QueryCanceledError

from dibs.core.lease import LONGEST_RUN
from dibs.core.policy import PROMOTE_BATCH
from dibs.core.priority import scale
from dibs.core.times import SECOND, Duration, Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.postgres.catalog import Stale, Track
from dibs.engines.postgres.claim_limited import (
    RETRY_LOCKED,
    NeedsUpkeep,
    Unread,
    given_before,
    is_chosen_from,
    leased_tasks,
    serve,
    served_queues,
    tracks_for,
)
from dibs.engines.postgres.index_bloat import LAG, START, DueWindow, ReadFloors, arrivals
from dibs.engines.postgres.partitions import promote_heads
from dibs.engines.postgres.steps import resume
from dibs.engines.postgres.store import NOTHING, ONCE, TASKS, Store
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.unreadable import MAX_ROWS
from dibs.engines.values import Claimed, ClaimRequest
from dibs.engines.verbs.records import Records
from dibs.engines.verbs.upkeep import expire
from dibs.errors import StoreBusy, StoreError

__all__ = ["claim"]

TRIES = 50
"""How often one claim chooses again because none of the chosen tasks can be read."""

EACH: Duration = 10
"""The approximate time to read and lock a task."""


async def claim(store: Store, request: ClaimRequest, now: Instant | None) -> Claimed:
    if request.repeat:
        again = await store.write(given_before, now, NOTHING, request, window_for(store, now))
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
    queues = served_queues(store.catalog, request)
    if request.floors or any(is_chosen_from(store.catalog, queue) for _, queue in queues):
        found = await store.write(serve, now, ONCE, request, skip_upkeep, window_for(store, now), now)
        if now is None:
            store.floor_probe.start_if_due(store.catalog)
        return found
    return await claim_plainly(store, request, now, skip_upkeep)


async def claim_plainly(
    store: Store, request: ClaimRequest, now: Instant | None, skip_upkeep: bool
) -> Claimed | NeedsUpkeep:
    """Claim by ranks alone, in one statement. Raises `Stale` if the catalog has changed."""
    catalog = store.catalog
    lines = [
        (track, order, scale(queue.settings, track.lane))
        for order, queue in served_queues(catalog, request)
        for track in tracks_for(catalog, queue, request)
    ]
    tracks = [line[0] for line in lines]
    wanted = request.limit + request.prefetch
    floors = store.floor_probe.floors if now is None else ReadFloors()
    window = window_for(store, now)
    numbers = [track.number for track in tracks]
    lows, bounds, at = floors.lows(tracks), window.bounds, time.monotonic()
    began = dict(zip(numbers, lows, strict=True))
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
        )
    except StoreBusy as error:
        if now is None and isinstance(error.__cause__, QueryCanceledError):
            await begin_later(store, tracks, began, bounds[0], at)
        raise
    last = rows.pop()
    if last["status"] == "stale":
        raise Stale
    if last["status"] == "upkeep":
        return NeedsUpkeep()
    instant: Instant = last["now"]
    next_at: Instant | None = last["next_at"]
    window.learn(bounds[0], instant, last["looked"], due=next_at is not None and next_at <= instant)
    if wanted > 0:
        floors.claimed(max(0, last["took"] - EACH * len(rows)))  # without the time that the given tasks take anyway
    if wanted > 0 and floors.is_slow:
        floors.know(tracks)
        floors.raise_to({row["track"]: row["rank"] - LAG for row in rows}, began)
    if now is None:
        store.floor_probe.start_if_due(catalog)
    tasks, unreadable = leased_tasks(rows, catalog, instant)
    if unreadable:
        await store.rows("unlease", [row["id"] for row in unreadable], [row["lease"] for row in unreadable])
        if not tasks:
            raise Unread
        return Claimed(tasks, 0)  # there may be others behind those that were set aside
    return Claimed(tasks, None if next_at is None else max(0, next_at - instant))


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
    promoted = await transaction.value("promote", transaction.now, PROMOTE_BATCH, low)
    follow_ups_left = await resume(transaction)
    if transaction.partitions:
        await promote_heads(transaction)
    return more or follow_ups_left or PROMOTE_BATCH in (len(due), promoted)
