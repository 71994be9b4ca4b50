"""Looking without changing anything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from dibs.core.states import State
from dibs.core.task import HistoryEntry, TaskRecord
from dibs.engines.sqlite.catalog import Queue
from dibs.engines.sqlite.ordering import in_claim_order
from dibs.engines.sqlite.transaction import Snapshot
from dibs.engines.values import COUNT_LIMIT, AuditEntry, Counter, Minute, Position

__all__ = ["audit", "counters", "counts", "get", "history", "identity", "peek", "position", "stats"]

STATES = frozenset(State)

texts_decoder = msgspec.json.Decoder(list[str])
entry_decoder = msgspec.json.Decoder(HistoryEntry)
audit_decoder = msgspec.json.Decoder(AuditEntry)
minute_decoder = msgspec.json.Decoder(Minute)


def identity(snapshot: Snapshot) -> str:
    made: str = snapshot.value("identity")
    return made


def get(snapshot: Snapshot, ids: Sequence[str]) -> list[TaskRecord | None]:
    snapshot.refresh()
    rows = snapshot.find(list(ids))
    return [snapshot.record(rows[task_id]) if task_id in rows else None for task_id in ids]


def history(snapshot: Snapshot, task_id: str) -> list[HistoryEntry]:
    return [entry_decoder.decode(entry) for entry in texts_decoder.decode(snapshot.value("history", task_id))]


def peek(snapshot: Snapshot, queue_name: str, limit: int) -> list[TaskRecord]:
    snapshot.refresh()
    queue = snapshot.catalog.queues.get(queue_name)
    if queue is None:
        return []
    ids = [head.id for head in islice(in_claim_order(snapshot, queue, limit), limit)]
    rows = snapshot.find(ids)
    return [snapshot.record(rows[task_id]) for task_id in ids]


def position(snapshot: Snapshot, task_id: str) -> Position | None:
    snapshot.refresh()
    row = snapshot.find([task_id]).get(task_id)
    if row is None or row.state is not State.PENDING:
        return None
    name = snapshot.catalog.streams[row.stream].queue
    queue = snapshot.catalog.queues.get(name) or Queue(name)
    for ahead, head in enumerate(islice(in_claim_order(snapshot, queue, COUNT_LIMIT), COUNT_LIMIT)):
        if head.id == task_id:
            return Position(ahead)
    return Position(COUNT_LIMIT, more=True)


def counts(snapshot: Snapshot) -> dict[str, dict[State, int]]:
    snapshot.refresh()
    found = {name: dict.fromkeys(State, 0) for name in snapshot.catalog.queues}
    for what, whose, n in snapshot.tallies():
        if what in STATES:
            queue = snapshot.catalog.streams[int(whose)].queue
            found.setdefault(queue, dict.fromkeys(State, 0))[State(what)] += n
    return dict(sorted(found.items()))


def counters(snapshot: Snapshot) -> dict[str, dict[Counter, int]]:
    found: dict[str, dict[Counter, int]] = {}
    for what, whose, n in snapshot.tallies():
        if what not in STATES:
            found.setdefault(str(whose), {})[Counter(what)] = n
    return dict(sorted(found.items()))


def stats(snapshot: Snapshot, queue: str | None, since: int, until: int) -> list[Minute]:
    minutes = texts_decoder.decode(snapshot.value("minutes", since, until, queue))
    return [minute_decoder.decode(minute) for minute in minutes]


def audit(snapshot: Snapshot, limit: int) -> list[AuditEntry]:
    return [audit_decoder.decode(entry) for entry in texts_decoder.decode(snapshot.value("audit", limit))]
