"""Workers: their heartbeats, and marking those that are dead."""

from __future__ import annotations

from datetime import datetime

from dibs.core.task import WorkerState
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.workers import beaten, worker_from
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.unreadable import readable
from dibs.engines.values import Beat, Changed, WorkerRecord, worker_topic

__all__ = ["beat", "leave", "set_worker_state", "workers"]


async def workers(snapshot: Snapshot) -> list[WorkerRecord]:
    stored = [(row["id"], (row["state"], row["record"])) for row in await snapshot.rows("workers")]
    return [record for _, record in readable(snapshot.aside, "worker", stored, worker_from)]


async def beat(transaction: Transaction, sign: Beat, held_at: datetime | None = None) -> WorkerState:
    """`held_at`: since when sessions last at the server where the worker's process holds its lock, if it does."""
    stored = await transaction.row("worker", sign.id)
    record = beaten(sign, None if stored is None else (stored["state"], stored["record"]), transaction.now)
    await transaction.write("save_worker", sign.id, record.state, record.expires_at, encode(record), held_at)
    if sign.minutes:
        minutes = {(m.minute, m.worker, m.queue, m.tier): encode(m) for m in sign.minutes}
        await transaction.write("save_minutes", *columns([(*key, record) for key, record in minutes.items()], 5))
    return record.state


async def leave(transaction: Transaction, worker: str) -> None:
    await transaction.write("delete_worker", worker)


async def set_worker_state(transaction: Transaction, worker: str, state: WorkerState, actor: str) -> Changed:
    stored = await transaction.row("worker", worker)
    if stored is None:
        return Changed.UNKNOWN
    if WorkerState.DEAD in (stored["state"], state):
        return Changed.WRONG_STATE
    if stored["state"] == state:
        return Changed.UNCHANGED
    await transaction.write("set_worker_state", state, worker)
    await transaction.remember(actor, f"set worker {state}", worker)
    transaction.topics.add(worker_topic(worker))
    return Changed.DONE
