"""settle, extend and rescue: each write compares the lease number."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dibs.core.lease import span_left
from dibs.core.task import Lease, Settlement
from dibs.core.times import Instant
from dibs.engines.catalog import Catalog
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.settling import Part, held_answer, is_plain, without_repeats
from dibs.engines.port import Read
from dibs.engines.redis import rows
from dibs.engines.redis.connection import Argument
from dibs.engines.redis.enqueueing import watched_text
from dibs.engines.redis.snapshot import Snapshot
from dibs.engines.redis.store import Store
from dibs.engines.redis.transaction import Transaction
from dibs.engines.topics import EVENTS, ended_topic, work_topic
from dibs.engines.unreadable import UNREADABLE
from dibs.engines.values import COMPLETED, ExtendAnswer, ExtendOutcome, Extension, Rescued, SettleAnswer
from dibs.engines.verbs import rescue as shared
from dibs.engines.verbs.settling import settle_records
from dibs.observe.events import EventType

__all__ = ["extend", "rescue", "settle"]

NEWCOMER_SECONDS = 8.0
"""A process that has just opened the store can't know whether the server was down. If it was, every lease has expired,
and living workers extend theirs within this time."""

PRESENT_WORKERS = Read("present_workers", tuple[str, str], "presence of worker")
"""Takes nothing: the workers whose processes should be present, and at which server."""


async def settle(store: Store, settlements: Sequence[Settlement], now: Instant | None) -> list[SettleAnswer]:
    """Plain completions that concern no other task are written by one script, the rest record by record."""
    answers: dict[int, SettleAnswer] = {}
    for part in without_repeats(settlements):
        completions = [each for each in part if is_plain(each[1])]
        if completions:
            await complete(store, completions, answers, now)
        others = [each for each in part if each[0] not in answers]
        if others:
            found = await store.write(settle_records, now, [each[1] for each in others])
            answers.update((each[0], answer) for each, answer in zip(others, found, strict=True))
    return [answers[i] for i in range(len(settlements))]


async def complete(store: Store, part: Part, answers: dict[int, SettleAnswer], now: Instant | None) -> None:
    """`moves.settled` for completions: tasks move to the finished ones, in one step."""
    done, tracks = await store.client.persist(lambda: complete_once(store, part, now))
    answers.update((position, COMPLETED) for (position, _), is_done in zip(part, done, strict=True) if is_done)
    if not set(tracks).issubset(store.catalog.tracks):
        await store.client.persist(store.refresh)
    topics = ended_topics(store.catalog, tracks)
    if tracks and store.catalog.watches:
        topics.add(EVENTS)
    await store.client.persist(lambda: store.tell(topics))


async def complete_once(store: Store, part: Part, now: Instant | None) -> tuple[list[int], list[int]]:
    """Whether each is completed, and their tracks."""
    while True:
        catalog = store.catalog
        guarded = guarded_tracks(catalog)
        arguments: list[Argument] = [
            catalog.generation, "" if now is None else now, watched_text(catalog, EventType.TASK_COMPLETED, now),
            len(guarded), *guarded,
        ]  # fmt: skip
        for _, each in part:
            arguments += (each.lease.id, each.lease.number, *((b"", 0) if each.result is None else (each.result, 1)))
        reply = await store.client.run("complete", store.keys("store"), *arguments)
        if reply[0] == b"done":
            return reply[1], reply[2]
        await store.refresh()


def guarded_tracks(catalog: Catalog) -> list[int]:
    """The tracks of queues where the end of a task may let others start."""
    limited = [queue.name for queue in catalog.queues.values() if queue.settings.per_partition is not None]
    return [track.number for name in limited for track in catalog.of_queue(name)]


def ended_topics(catalog: Catalog, tracks: Sequence[int]) -> set[str]:
    topics = set()
    for queue in {catalog.tracks[number].queue for number in tracks if number in catalog.tracks}:
        topics.add(ended_topic(queue))
        if catalog.settings(queue).limits_starts:  # a slot is free again
            topics.add(work_topic(queue))
    return topics


async def extend(store: Store, extensions: Sequence[Extension], now: Instant | None) -> list[ExtendAnswer]:
    """One script. A lease named twice gets the later span; progress stays unless it is given."""
    merged: dict[Lease, tuple[int, bytes]] = {}
    for each in extensions:
        progress = b"" if each.progress is None else encode((each.progress, each.message))
        if not progress and each.lease in merged:
            progress = merged[each.lease][1]
        merged[each.lease] = (span_left(each.by, each.ran), progress)
    if not merged:
        return []
    arguments: list[Argument] = ["" if now is None else now]
    for lease, (span, progress) in merged.items():
        arguments += (lease.id, lease.number, span, progress)
    reply = await store.client.persist(lambda: store.client.run("extend", store.keys("store"), *arguments))
    instant, held = int(reply[0]), dict(zip(merged, reply[1], strict=True))
    return [answer_to(each, instant, held[each.lease]) for each in extensions]


def answer_to(extension: Extension, now: Instant, held: int | bytes) -> ExtendAnswer:
    if held == 0:
        return ExtendAnswer(ExtendOutcome.LOST)
    return held_answer(extension, now, None if isinstance(held, int) else facts_in(held))


def facts_in(value: bytes) -> bytes:
    try:
        return bytes(rows.parts_of(value).columns.facts)
    except UNREADABLE:
        return b"{}"


async def rescue(store: Store, ended_by: Instant | None, not_after: Instant | None, now: Instant | None) -> Rescued:
    """Take back the tasks of expired leases and lost workers; mark dead workers."""
    await store.look_again()
    absent = await absent_workers(store)
    if now is None and time.monotonic() - store.opened_at < NEWCOMER_SECONDS:
        ended_by = 0 if ended_by is None else min(ended_by, 0)
    return await store.write(rescue_batch, now, absent, ended_by, not_after)


async def absent_workers(store: Store) -> list[str]:
    async def shown(snapshot: Snapshot) -> dict[str, str]:
        return dict(await snapshot.read(PRESENT_WORKERS))

    found = await store.read(shown, None)
    return await store.client.persist(lambda: store.presence.absent(found))


async def rescue_batch(
    transaction: Transaction, absent: list[str], ended_by: Instant | None, not_after: Instant | None
) -> Rescued:
    return await shared.rescue(transaction, absent, 0, ended_by, not_after)
