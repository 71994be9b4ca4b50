"""Reads: history, the next tasks, positions, counts, statistics, the audit log, tenants."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dibs.core.fairness import start_virtual_time
from dibs.core.states import State
from dibs.core.task import HistoryEntry, TaskRecord
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.choosing import QueueCursor, first_heads
from dibs.engines.postgres.head_pages import NeedMore, Pages
from dibs.engines.postgres.headroom import limits_of
from dibs.engines.postgres.transaction import Snapshot
from dibs.engines.unreadable import readable
from dibs.engines.values import (
    COUNT_LIMIT,
    AuditEntry,
    Counter,
    Counts,
    Minute,
    Peeked,
    Position,
    Standing,
    TenantRecord,
)

__all__ = [
    "audit",
    "counts",
    "decode_entry",
    "has_long_tail",
    "history",
    "identity",
    "peek",
    "standing",
    "stats",
]

STATES = frozenset(State)
LONG_TAIL = 10_000


decode_entry = msgspec.json.Decoder(HistoryEntry).decode
decode_audit = msgspec.json.Decoder(AuditEntry).decode
decode_minute = msgspec.json.Decoder(Minute).decode
COUNTERS = frozenset(Counter)
TRIES = 10


async def history(snapshot: Snapshot, task_id: str) -> list[HistoryEntry]:
    rows = await snapshot.rows("history", task_id)
    what = f"history entry of task {task_id} number"
    return [entry for _, entry in readable(snapshot.aside, what, rows, decode_entry)]


async def next_ids(snapshot: Snapshot, queue: Queue, most: int) -> list[str]:
    """The next tasks of a queue in claim order, including gated ones."""
    tracks = [track for track in snapshot.catalog.of_queue(queue.name) if not track.retired]
    pages = Pages(snapshot, most, with_gated=True)
    await pages.open([(0, queue)], {queue.name: tracks})
    while True:
        found = first_heads(QueueCursor(pages, queue, 0, tracks, None), snapshot.now, most)
        if not isinstance(found, NeedMore):
            return [head.id for head in found]
        await pages.read_more(found)


async def peek(snapshot: Snapshot, queue_name: str, limit: int, until: str | None) -> Peeked:
    queue = snapshot.catalog.queues.get(queue_name)
    position = None if until is None else await position_of(snapshot, queue_name, until)
    return Peeked([] if queue is None or limit == 0 else await next_tasks(snapshot, queue, limit), position)


async def next_tasks(snapshot: Snapshot, queue: Queue, limit: int) -> list[TaskRecord]:
    records: list[TaskRecord] = []
    for _ in range(TRIES):
        ids = await next_ids(snapshot, queue, limit)
        rows = await snapshot.find_rows(ids)
        records = snapshot.records(rows[task_id] for task_id in ids)
        if len(records) == len(ids):
            break  # otherwise some of them were just set aside, and others take their place
    return records


async def position_of(snapshot: Snapshot, queue_name: str, task_id: str) -> Position | None:
    row = (await snapshot.find_rows([task_id])).get(task_id)
    record = None if row is None else snapshot.decoded(row)
    if not isinstance(record, TaskRecord) or record.state is not State.PENDING or record.queue != queue_name:
        return None
    ids = await next_ids(snapshot, snapshot.catalog.queues.get(queue_name) or Queue(queue_name), COUNT_LIMIT)
    return Position(ids.index(task_id)) if task_id in ids else Position(COUNT_LIMIT, more=True)


async def counts(snapshot: Snapshot) -> Counts:
    tasks = {name: dict.fromkeys(State, 0) for name in snapshot.catalog.queues}
    counters: dict[str, dict[Counter, int]] = {}
    for what, track, queue, n in await snapshot.all_counts():
        if what in STATES:
            name = snapshot.catalog.track(track).queue
            tasks.setdefault(name, dict.fromkeys(State, 0))[State(what)] += n
        elif what in COUNTERS:
            of_queue = counters.setdefault(snapshot.catalog.track(track).queue if track else queue, {})
            of_queue[Counter(what)] = of_queue.get(Counter(what), 0) + n
    return Counts(dict(sorted(tasks.items())), dict(sorted(counters.items())))


async def has_long_tail(snapshot: Snapshot) -> bool:
    """Whether so many count changes wait to be folded that adding them up takes long."""
    tail: int = await snapshot.value("tail", LONG_TAIL)
    return tail == LONG_TAIL


async def stats(snapshot: Snapshot, queue: str | None, since: int, until: int) -> list[Minute]:
    rows = await snapshot.rows("minutes", since, until, queue)
    return [minute for _, minute in readable(snapshot.aside, "figures of minute", rows, decode_minute)]


async def audit(snapshot: Snapshot, limit: int) -> list[AuditEntry]:
    rows = await snapshot.rows("audit", limit)
    return [entry for _, entry in readable(snapshot.aside, "audit entry", rows, decode_audit)]


async def tenants(snapshot: Snapshot, queue_name: str, limit: int) -> list[TenantRecord]:
    queue = snapshot.catalog.queues.get(queue_name)
    if queue is None or not queue.settings.fair:
        return []
    clock = await snapshot.value("clock", queue_name) or 0
    unfair = [track.number for track in snapshot.catalog.of_queue(queue_name) if not track.fair]
    others: int = await snapshot.value("depth", unfair) if unfair else 0
    stored = await snapshot.rows("tenants", queue_name, clock, limit)
    rows = {row["share"]: (row["virtual_time"], row["pending"]) for row in stored}
    if others:  # ranked before the queue was fair: they belong to the tenant without a name
        virtual_time, pending = rows.get("", (0, 0))
        rows[""] = (virtual_time, pending + others)
    found = [
        TenantRecord(tenant=share, pending=pending, virtual_time=start_virtual_time(clock, virtual_time))
        for share, (virtual_time, pending) in rows.items()
    ]
    return sorted(found, key=lambda each: (each.virtual_time, each.tenant))[:limit]


async def identity(snapshot: Snapshot) -> str:
    found: str = await snapshot.value("identity")
    return found


async def standing(snapshot: Snapshot, queue: str, tasks: Sequence[str], most_tenants: int) -> Standing:
    limits = [await limits_of(snapshot, queue, task_id) for task_id in tasks]
    return Standing(limits, await tenants(snapshot, queue, most_tenants) if most_tenants else [])
