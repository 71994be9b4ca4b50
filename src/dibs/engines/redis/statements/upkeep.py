"""Queues, leadership, chores, the audit log, workers, schedules and steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dibs.core.times import Duration, Instant
from dibs.engines.redis.statements.names import ALL, is_by, read, text, write
from dibs.engines.redis.tables import Index, Row, Table

if TYPE_CHECKING:
    from dibs.engines.redis.snapshot import Snapshot
    from dibs.engines.redis.transaction import Transaction

__all__ = ["QUEUES", "TRACKS"]

# Queues, leadership, chores, the audit log.

QUEUES = Table("queues")  # name, state, settings, epoch
TRACKS = Table("tracks")  # number, queue, name, requires, lane, epoch, fair, band
TERM = Table("term")  # "term", number, worker, expires_at
CHORES = Table("chores")  # name, record, cursor
AUDIT_ORDER = Index("audit_order", "i", lambda row: row[:1])
AUDIT = Table("audit", 1, (AUDIT_ORDER,))  # n, at, entry


@read
async def identity(view: Snapshot) -> list[str]:
    return [text(value) for value in await view.draft.values(view.keys("store"), ["identity"]) if value is not None]


@write
async def next_generation(port: Transaction) -> int:
    port.next_generation()
    return 1


@read
async def term(view: Snapshot) -> list[Row]:
    return [row[1:] for row in await view.tables.one(TERM, "term", guard=True)]


@write
async def lead(port: Transaction, worker: str, now: Instant, span: Duration) -> int:
    number, leader, expires_at = 0, "", 0
    for row in await port.tables.one(TERM, "term"):
        _, number, leader, expires_at = row
    is_held = expires_at > now
    if is_held and leader != worker:
        return 0
    number += not (is_held and leader == worker)
    port.tables.replace(TERM, None, ("term", number, worker, now + span))
    return 1


async def end_terms(port: Transaction, ends: Callable[[int, str], bool]) -> int:
    for _, number, worker, _ in await port.tables.one(TERM, "term"):
        if ends(number, worker):
            port.tables.replace(TERM, None, ("term", number, "", 0))
            return 1
    return 0


@write
async def resign(port: Transaction, number: int) -> int:
    return await end_terms(port, lambda current, _: current == number)


@write
async def end_term(port: Transaction, workers: list[str]) -> int:
    return await end_terms(port, lambda _, leader: leader in workers)


@read
async def chore(view: Snapshot, name: str) -> list[Row]:
    return await view.tables.one(CHORES, name)


@read
async def chores(view: Snapshot) -> list[Row]:
    return [row[:2] for row in await view.tables.all(CHORES)]


@write
async def save_chore(port: Transaction, *row: Any) -> int:
    await port.tables.put(CHORES, [row])
    return 1


@read
async def audit(view: Snapshot, before: int | None, most: int) -> list[Row]:
    after = None if before is None else (before,)
    found = await view.tables.index(AUDIT_ORDER, after=after, most=most, downwards=True)
    return [(row[0], row[-1]) for row in await view.tables.some(AUDIT, found)]


@write
async def add_audit(port: Transaction, at: Instant, entry: str) -> int:
    port.tables.replace(AUDIT, None, (await port.next_number("audit"), at, entry))
    return 1


@write
async def prune_audit(port: Transaction, until: Instant, most: int) -> int:
    found = await port.tables.some(AUDIT, await port.tables.index(AUDIT_ORDER, most=most))
    return await port.tables.delete(AUDIT, [row for row in found if row[1] <= until])


# Workers and what they did.

WORKERS = Table("workers")  # id, state, expires_at, presence, record
MINUTE_ORDER = Index("minute_order", "isss", lambda row: row[:4], (0, 1, 2, 3))
MINUTES = Table("minutes", 4, (MINUTE_ORDER,))  # minute, worker, queue, tier, record


@read
async def worker(view: Snapshot, worker_id: str) -> list[Row]:
    return [(row[0], row[1], row[-1]) for row in await view.tables.one(WORKERS, worker_id)]


@read
async def workers(view: Snapshot) -> list[Row]:
    return [(row[0], row[1], row[-1]) for row in await view.tables.all(WORKERS)]


@read
async def present_workers(view: Snapshot) -> list[Row]:
    """The workers whose processes should be present, and at which server."""
    found = await view.tables.all(WORKERS)
    return [(row[0], row[3]) for row in found if len(row) == 5 and row[1] != "dead" and row[3] is not None]


@write
async def save_worker(port: Transaction, *row: Any) -> int:
    worker_id, state, expires_at, presence, record = row
    for old in await port.tables.one(WORKERS, worker_id):
        presence = old[3] if presence is None and len(old) == 5 else presence
    await port.tables.put(WORKERS, [(worker_id, state, expires_at, presence, record)])
    return 1


@write
async def set_worker_state(port: Transaction, state: str, worker_id: str) -> int:
    return await change_workers(port, [worker_id], lambda row: (row[0], state, *row[2:]))


@write
async def bury_workers(port: Transaction, ids: list[str]) -> int:
    return await change_workers(port, ids, lambda row: (row[0], "dead", row[2], None, *row[4:]))


async def change_workers(port: Transaction, ids: list[str], change: Callable[[Row], Row]) -> int:
    found = await port.tables.some(WORKERS, [(each,) for each in ids])
    await port.tables.put(WORKERS, [change(row) for row in found])
    return len(found)


@write
async def delete_worker(port: Transaction, worker_id: str) -> int:
    return await port.tables.delete(WORKERS, [(worker_id,)])


@read
async def expired_workers(view: Snapshot, until: Instant, absent: list[str]) -> list[str]:
    found = [row for row in await view.tables.all(WORKERS) if len(row) == 5 and row[1] != "dead"]
    return [row[0] for row in found if is_by(row[2], until) or row[0] in absent]


@write
async def prune_workers(port: Transaction, until: Instant, most: int) -> int:
    found = [row for row in await port.tables.all(WORKERS) if len(row) == 5 and row[1] == "dead"]
    return await port.tables.delete(WORKERS, [row for row in found if is_by(row[2], until)][:most])


@read
async def minutes(view: Snapshot, first: int, last: int, queue: str | None) -> list[Row]:
    found = await view.tables.index(MINUTE_ORDER, since=(first,), until=(last,), most=ALL)
    kept = [row for row in found if queue is None or row[2] == queue]
    return [(row[0], row[-1]) for row in await view.tables.some(MINUTES, kept)]


@write
async def save_minutes(port: Transaction, found: list[Row]) -> int:
    await port.tables.put(MINUTES, found)
    return len(found)


@write
async def prune_stats(port: Transaction, first: int, most: int) -> int:
    return await port.tables.delete(MINUTES, await port.tables.index(MINUTE_ORDER, until=(first - 1,), most=most))


# Schedules.

FIRES = Index("fires", "is", lambda row: None if row[2] else (row[1], row[0]), (1,))
SCHEDULES = Table("schedules", 1, (FIRES,))  # name, next_fire_at, paused, record


@read
async def schedule(view: Snapshot, name: str) -> list[Row]:
    return [(row[0], row[-1]) for row in await view.tables.one(SCHEDULES, name)]


@read
async def schedules(view: Snapshot) -> list[Row]:
    return [(row[0], row[-1]) for row in await view.tables.all(SCHEDULES)]


@write
async def save_schedule(port: Transaction, *row: Any) -> int:
    await port.tables.put(SCHEDULES, [row])
    return 1


@write
async def delete_schedule(port: Transaction, name: str) -> int:
    return await port.tables.delete(SCHEDULES, [(name,)])


@read
async def schedules_due(view: Snapshot, now: Instant, most: int, passed: list[str]) -> list[Row]:
    found = await view.tables.index(FIRES, until=(now,), most=most + len(passed))
    kept = [row for row in found if row[1] not in passed][:most]
    return [(row[0], row[-1]) for row in await view.tables.rows(SCHEDULES, FIRES, kept)]


@read
async def next_fire(view: Snapshot, passed: list[str]) -> list[int]:
    found = await view.tables.index(FIRES, most=len(passed) + 1)
    return [row[0] for row in found if row[1] not in passed][:1]


# Steps.

STEP_ORDER = Index("step_order", "i", lambda row: row[:1])
PROMPT_STEPS = Index("prompt_steps", "i", lambda row: row[:1] if row[1] is None else None)
OPEN_STEPS = Index("open_steps", "i", lambda row: row[:1] if row[1] is not None and row[2] is None else None)
STEP_IDS = Index("step_ids", "si", lambda row: None if row[1] is None else (row[1], row[0]), (1,))
STEPS = Table("steps", 1, (STEP_ORDER, PROMPT_STEPS, OPEN_STEPS, STEP_IDS))  # n, id, ended_at, step


async def steps_in(view: Snapshot, index: Index, entries: list[Row]) -> list[Row]:
    return [(row[0], row[-1]) for row in await view.tables.rows(STEPS, index, entries)]


async def first_in(view: Snapshot, index: Index, most: int, passed: list[int]) -> list[Row]:
    found = await view.tables.index(index, most=most + len(passed))
    return await steps_in(view, index, [row for row in found if row[0] not in passed][:most])


@read
async def prompt_steps(view: Snapshot, most: int, passed: list[int]) -> list[Row]:
    return await first_in(view, PROMPT_STEPS, most, passed)


@read
async def open_steps(view: Snapshot, most: int, passed: list[int]) -> list[Row]:
    return await first_in(view, OPEN_STEPS, most, passed)


@read
async def first_steps(view: Snapshot, most: int) -> list[Row]:
    return await first_in(view, STEP_ORDER, most, [])


@read
async def step(view: Snapshot, step_id: str) -> list[Row]:
    return await steps_in(view, STEP_IDS, await view.tables.index(STEP_IDS, (step_id,), most=1, guard=True))


@read
async def step_to_change(view: Snapshot, step_id: str) -> list[Row]:
    return await step(view, step_id)


@read
async def newest_steps(view: Snapshot, before: str | None, most: int) -> list[Row]:
    after = None if before is None else (before,)
    return await steps_in(view, STEP_IDS, await view.tables.index(STEP_IDS, after=after, most=most, downwards=True))


@write
async def add_steps(port: Transaction, found: list[str]) -> int:
    last = await port.next_number("step", len(found))
    for n, each in enumerate(found, last - len(found) + 1):
        port.tables.replace(STEPS, None, (n, None, None, each))
    return len(found)


@write
async def save_steps(port: Transaction, found: list[Row]) -> int:
    await port.tables.put(STEPS, [(n, None, None, each) for n, each in found])
    return len(found)


@write
async def delete_steps(port: Transaction, numbers: list[int]) -> int:
    return await port.tables.delete(STEPS, [(n,) for n in numbers])


@write
async def add_step(port: Transaction, step_id: str, content: str) -> int:
    if await port.tables.index(STEP_IDS, (step_id,), most=1, guard=True):
        return 0
    port.tables.replace(STEPS, None, (await port.next_number("step"), step_id, None, content))
    return 1


@write
async def save_step(port: Transaction, n: int, ended_at: Instant | None, content: str) -> int:
    found = await port.tables.one(STEPS, n)
    await port.tables.put(STEPS, [(n, row[1], ended_at, content) for row in found])
    return len(found)


@write
async def prune_steps(port: Transaction, until: Instant, most: int) -> int:
    oldest = await port.tables.index(STEP_IDS, most=most)
    found = await port.tables.rows(STEPS, STEP_IDS, oldest)
    return await port.tables.delete(STEPS, [row for row in found if row[2] is not None and is_by(row[2], until)])
