"""enqueue: one statement for tasks that need no decision. All others take the way of `dibs.engines.verbs`.

Drafts are `moves.admit` for such tasks, without building records; the store adds what depends on its clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import asyncpg

from dibs.core.settings import resolve
from dibs.core.task import NewTask
from dibs.core.times import DAY, MS, Instant
from dibs.engines.catalog import TrackKey
from dibs.engines.decisions.blocks import Pair, block_of, blocks_of, traits_of
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.enqueueing import all_plain, like_runs, stored_answer
from dibs.engines.decisions.facts import facts_for
from dibs.engines.decisions.partition import Partition
from dibs.engines.postgres.catalog import MOST_TRACKS, Catalog, Missing, Stale
from dibs.engines.postgres.statements import statement
from dibs.engines.postgres.store import TASKS, Reach, Store
from dibs.engines.postgres.tokens import Tokens, Untaken, take_tokens
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.topics import EVENTS, work_topic
from dibs.engines.values import EnqueueAnswer, NewWorkflow
from dibs.engines.verbs import enqueueing
from dibs.observe.events import EventType

__all__ = ["block_parameters", "draft", "enqueue", "first_day", "is_ready", "new_pairs"]

KNOWN = "DB001"
"""Raised by the function `enqueue` if a task has ended, or if `atomic` and not all could be stored."""
VERSION_AT = 14
"""Where an id has its version."""
SLACK_DAYS = 1
"""How many days the clock of an id's maker may be ahead."""

Draft = tuple[int, int, int, Instant | None, int | None, int, Instant | None, str | None, bytes]
"""What a run of like tasks has in common: track, rank offset, delay, instant, rerank_in, lease, expiry, partition,
facts."""


async def enqueue(
    store: Store, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None, now: Instant | None
) -> list[EnqueueAnswer]:
    tokens = await take_tokens(store.notifier.accelerator, store.catalog, tasks, now)
    answers: list[EnqueueAnswer | None] = [None] * len(tasks)
    if tasks and workflow is None:
        answers = await store.persist(lambda: enqueue_plainly(store, tasks, atomic, now, tokens))
    left = [new for new, answer in zip(tasks, answers, strict=True) if answer is None]
    if not left and workflow is None:
        return [answer for answer in answers if answer is not None]
    if tokens is not None:
        tokens.pay(new for new, answer in zip(tasks, answers, strict=True) if answer is not None)
    # Edges and replacements may affect any queue; other tasks only their own.
    reach = TASKS if any(new.after or new.replace for new in left) else Reach(tuple(new.queue for new in left))
    decided: list[EnqueueAnswer] | None = None
    try:
        decided = await store.write(enqueue_decided, now, reach, left, atomic, workflow, tokens)
    except Untaken:
        pass
    finally:
        if tokens is not None:
            await tokens.give_back(now)
    found = iter(await enqueue(store, left, atomic, workflow, now) if decided is None else decided)
    return [next(found) if answer is None else answer for answer in answers]


async def enqueue_decided(
    transaction: Transaction,
    tasks: Sequence[NewTask],
    atomic: bool,
    workflow: NewWorkflow | None,
    tokens: Tokens | None,
) -> list[EnqueueAnswer]:
    transaction.tokens = tokens
    return await enqueueing.enqueue(transaction, tasks, atomic, workflow)


async def enqueue_plainly(
    store: Store, tasks: Sequence[NewTask], atomic: bool, now: Instant | None, tokens: Tokens | None
) -> list[EnqueueAnswer | None]:
    """One statement; None for known tasks, which it did not store, or for all tasks if one is not plain."""
    catalog = store.catalog
    if not is_ready(catalog, tasks, tokens is not None and tokens.is_all and tokens.fits(catalog)):
        return [None] * len(tasks)
    if len(tasks) == 1:
        return [await enqueue_one(store, tasks[0], now)]
    runs = like_runs(tasks)
    drafted, pairs = draft(catalog, runs), new_pairs(catalog, runs, now)
    day, watched = first_day(drafted[0], now), catalog.watched(EventType.TASK_SUBMITTED, now)
    asked = (*drafted, *block_parameters(pairs, tasks), watched)
    async with store.lend() as connection:
        try:
            row = await connection.fetchrow(
                statement("enqueue", store.schema), now, catalog.generation, day, atomic, *asked
            )
        except asyncpg.PostgresError as error:
            if getattr(error, "sqlstate", None) == KNOWN:
                return [None] * len(tasks)
            raise
    if row["status"] == "stale":
        raise Stale
    catalog.known_blocks.learn(pairs)
    topics = {work_topic(new.queue) for new in tasks}
    await store.notifier.notify(topics if watched is None else topics | {EVENTS})
    instant = row["now"]
    if row["stored"] is None:
        return [stored_answer(new, instant) for new in tasks]
    stored = {str(task_id) for task_id in row["stored"]}
    return [answer_to(new, instant, stored) for new in tasks]


