"""Reads that change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from dibs.core.states import State
from dibs.core.task import HistoryEntry, TaskRecord
from dibs.engines.decisions.transaction import Queue
from dibs.engines.sqlite.fairness import tenants
from dibs.engines.sqlite.headroom import limits_of
from dibs.engines.sqlite.ordering import in_claim_order
from dibs.engines.sqlite.transaction import Snapshot
from dibs.engines.values import (
    COUNT_LIMIT,
    AuditEntry,
    Counter,
    Counts,
    Minute,
    Peeked,
    Position,
    Standing,
    UnreadableTask,
)

__all__ = ["audit", "counts", "get", "history", "peek", "standing", "stats"]

STATES = frozenset(State)

decode_entry = msgspec.json.Decoder(HistoryEntry).decode
decode_audit = msgspec.json.Decoder(AuditEntry).decode
decode_minute = msgspec.json.Decoder(Minute).decode
COUNTERS = frozenset(Counter)
TRIES = 10


def get(snapshot: Snapshot, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]:
    snapshot.refresh()
    rows = snapshot.find_rows(list(ids))
    return [snapshot.decoded(rows[task_id]) if task_id in rows else None for task_id in ids]


def history(snapshot: Snapshot, task_id: str) -> list[HistoryEntry]:
    found = snapshot.documents(f"history entry of task {task_id} number", decode_entry, "history", task_id)
    return [entry for _, entry in found]


def peek(snapshot: Snapshot, queue_name: str, limit: int, until: str | None) -> Peeked:
    snapshot.refresh()
    queue = snapshot.catalog.queues.get(queue_name)
    position = None if until is None else position_of(snapshot, queue_name, until)
    return Peeked([] if queue is None or limit == 0 else next_tasks(snapshot, queue, limit), position)


def next_tasks(snapshot: Snapshot, queue: Queue, limit: int) -> list[TaskRecord]:
    records: list[TaskRecord] = []
    for _ in range(TRIES):
        ids = [head.id for head in islice(in_claim_order(snapshot, queue, limit), limit)]
        rows = snapshot.find_rows(ids)
        records = snapshot.records(rows[task_id] for task_id in ids)
        if len(records) == len(ids):
            break  # otherwise some of them were just set aside, and others take their place
    return records


def position_of(snapshot: Snapshot, queue_name: str, task_id: str) -> Position | None:
    row = snapshot.find_rows([task_id]).get(task_id)
    record = None if row is None else snapshot.decoded(row)
    if not isinstance(record, TaskRecord) or record.state is not State.PENDING or record.queue != queue_name:
        return None
    queue = snapshot.catalog.queues.get(queue_name) or Queue(queue_name)
    for ahead, head in enumerate(islice(in_claim_order(snapshot, queue, COUNT_LIMIT), COUNT_LIMIT)):
        if head.id == task_id:
            return Position(ahead)
    return Position(COUNT_LIMIT, more=True)


def counts(snapshot: Snapshot) -> Counts:
    snapshot.refresh()
    tasks = {name: dict.fromkeys(State, 0) for name in snapshot.catalog.queues}
    counters: dict[str, dict[Counter, int]] = {}
    for what, whose, n in snapshot.all_counts():
        if what in STATES:
            queue = snapshot.catalog.tracks[int(whose)].queue
            tasks.setdefault(queue, dict.fromkeys(State, 0))[State(what)] += n
        elif what in COUNTERS:
            counters.setdefault(str(whose), {})[Counter(what)] = n
    return Counts(dict(sorted(tasks.items())), dict(sorted(counters.items())))


def stats(snapshot: Snapshot, queue: str | None, since: int, until: int) -> list[Minute]:
    found = snapshot.documents("figures of minute", decode_minute, "minutes", since, until, queue)
    return [minute for _, minute in found]


def audit(snapshot: Snapshot, limit: int) -> list[AuditEntry]:
    return [entry for _, entry in snapshot.documents("audit entry", decode_audit, "audit", limit)]


def standing(snapshot: Snapshot, queue: str, tasks: Sequence[str], most_tenants: int) -> Standing:
    snapshot.refresh()
    limits = [limits_of(snapshot, queue, task_id) for task_id in tasks]
    return Standing(limits, tenants(snapshot, queue, most_tenants) if most_tenants else [])
