"""Workers: their heartbeats and states, and marking those that are dead."""

from __future__ import annotations

from collections.abc import Collection

from dibs.core.task import WorkerState
from dibs.core.times import Instant
from dibs.engines.decisions.events import WORKER_EVENTS
from dibs.engines.decisions.workers import beaten, worker_from
from dibs.engines.port import Port, Read, View
from dibs.engines.topics import worker_topic
from dibs.engines.unreadable import readable
from dibs.engines.values import Beat, Changed, WorkerRecord
from dibs.engines.verbs.audit import audit
from dibs.observe.events import EventType

__all__ = ["beat", "bury", "leave", "set_worker_state", "workers"]

WORKERS = Read("workers", tuple[str, object, object], "worker")
"""Takes nothing: all workers by id, as (id, state, record)."""
WORKER = Read("worker", tuple[str, object, object], "worker")
"""Takes an id: that worker, if it exists."""
EXPIRED_WORKERS = Read("expired_workers", str, "worker")
"""Takes an instant and ids: workers that are not dead, whose record has expired by then or that are among these."""


async def workers(view: View) -> list[WorkerRecord]:
    stored = [(worker, (state, record)) for worker, state, record in await view.read(WORKERS)]
    return [record for _, record in readable(view.aside, "worker", stored, worker_from)]


async def beat(port: Port, sign: Beat, presence: object) -> WorkerState:
    """`presence`: where the worker's process shows that it lives, in the terms of the store."""
    stored = [(state, record) for _, state, record in await port.read(WORKER, sign.id)]
    record = beaten(sign, stored[0] if stored else None, port.now)
    if not stored or stored[0][0] == WorkerState.DEAD:
        port.emit(EventType.WORKER_JOINED, worker=sign.id, queues=sign.queues, concurrency=sign.concurrency)
    await port.write("save_worker", sign.id, record.state, record.expires_at, presence, record)
    if sign.minutes:
        minutes = {(each.minute, each.worker, each.queue, each.tier): each for each in sign.minutes}
        await port.write("save_minutes", [(*key, each) for key, each in minutes.items()])
    return record.state


async def leave(port: Port, worker: str) -> None:
    if await port.write("delete_worker", worker):
        port.emit(EventType.WORKER_LEFT, worker=worker)


async def set_worker_state(port: Port, worker: str, state: WorkerState, actor: str) -> Changed:
    stored = [before for _, before, _ in await port.read(WORKER, worker)]
    if not stored:
        return Changed.UNKNOWN
    if WorkerState.DEAD in (*stored, state):
        return Changed.WRONG_STATE
    if state in stored:
        return Changed.UNCHANGED
    await port.write("set_worker_state", state, worker)
    await audit(port, actor, f"set worker {state}", worker, before={"state": stored[0]}, after={"state": state})
    port.emit(WORKER_EVENTS[state], worker=worker, actor=actor)
    port.topics.add(worker_topic(worker))
    return Changed.DONE


async def bury(port: Port, absent: Collection[str], until: Instant) -> list[str]:
    """Mark workers dead that are absent, or whose record has expired by then. The term of a dead leader ends."""
    dead = await port.read(EXPIRED_WORKERS, until, list(absent))
    if dead:
        await port.write("bury_workers", dead)
        await port.write("end_term", dead)
        for worker in dead:
            port.emit(EventType.WORKER_DEAD, worker=worker)
    return dead
