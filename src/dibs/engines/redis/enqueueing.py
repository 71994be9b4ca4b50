"""enqueue: one script for tasks that need no decision. All others take the way of `dibs.engines.verbs`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from dibs.core.settings import resolve
from dibs.core.task import NewTask
from dibs.core.times import Instant
from dibs.engines.catalog import Catalog
from dibs.engines.decisions.blocks import Pair, blocks_of, created_trait, is_skewed, slot_of, traits_of, wide
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.enqueueing import all_plain, like_runs, stored_answer
from dibs.engines.decisions.facts import facts_for, mixed_band
from dibs.engines.redis import codec
from dibs.engines.redis.connection import Argument
from dibs.engines.redis.store import Store
from dibs.engines.topics import EVENTS, work_topic
from dibs.engines.values import EnqueueAnswer, NewWorkflow
from dibs.engines.verbs import enqueueing
from dibs.observe.events import EventType

__all__ = ["enqueue", "watched_text"]


async def enqueue(
    store: Store, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None, now: Instant | None
) -> list[EnqueueAnswer]:
    if tasks and workflow is None:
        answers = await store.client.persist(lambda: enqueue_plainly(store, tasks, now))
        if answers is not None:
            return answers
    known = store.catalog.queues
    async with store.in_turn({new.queue for new in tasks if new.queue in known and known[new.queue].is_guarded}):
        return await store.write(enqueueing.enqueue, now, tasks, atomic, workflow)


async def enqueue_plainly(store: Store, tasks: Sequence[NewTask], now: Instant | None) -> list[EnqueueAnswer] | None:
    """One script; None if some tasks need a decision, or are known."""
    runs = like_runs(tasks)
    for _ in range(2):
        catalog = store.catalog
        if not is_ready(catalog, tasks):
            return None
        arguments, pairs = drafted(store, catalog, runs, now)
        if arguments is None:
            return None
        reply = await store.client.run("enqueue", store.keys("store"), *arguments)
        if reply[0] == b"done":
            catalog.known_blocks.learn(pairs)
            store.notifier.local.notify({work_topic(run[0].queue) for run in runs})
            instant = int(reply[1])
            return [stored_answer(new, instant) for new in tasks]
        if reply[0] == b"known":
            return None
        await store.refresh()
    return None


def is_ready(catalog: Catalog, tasks: Sequence[NewTask]) -> bool:
    """Whether the script can store all of these tasks. Those that others know by more than their rank it leaves."""
    queues = catalog.queues
    if catalog.unreadable or not all_plain(tasks, queues) or len({new.id for new in tasks}) < len(tasks):
        return False
    return all(new.queue in queues and is_simple(new) for new in tasks)


def is_simple(new: NewTask) -> bool:
    spec = new.spec
    return spec.deadline is None and spec.partition is None and spec.expires_at is None


def drafted(
    store: Store, catalog: Catalog, runs: Sequence[Sequence[NewTask]], now: Instant | None
) -> tuple[list[Argument] | None, list[Pair]]:
    """What the script takes, and the pairs of the index of id blocks among it; None if a track does not exist."""
    ids = [new.id for run in runs for new in run]
    pairs = new_pairs(catalog, runs, now)
    members = [codec.encode("si", pair) for pair in pairs]
    watched = watched_text(catalog, EventType.TASK_SUBMITTED, now)
    topics = {work_topic(run[0].queue) for run in runs}
    topics_sent = store.topic_arguments({*topics, EVENTS} if watched else topics)
    arguments: list[Argument] = [
        catalog.generation, "" if now is None else now, min(ids), max(ids), watched,
        len(members), *members, len(topics_sent), *topics_sent, len(runs),
    ]  # fmt: skip
    for run in runs:
        shared = shared_by(catalog, run[0])
        if shared is None:
            return None, []
        arguments += [*shared, len(run)]
        for new in run:
            arguments += (new.id, new.args)
    return arguments, pairs


def shared_by(catalog: Catalog, new: NewTask) -> tuple[Argument, ...] | None:
    """What a run of like tasks has in common: track, rank offset, delay, instant, span of a lease, facts."""
    queue = catalog.queues[new.queue]
    settings, priority = queue.settings, new.spec.priority
    ranking = catalog.ranking(queue, priority)
    key = (new.queue, new.name, new.requires, ranking.lane, queue.epoch, settings.fair, mixed_band(priority))
    track = catalog.numbers.get(key)
    if track is None or ranking.rerank_in is not None:
        return None
    options = resolve(new.options, new.app_options, settings, priority)
    at: Argument = "" if new.at is None else new.at
    return (track, ranking.offset, new.delay, at, options.lease, encode(facts_for(new, options)))


def new_pairs(catalog: Catalog, runs: Iterable[Sequence[NewTask]], now: Instant | None) -> list[Pair]:
    """Pairs of the index of id blocks that are not known to be stored."""
    known, present = catalog.known_blocks, time.time_ns() // 1000 if now is None else now
    found: dict[Pair, None] = {}
    for run in runs:
        if len(run) == 1 and known.covers(run[0], present):
            continue
        traits, blocks = traits_of(run[0]), blocks_of([new.id for new in run])
        for block in blocks:
            found.update(dict.fromkeys(known.lacking(traits, block, present)))
        if skewed := [block for block in blocks if is_skewed(block, present)]:
            found.update(dict.fromkeys((created_trait(slot_of(present)), each) for each in wide(skewed)))
    return list(found)


def watched_text(catalog: Catalog, event: EventType, now: Instant | None) -> str:
    """The tracks whose events are wanted, as scripts take them: empty if of none, 0 if of all."""
    return ",".join(map(str, catalog.watched(event, now) or ()))
