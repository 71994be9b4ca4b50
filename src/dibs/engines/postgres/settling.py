"""settle, extend and rescue: each write compares the lease number."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from dibs.core.lease import span_left, taken_until
from dibs.core.task import Lease, Settlement
from dibs.core.times import END, Instant
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.headroom import MOST_AHEAD
from dibs.engines.decisions.settling import Part, held_answer, is_plain, without_repeats
from dibs.engines.postgres.catalog import NO_SLOTS, Stale
from dibs.engines.postgres.index_bloat import START
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.store import TASKS, Store
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.topics import EVENTS, ended_topic, work_topic
from dibs.engines.values import COMPLETED, ExtendAnswer, ExtendOutcome, Extension, Rescued, SettleAnswer
from dibs.engines.verbs import rescue as shared
from dibs.engines.verbs.settling import settle_records
from dibs.errors import StoreError
from dibs.observe.events import EventType

__all__ = ["NEWCOMER_SECONDS", "extend", "rescue", "rescue_batch", "settle"]

log = logging.getLogger("dibs.engines.postgres")

NEWCOMER_SECONDS = 8.0
"""A process that has just opened the store can't know whether the server was down. If it was, every lease has expired,
and living workers extend theirs within this time."""


async def settle(store: Store, settlements: Sequence[Settlement], now: Instant | None) -> list[SettleAnswer]:
    """Plain completions that concern no other task are written in bulk, the rest record by record."""
    answers: dict[int, SettleAnswer] = {}
    for part in without_repeats(settlements):
        completions = [each for each in part if is_plain(each[1])]
        if completions:
            await complete(store, completions, answers, now)
        others = [each for each in part if each[0] not in answers]
        if others:
            found = await store.write(settle_records, now, TASKS, [each[1] for each in others])
            answers.update((each[0], answer) for each, answer in zip(others, found, strict=True))
    return [answers[i] for i in range(len(settlements))]


async def complete(store: Store, part: Part, answers: dict[int, SettleAnswer], now: Instant | None) -> None:
    """`moves.settled` for completions: rows move to the finished tasks, in one statement."""
    runs = sorted((each.lease.id, each.lease.number, each.result, position) for position, each in part)
    ids, numbers, results, positions = zip(*runs, strict=True)
    done, tracks, watched = await store.persist(lambda: complete_once(store, now, ids, numbers, results))
    if done is not None:  # not all of them
        places = dict(zip(ids, positions, strict=True))
        positions = tuple(places[str(task_id)] for task_id in done)
    answers.update(dict.fromkeys(positions, COMPLETED))
    topics = await ended_topics(store, {*(tracks or ())})
    await store.notifier.notify(topics | {EVENTS} if watched and tracks else topics)


async def complete_once(store: Store, now: Instant | None, *runs: Sequence[Any]) -> tuple[Any, Any, bool]:
    """The ids of those that completed (None: all), their tracks, and whether somebody wants their events."""
    catalog = store.catalog
    watched = catalog.watched(EventType.TASK_COMPLETED, now)
    # Ungating passes over what is set aside, which only the slow path does.
    slots = NO_SLOTS if catalog.aside.tasks else catalog.slots
    asked = (now, catalog.generation, *runs, watched, *slots, MOST_AHEAD)
    ((status, done, tracks),) = await store.rows_once("complete", *asked)
    if status == "stale":
        raise Stale
    return done, tracks, watched is not None


async def ended_topics(store: Store, tracks: set[int]) -> set[str]:
    if not tracks.issubset(store.catalog.tracks):
        await store.refresh()
    catalog, topics = store.catalog, set()
    for queue in {catalog.tracks[number].queue for number in tracks if number in catalog.tracks}:
        topics.add(ended_topic(queue))
        if catalog.settings(queue).limits_starts:  # a slot is free again
            topics.add(work_topic(queue))
    return topics


async def extend(store: Store, extensions: Sequence[Extension], now: Instant | None) -> list[ExtendAnswer]:
    """One statement. A lease named twice gets the later span; progress stays unless it is given."""
    if not extensions:
        return []
    merged: dict[Lease, tuple[int, bytes | None]] = {}
    for each in extensions:
        progress = None if each.progress is None else encode((each.progress, each.message))
        if progress is None and each.lease in merged:
            progress = merged[each.lease][1]
        merged[each.lease] = (span_left(each.by, each.ran), progress)
    asked = sorted((lease.id, lease.number, span, progress) for lease, (span, progress) in merged.items())
    rows = await store.rows("extend", now, *columns(asked, 4))
    held = {Lease(str(row["id"]), row["lease"]): row for row in rows}
    return [
        ExtendAnswer(ExtendOutcome.LOST)
        if (row := held.get(each.lease)) is None
        else held_answer(each, row["now"], row["facts"])
        for each in extensions
    ]


async def rescue(store: Store, ended_by: Instant | None, not_after: Instant | None, now: Instant | None) -> Rescued:
    """Take back the tasks of expired leases and lost workers, except locked rows; mark dead workers."""
    floor, at = store.rescue_floor, time.monotonic()
    low = floor.low(at) if now is None else START
    if now is None and at - store.opened_at < NEWCOMER_SECONDS:
        low = END  # no lease ends after that
    await store.look_again()
    absent = await store.presence.absent()
    try:
        rescued = await store.write(rescue_batch, now, TASKS, low, absent, ended_by, not_after)
    except StoreError as error:
        if now is not None or low != START:
            raise
        ((_, instant),) = await store.rows("begin_read", None)
        floor.put_off(instant, at)
        log.warning("Could not read all leases, only those that ended lately: %s", error)
        low = floor.low(at)
        rescued = await store.write(rescue_batch, now, TASKS, low, absent, ended_by, not_after)
    until = taken_until(rescued.at, ended_by, not_after)
    if now is None and low != END and until is not None:
        floor.learn(until, at, ended=not rescued.more, full=low == START)
    return rescued


async def rescue_batch(
    transaction: Transaction, low: Instant, absent: list[str], ended_by: Instant | None, not_after: Instant | None
) -> Rescued:
    """Until the transaction ends, workers that are still absent can't come back."""
    if absent:
        absent = [row["id"] for row in await transaction.rows("still_absent", absent)]
    return await shared.rescue(transaction, absent, low, ended_by, not_after)
