"""All that can be seen of a store, to compare it with what is seen later."""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from dibs.core.settings import tier_of
from dibs.core.task import TaskRecord
from dibs.core.times import MINUTE, Instant
from dibs.engines.base import Engine
from dibs.engines.values import Query

__all__ = ["contents"]

MANY = 1_000


async def contents(engine: Engine, now: Instant) -> dict[str, object]:
    """What the viewing verbs show. Its counts must be those of its tasks."""
    tasks = await all_tasks(engine)
    ids = [task.id for task in tasks]
    queues = await engine.queues()
    counts = await engine.counts()
    found = Counter((task.queue, task.state) for task in tasks)
    counted = {(queue, state): n for queue, states in counts.tasks.items() for state, n in states.items() if n}
    assert counted == found, f"the store counts {counted!r}, and has {found!r}"
    kinds = Counter((task.queue, task.name, tier_of(task.spec.priority), task.state) for task in tasks)
    of_kinds = {(k.queue, k.name, k.tier, state): n for k in counts.kinds for state, n in k.states.items()}
    assert of_kinds == kinds, f"the store counts {of_kinds!r}, and has {kinds!r}"
    return {
        "tasks": tasks,
        "counts": counts,
        "backlog": await engine.backlog(now=now),
        "history": {task_id: await engine.history(task_id) for task_id in ids},
        "edges": await engine.edges(ids, followers=MANY),
        "next": {queue.name: await engine.peek(queue.name, MANY, now=now) for queue in queues},
        "queues": [structs.replace(queue, stale=0) for queue in queues],
        "workers": await engine.workers(),
        "schedules": await engine.schedules(),
        "workflows": await engine.workflows(limit=MANY),
        "audit": [structs.replace(entry, n=0) for entry in await engine.audit(MANY)],
        "stats": await engine.stats(None, 0, now // MINUTE),
    }


async def all_tasks(engine: Engine) -> list[TaskRecord]:
    found: list[TaskRecord] = []
    query = Query(limit=MANY)
    while True:
        page = await engine.search(query)
        found += page.records
        if page.cursor is None:
            return found
        query = structs.replace(query, cursor=page.cursor)
