"""Workers: their heartbeats, and marking those that are dead."""

from __future__ import annotations

import os

from msgspec import Struct

from dibs.core.task import WorkerState
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.workers import beaten, worker_from
from dibs.engines.sqlite.presence import Presence
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.unreadable import readable
from dibs.engines.values import Beat, Changed, WorkerRecord, worker_topic

__all__ = ["StoredWorker", "beat", "leave", "set_worker_state", "stored_workers", "workers"]


class StoredWorker(Struct, array_like=True):
    """A row of dibs_workers."""

    id: str
    state: object
    presence: int | None
    record: object


WORKERS = RowDecoder(StoredWorker, "worker")


def stored_workers(snapshot: Snapshot) -> list[StoredWorker]:
    return snapshot.many(WORKERS, "workers")


def workers(snapshot: Snapshot) -> list[WorkerRecord]:
    stored = [(worker.id, (worker.state, worker.record)) for worker in stored_workers(snapshot)]
    return [record for _, record in readable(snapshot.aside, "worker", stored, worker_from)]


def find(snapshot: Snapshot, worker: str) -> StoredWorker | None:
    found = snapshot.many(WORKERS, "worker", worker)
    return found[0] if found else None


def presence_of(transaction: Transaction, sign: Beat, presence: Presence) -> int | None:
    """The byte that a worker's process holds, taken at its first beat. Beats for other processes hold none."""
    if sign.id not in presence.held and sign.pid == os.getpid():
        presence.take(sign.id, transaction.value("new_presence"))
    return presence.held.get(sign.id)


def beat(transaction: Transaction, sign: Beat, presence: Presence) -> WorkerState:
    stored = find(transaction, sign.id)
    now = transaction.now
    record = beaten(sign, None if stored is None else (stored.state, stored.record), now)
    byte = presence_of(transaction, sign, presence)
    transaction.run("save_worker", sign.id, record.state, record.expires_at, byte, to_json(record))
    if sign.minutes:
        minutes = [(m.minute, m.worker, m.queue, m.tier, to_json(m)) for m in sign.minutes]
        transaction.run("save_minutes", to_json(minutes))
    return record.state


def leave(transaction: Transaction, worker: str) -> None:
    transaction.run("delete_worker", worker)


def set_worker_state(transaction: Transaction, worker: str, state: WorkerState, actor: str) -> Changed:
    stored = find(transaction, worker)
    if stored is None:
        return Changed.UNKNOWN
    if WorkerState.DEAD in (stored.state, state):
        return Changed.WRONG_STATE
    if stored.state == state:
        return Changed.UNCHANGED
    transaction.run("set_worker_state", state, worker)
    transaction.remember(actor, f"set worker {state}", worker)
    transaction.topics.add(worker_topic(worker))
    return Changed.DONE
