"""claim: expire, promote, continue follow-ups; then choose tasks and lease them.

Where only ranks decide, this is one script (`lua/claim.lua`). With limits, shares or reserved slots, `verbs.claiming`
decides; of several such claims at a time, one is written, and the others are decided again.
"""

from __future__ import annotations

from collections.abc import Iterable

from dibs.core.policy import PROMOTE_BATCH
from dibs.core.priority import scale
from dibs.core.task import LeasedTask
from dibs.core.times import Duration, Instant
from dibs.engines.catalog import Catalog
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.facts import decode_facts, leased_task
from dibs.engines.decisions.transaction import Queue
from dibs.engines.redis import codec, rows
from dibs.engines.redis.connection import Argument
from dibs.engines.redis.draft import START
from dibs.engines.redis.enqueueing import watched_text
from dibs.engines.redis.store import Store
from dibs.engines.redis.transaction import Transaction
from dibs.engines.topics import EVENTS, room_topic
from dibs.engines.unreadable import MOMENT, UNREADABLE, problem_of
from dibs.engines.values import Claimed, ClaimRequest
from dibs.engines.verbs.claiming import Given, give, given_before, served_queues, token_waits, tracks_for
from dibs.engines.verbs.partitions import open_refilled, pass_over, promote_heads
from dibs.engines.verbs.records import Records
from dibs.engines.verbs.steps import resume
from dibs.engines.verbs.upkeep import expire
from dibs.observe.events import EventType

__all__ = ["claim"]

TRIES = 50
"""How often one claim chooses again because chosen tasks can't be read."""
RETRY: Duration = MOMENT
"""When to look again for upkeep that others were at."""


class Unread(Exception):
    """None of the tasks that were chosen can be read. They are set aside, and the claim chooses again."""


def is_chosen_from(catalog: Catalog, queue: Queue) -> bool:
    """Whether more than ranks decides what a queue gives."""
    fair = any(track.fair for track in catalog.of_queue(queue.name))
    return queue.settings.limits_starts or queue.is_guarded or fair


async def claim(store: Store, request: ClaimRequest, now: Instant | None) -> Claimed:
    if request.repeat:
        again = await store.write(repeat, now, request, repeats=False)
        if again is not None:
            return again
    await store.look_again()
    for _ in range(TRIES):
        size = store.aside.size
        try:
            return store.aside.paced(await claim_readable(store, request, now))
        except Unread:
            if store.aside.size == size:
                break  # no more tasks can be set aside
    return store.aside.paced(Claimed([], 0))


async def repeat(transaction: Transaction, request: ClaimRequest) -> Claimed | None:
    """What an earlier call with the same sequence claimed and still holds."""
    tasks = await given_before(transaction, request)
    if not tasks:
        return None
    waits = await token_waits(transaction, served_queues(transaction.queues, request))
    return Claimed(tasks, await next_due_in(transaction, waits))


async def claim_readable(store: Store, request: ClaimRequest, now: Instant | None) -> Claimed:
    """Claim, with the upkeep that must be done first. Raises `Unread` if no chosen task can be read."""
    found = await claim_once(store, request, now, skip_upkeep=False)
    if found is not None:
        return found
    more = await store.write(bring_up_to_date, now)
    found = await claim_once(store, request, now, skip_upkeep=True)
    assert found is not None
    if more:
        return Claimed(found.tasks, 0)
    return Claimed(found.tasks, RETRY) if found.next_due_in == 0 else found


async def claim_once(store: Store, request: ClaimRequest, now: Instant | None, *, skip_upkeep: bool) -> Claimed | None:
    """Claim; None if there is upkeep to do first."""
    for _ in range(TRIES):
        queues = served_queues(store.catalog.queues, request)
        limited = [queue.name for queue in queues if is_chosen_from(store.catalog, queue)]
        if request.floors or limited:
            async with store.in_turn(limited):
                return await store.write(serve, now, request, skip_upkeep, repeats=False)
        found = await store.client.persist(
            lambda: claim_plainly(store, request, now, skip_upkeep=skip_upkeep), repeats=False
        )
        if found != "stale":
            return None if found == "upkeep" else found  # type: ignore[return-value]
        await store.client.persist(store.refresh)
    return Claimed([], 0)


# By ranks alone.


async def claim_plainly(
    store: Store, request: ClaimRequest, now: Instant | None, *, skip_upkeep: bool
) -> Claimed | str:
    catalog, wanted = store.catalog, request.limit + request.prefetch
    queues = served_queues(catalog.queues, request)
    watched = watched_text(catalog, EventType.TASK_STARTED, now)
    passed = list(catalog.aside.tasks) if catalog.aside.tasks else []
    steps = list(catalog.aside.steps)
    idle = [store.keys.idle(name) for name in dict.fromkeys(request.queues)]
    arguments: list[Argument] = [
        catalog.generation, "" if now is None else now, encode(request.worker), request.worker, request.sequence,
        "" if request.lease is None else request.lease, wanted, int(request.in_order), int(skip_upkeep), watched,
        len(passed), *passed, len(steps), *steps, len(idle), *idle,
    ]  # fmt: skip
    for order, queue in enumerate(queues):
        for track in tracks_for(catalog.open_tracks(queue.name), request, catalog.aside.crowded):
            arguments += (track.number, order, track.lane, scale(queue.settings, track.lane))
    reply = await store.client.run("claim", store.keys("store"), *arguments)
    if reply[0] != b"done":
        return str(reply[0].decode())
    _, at, lease, due, expiry, left, members, values, ends, tracks = reply
    instant = int(at)
    next_at = min((int(each) for each in (due, expiry) if each), default=None)
    due_in = 0 if left else None if next_at is None else max(0, next_at - instant)
    if not members:
        return Claimed([], due_in)
    tasks, unread = leased_tasks(catalog, int(lease), instant, zip(members, values, ends, tracks, strict=True))
    bounded = {task.queue for task in tasks if catalog.settings(task.queue).max_depth is not None}
    topics = {room_topic(queue) for queue in bounded} | ({EVENTS} if watched else set())
    await store.tell(topics)
    if unread:
        sent = [each for task_id, track, member in unread for each in (task_id, lease, track, member)]
        await store.client.run("unlease", store.keys("store"), *sent)
        if not tasks:
            raise Unread
        return Claimed(tasks, 0)  # there may be others behind those that were set aside
    return Claimed(tasks, due_in)