async def enqueue_one(store: Store, new: NewTask, now: Instant | None) -> EnqueueAnswer | None:
    """`enqueue_plainly` of a single task; None if it is known."""
    catalog = store.catalog
    missing: dict[TrackKey, None] = {}
    drafted = draft_row(catalog, new, missing)
    if missing:
        raise Missing([], list(missing))
    day, known = first_day([new.id], now), catalog.known_blocks
    present = time.time_ns() // 1000 if now is None else now
    block = block_of(new.id)
    pairs = () if known.covers(new, present) else known.lacking(traits_of(new), block, present)
    traits = [trait for trait, _ in pairs] or None
    watched = catalog.watched(EventType.TASK_SUBMITTED, now)
    asked = (new.id, new.args, *drafted, traits, block, watched)
    rows = await store.rows_once("enqueue_one", now, catalog.generation, day, *asked)
    status, instant = rows[0]
    if status == "stale":
        raise Stale
    if status == "known":
        return None
    if pairs:
        known.learn(pairs)
    await store.notifier.notify({work_topic(new.queue)} if watched is None else {work_topic(new.queue), EVENTS})
    return stored_answer(new, instant)


def answer_to(new: NewTask, now: Instant, stored: set[str]) -> EnqueueAnswer | None:
    if new.id not in stored:
        return None
    stored.discard(new.id)  # the same task twice in a batch is stored once
    return stored_answer(new, now)


# Drafts.


def is_ready(catalog: Catalog, tasks: Sequence[NewTask], is_paid: bool = False) -> bool:
    """Whether one statement can store all of these tasks. `is_paid`: their clients' tokens have been taken.

    A queue is created only if a task is new, and a rank with a deadline depends on the clock.
    """
    queues = catalog.queues
    return all_plain(tasks, queues, is_paid) and all(new.queue in queues and new.spec.deadline is None for new in tasks)


def draft(catalog: Catalog, runs: Sequence[Sequence[NewTask]]) -> list[Sequence[Any]]:
    """The columns, in the order of the function's parameters; raises `Missing` for tracks that do not exist."""
    missing: dict[TrackKey, None] = {}
    drafts = [draft_row(catalog, run[0], missing) for run in runs]
    if missing:
        raise Missing([], list(missing))
    tasks = [new for run in runs for new in run]
    numbers = [number for number, run in enumerate(runs, 1) for _ in run]
    return [[new.id for new in tasks], numbers, [new.args for new in tasks], *zip(*drafts, strict=True)]


def new_pairs(catalog: Catalog, runs: Sequence[Sequence[NewTask]], now: Instant | None) -> list[Pair]:
    """Pairs of the index of id blocks that are not known to be stored."""
    known, present = catalog.known_blocks, time.time_ns() // 1000 if now is None else now
    found: dict[Pair, None] = {}
    for run in runs:
        traits = traits_of(run[0])
        for block in blocks_of([new.id for new in run]):
            found.update(dict.fromkeys(known.lacking(traits, block, present)))
    return list(found)


def block_parameters(pairs: Sequence[Pair], tasks: Sequence[NewTask]) -> tuple[Any, ...]:
    """New traits and their blocks, and the blocks of the lowest and the highest id."""
    ids = [new.id for new in tasks]
    ends = block_of(min(ids)), block_of(max(ids))
    return ([trait for trait, _ in pairs], [block for _, block in pairs], *ends) if pairs else (None, None, *ends)


def draft_row(catalog: Catalog, new: NewTask, missing: dict[TrackKey, None]) -> Draft:
    """The shared columns of a task; its track is added to `missing` if it does not exist."""
    queue = catalog.queues[new.queue]
    settings = queue.settings
    ranking = catalog.ranking(queue, new.spec.priority)
    in_order = new.spec.deadline is None and len(missing) < MOST_TRACKS
    key = catalog.track_key(new.queue, new.name, new.requires, ranking.lane, new.spec.priority, in_order=in_order)
    track = catalog.numbers.get(key)
    if track is None:
        missing[key] = None
    options = resolve(new.options, new.app_options, settings, new.spec.priority)
    facts = facts_for(new, options)
    partition = None if new.spec.partition is None else Partition(new.queue, new.spec.partition).key
    rerank_in, lease, expires_at = ranking.rerank_in, options.lease, new.spec.expires_at
    return (track or 0, ranking.offset, new.delay, new.at, rerank_in, lease, expires_at, partition, encode(facts))


def first_day(ids: Sequence[str], now: Instant | None) -> int:
    """The first day on which any of these tasks can have ended if it is known, according to the times in their ids."""
    if any(task_id[VERSION_AT] != "7" for task_id in ids):
        return 0
    first = min(ids)
    made_at = int(first[:8] + first[9:13], 16) * MS
    present = time.time_ns() // 1000 if now is None else now
    return 0 if made_at > present + DAY else made_at // DAY - SLACK_DAYS
