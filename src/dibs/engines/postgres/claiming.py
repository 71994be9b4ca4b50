"""claim: end what is too late, promote what is due, go on with errands; then choose, and lease what was chosen.

Where nothing but ranks decides, all of it is one statement (`functions/claim.sql`). Limits, shares and reserved slots
are decided upon by `serving`, with the queues concerned locked against other claims.
"""

from __future__ import annotations

import time

from dibs.core.lease import EXPIRE_BATCH, PROMOTE_BATCH
from dibs.core.moves import expired
from dibs.core.priority import scale
from dibs.core.times import Duration, Instant
from dibs.engines.base import Claimed, ClaimRequest
from dibs.engines.postgres.aftermath import resume
from dibs.engines.postgres.catalog import Stale
from dibs.engines.postgres.cursors import BEGINNING, EVERYTHING
from dibs.engines.postgres.gating import let_forward
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.serving import (
    Care,
    given_before,
    is_chosen_from,
    leased_task,
    serve,
    served_queues,
    streams_for,
)
from dibs.engines.postgres.store import NOTHING, ONCE, TASKS, Store
from dibs.engines.postgres.transaction import Transaction

__all__ = ["claim"]

EACH: Duration = 10
"""What reading and locking a task takes, roughly."""


async def claim(store: Store, request: ClaimRequest, now: Instant | None) -> Claimed:
    if request.repeat:
        again = await store.write(given_before, now, NOTHING, request)
        if again is not None:
            return again
    try:
        return await store.persist(lambda: claim_once(store, request, now, False), ONCE)
    except Care:
        errands_left = await store.write(bring_up_to_date, now, TASKS)
        found = await store.persist(lambda: claim_once(store, request, now, True), ONCE)
        return Claimed(found.tasks, 0) if errands_left else found


async def claim_once(store: Store, request: ClaimRequest, now: Instant | None, careless: bool) -> Claimed:
    """`Care` if something has to be done first, unless it is known to have been done (`careless`)."""
    queues = served_queues(store.catalog, request)
    if request.floors or any(is_chosen_from(store.catalog, queue) for _, queue in queues):
        return await store.write(serve, now, ONCE, request, careless)
    return await claim_plainly(store, request, now, careless)


async def claim_plainly(store: Store, request: ClaimRequest, now: Instant | None, careless: bool) -> Claimed:
    """One statement. `Stale` if it was asked with what is no longer so."""
    catalog = store.catalog
    lines = [
        (stream, order, scale(queue.settings, stream.lane))
        for order, queue in served_queues(catalog, request)
        for stream in streams_for(catalog, queue, request)
    ]
    streams = [line[0] for line in lines]
    wanted, at = request.limit + request.prefetch, time.monotonic()
    # Whoever gives the instant himself gets the exact order, whatever it takes.
    uses_marks = now is None and store.cursors.are_used(streams, at)
    bounds = store.window.bounds(at) if now is None else EVERYTHING
    rows = await store.rows_once(
        "claim",
        now,
        catalog.generation,
        request.worker,
        request.sequence,
        request.lease,
        wanted,
        [stream.number for stream in streams],
        [line[1] for line in lines],
        [stream.lane for stream in streams],
        [line[2] for line in lines],
        store.cursors.lows(streams, at) if uses_marks else [BEGINNING] * len(streams),
        request.in_order,
        careless,
        *bounds,
    )
    last = rows.pop()
    if last["status"] == "stale":
        raise Stale
    if last["status"] == "care":
        raise Care
    instant: Instant = last["now"]
    next_at: Instant | None = last["next_at"]
    if now is None:
        due = next_at is not None and next_at <= instant
        store.window.learn(instant, last["looked"], at, due=due, full=bounds == EVERYTHING)
    if now is None and wanted > 0:
        ranks = {row["stream"]: row["rank"] for row in rows}
        numbers = [stream.number for stream in streams]
        ended = len(rows) < wanted
        took = max(0, last["took"] - EACH * len(rows))  # what was given had to be read and locked anyway
        store.cursors.learn(numbers, ranks, took, at, ended=ended, full=not uses_marks)
    tasks = [leased_task(row, catalog, instant) for row in rows]
    return Claimed(tasks, None if next_at is None else max(0, next_at - instant))


async def bring_up_to_date(transaction: Transaction) -> bool:
    """What time and others have left to be done before anything is chosen; True if errands are left."""
    records = Records(transaction)
    for record in records.see(await transaction.rows("too_late", transaction.now, EXPIRE_BATCH)):
        after, entry = expired(record, transaction.now)
        records.put(after, entry)
        transaction.tell(record.queue, after.state)
    await records.flush()
    records = Records(transaction)
    for record in records.see(await transaction.rows("due_guarded", transaction.now, PROMOTE_BATCH)):
        records.promote(record)
    await records.flush()
    await transaction.value("promote", transaction.now, PROMOTE_BATCH)
    errands_left = await resume(transaction)
    if transaction.partitions:
        await let_forward(transaction)
    return errands_left