def leased_tasks(
    catalog: Catalog, lease: int, now: Instant, given: Iterable[tuple[bytes, bytes, bytes, bytes]]
) -> tuple[list[LeasedTask], list[tuple[str, int, bytes]]]:
    """Of entries, values, ends of leases and tracks: the tasks that can be read; and id, track and entry of the others,
    which are set aside."""
    tasks, unread = [], []
    for member, value, end, number in given:
        task_id = member[16:52].decode()
        try:
            parts = rows.parts_of(value)
            track = catalog.tracks[parts.track]
            if parts.columns.ready_at is None:
                raise ValueError("it is pending, but has no ready_at")
            tasks.append(
                leased_task(
                    decode_facts(parts.columns.facts),
                    track,
                    catalog.queues[track.queue].settings,
                    id=task_id,
                    lease=lease,
                    expires_at=int(end),
                    ready_at=parts.columns.ready_at,
                    rank=parts.columns.rank,
                    args=parts.args,
                    now=now,
                )
            )
        except UNREADABLE as error:
            catalog.aside.log_once("task", task_id, problem_of(error))
            catalog.aside.skip_task(task_id, int(number))
            unread.append((task_id, int(number), member))
    return tasks, unread


# By limits and shares.


async def serve(transaction: Transaction, request: ClaimRequest, skip_upkeep: bool) -> Claimed | None:
    """Choose tasks and lease them. None: there is upkeep to do first."""
    queues = served_queues(transaction.queues, request)
    key = transaction.keys("store")
    for queue in queues:  # one claim at a time from what is limited: the others are decided again
        if is_chosen_from(transaction.catalog, queue):
            field = f"claims {queue.name}"
            (number,) = await transaction.draft.values(key, [field])
            transaction.draft.put(key, field, b"%d" % (int(number or 0) + 1))
    if not skip_upkeep and await needs_upkeep(transaction):
        return None
    more = await open_refilled(transaction, queues)
    await pass_over(transaction, queues)
    if transaction.partitions:
        await promote_heads(transaction)
        await transaction.flush()  # the turns of those that may start now
    given: Given | None = None
    for _ in range(TRIES):
        size = transaction.aside.size
        given = await give(transaction, request, queues)
        if given is not None or transaction.aside.size == size:
            break
        more = True
    if given is None:
        given = Given([])
    if transaction.partitions:
        await promote_heads(transaction)
    if len(given.tasks) < request.limit + request.prefetch:
        for name in dict.fromkeys(request.queues):
            transaction.draft.more.append(("SET", transaction.keys.idle(name), "1"))
    waits = await token_waits(transaction, queues, given.headrooms)
    due_in = await next_due_in(transaction, waits)
    return Claimed(given.tasks, 0 if more or given.more else due_in)


async def first_of(transaction: Transaction, name: str) -> Instant | None:
    """The first instant in an ordered set of them, without what is passed over."""
    passed = transaction.passed_over
    found = await transaction.draft.range(transaction.keys(name), START, b"+", len(passed) + 1)
    entries = [codec.decode("is", member) for member in found]
    return next((at for at, task_id in entries if task_id not in passed), None)


async def has_steps(transaction: Transaction) -> bool:
    passed = transaction.aside.steps
    found = await transaction.draft.range(transaction.keys("prompt_steps"), START, b"+", len(passed) + 1)
    return any(codec.decode("i", member)[0] not in passed for member in found)


async def needs_upkeep(transaction: Transaction) -> bool:
    due, expiry = await first_of(transaction, "due"), await first_of(transaction, "expiries")
    is_due = any(each is not None and each <= transaction.now for each in (due, expiry))
    return is_due or await has_steps(transaction)


async def next_due_in(transaction: Transaction, waits: list[Duration]) -> Duration | None:
    """In how long a waiting task, an expiry or a start token (`waits`) is due; 0 if follow-ups are left."""
    if await has_steps(transaction):
        return 0
    instants = [await first_of(transaction, name) for name in ("due", "expiries")]
    times = [max(0, each - transaction.now) for each in instants if each is not None]
    return min([*times, *waits], default=None)


async def bring_up_to_date(transaction: Transaction) -> bool:
    """Do the upkeep: expire, promote, continue follow-ups; True if some of it is left."""
    more = await expire(transaction, 0)
    records = Records(transaction)
    due = await transaction.due(PROMOTE_BATCH)
    for record in records.adopt(due):
        records.promote(record)
        transaction.tell(record.queue, records.current[record.id].state)
    await records.flush()
    if transaction.steps or await has_steps(transaction):
        await resume(transaction)
    if transaction.partitions:
        await promote_heads(transaction)
    return more or len(due) == PROMOTE_BATCH or await has_steps(transaction)
