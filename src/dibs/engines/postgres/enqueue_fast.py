"""The verbs that are one statement when nothing is in their way: enqueue and get."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from dibs.core.states import State
from dibs.core.task import NewTask, TaskRecord
from dibs.core.times import Instant
from dibs.engines.catalog import TrackKey
from dibs.engines.decisions.enqueueing import due_at_first
from dibs.engines.postgres.catalog import Catalog, Missing, Stale
from dibs.engines.postgres.enqueue_rows import draft, draft_row, first_day, is_plain
from dibs.engines.postgres.enqueueing import enqueue as enqueue_decided
from dibs.engines.postgres.rows import TaskRow, real_ids, record_of
from dibs.engines.postgres.statements import statement
from dibs.engines.postgres.store import TASKS, Reach, Store
from dibs.engines.postgres.transaction import set_aside
from dibs.engines.topics import work_topic
from dibs.engines.unreadable import UNREADABLE, unreadable_queue
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome, NewWorkflow, UnreadableTask

__all__ = ["enqueue", "get", "stored_answer"]

KNOWN = "DB001"
"""Raised by the function `enqueue` if a task has ended, or if `atomic` and not all could be stored."""


async def enqueue(
    store: Store, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None, now: Instant | None
) -> list[EnqueueAnswer]:
    answers: list[EnqueueAnswer | None] = [None] * len(tasks)
    if tasks and workflow is None:
        answers = await store.persist(lambda: enqueue_plainly(store, tasks, atomic, now))
    left = [new for new, answer in zip(tasks, answers, strict=True) if answer is None]
    if not left and workflow is None:
        return [answer for answer in answers if answer is not None]
    # Edges and replacements may affect any queue; other tasks only their own.
    reach = TASKS if any(new.after or new.replace for new in left) else Reach(tuple(new.queue for new in left))
    found = iter(await store.write(enqueue_decided, now, reach, left, atomic, workflow))
    return [next(found) if answer is None else answer for answer in answers]


async def enqueue_plainly(
    store: Store, tasks: Sequence[NewTask], atomic: bool, now: Instant | None
) -> list[EnqueueAnswer | None]:
    """One statement; None for known tasks, which it did not store, or for all tasks if one is not plain."""
    catalog = store.catalog
    if catalog.unreadable:
        check_queues(catalog, tasks)
    if not all(is_plain(catalog, new) for new in tasks):
        return [None] * len(tasks)
    if len(tasks) == 1:
        return [await enqueue_one(store, tasks[0], now)]
    drafted = draft(catalog, tasks)
    day = first_day(drafted[0], now)
    async with store.lend() as connection:
        try:
            row = await connection.fetchrow(
                statement("enqueue", store.schema), now, catalog.generation, day, atomic, *drafted
            )
        except asyncpg.PostgresError as error:
            if getattr(error, "sqlstate", None) == KNOWN:
                return [None] * len(tasks)
            raise
    if row["status"] == "stale":
        raise Stale
    await store.notifier.notify({work_topic(new.queue) for new in tasks})
    instant = row["now"]
    if row["stored"] is None:
        return [stored_answer(new, instant) for new in tasks]
    stored = {str(task_id) for task_id in row["stored"]}
    return [answer_to(new, instant, stored) for new in tasks]


def check_queues(catalog: Catalog, tasks: Sequence[NewTask]) -> None:
    """Raise if the settings of one of their queues can't be read."""
    for name in {new.queue for new in tasks} & catalog.unreadable.keys():
        raise unreadable_queue(name, catalog.unreadable[name])


async def enqueue_one(store: Store, new: NewTask, now: Instant | None) -> EnqueueAnswer | None:
    """`enqueue_plainly` of a single task; None if it is known."""
    catalog = store.catalog
    missing: dict[TrackKey, None] = {}
    drafted = draft_row(catalog, new, missing)
    if missing:
        raise Missing([], list(missing))
    day = first_day([new.id], now)
    rows = await store.rows_once("enqueue_one", now, catalog.generation, day, new.id, new.args, *drafted)
    status, instant = rows[0]
    if status == "stale":
        raise Stale
    if status == "known":
        return None
    await store.notifier.notify({work_topic(new.queue)})
    return stored_answer(new, instant)


def answer_to(new: NewTask, now: Instant, stored: set[str]) -> EnqueueAnswer | None:
    if new.id not in stored:
        return None
    stored.discard(new.id)  # the same task twice in a batch is stored once
    return stored_answer(new, now)


def stored_answer(new: NewTask, now: Instant) -> EnqueueAnswer:
    state = State.SCHEDULED if due_at_first(new, now) > now else State.PENDING
    return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, state)


async def get(store: Store, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]:
    """Tracks never change, so any copy of the catalog that has them will do."""

    async def look() -> list[TaskRecord | UnreadableTask | None]:
        catalog = store.catalog
        rows = {str(row["id"]): row for row in await store.rows("find", real_ids(ids))}
        catalog.expect(row["track"] for row in rows.values())
        return [read(catalog, rows[task_id]) if task_id in rows else None for task_id in ids]

    return await store.persist(look)


def read(catalog: Catalog, row: TaskRow) -> TaskRecord | UnreadableTask:
    try:
        return record_of(row, catalog.track(row["track"]))
    except UNREADABLE as error:
        return set_aside(catalog, row, error)
