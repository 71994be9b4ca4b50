"""What verbs read and write by name, on tables and ordered sets: one function for each name of the port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.core.states import State
from dibs.core.times import Duration, Instant
from dibs.engines.decisions.blocks import Pair
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Place
from dibs.engines.redis import codec, rows
from dibs.engines.redis.draft import LAST, START, pairs
from dibs.engines.redis.tables import Index, Row, Table
from dibs.engines.unreadable import UNREADABLE

if TYPE_CHECKING:
    from dibs.engines.redis.transaction import Snapshot, Transaction

__all__ = ["CURSORS", "QUEUES", "READS", "TRACKS", "WATCHES", "WRITES"]

Reading = Callable[..., Awaitable[list[Any]]]
Writing = Callable[..., Awaitable[int]]
READS: dict[str, Reading] = {}
WRITES: dict[str, Writing] = {}

ALL = 1_000_000
"""For what is bounded by what is asked."""
PAGE = 500


def read(function: Reading) -> Reading:
    READS[function.__name__] = function
    return function


def write(function: Writing) -> Writing:
    WRITES[function.__name__] = function
    return function


def same(row: Row) -> Row:
    return row


# Queues, leadership, chores, the audit log.

QUEUES = Table("queues")  # name, state, settings, epoch
CLOCKS = Table("clocks")  # queue, virtual time
CURSORS = Table("rerank_cursors")  # queue, due_at, id
TRACKS = Table("tracks")  # number, queue, name, requires, lane, epoch, fair, band
WATCHES = Table("watches")  # subscriber, until, watch
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


def is_by(instant: object, until: Instant) -> bool:
    return isinstance(instant, int) and instant <= until


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


# Idempotency keys.

KEYS_HELD = Index("keys_held", "iss", lambda row: (row[4], row[0], row[1]), (1, 2))
KEYS = Table("keys", 2, (KEYS_HELD,))  # queue, key, task, fingerprint, held_until


@read
async def keys(view: Snapshot, asked: list[Row]) -> list[Row]:
    return [row for row in await view.tables.get(KEYS, asked, guard=True) if row is not None]


@write
async def save_keys(port: Transaction, found: list[Row]) -> int:
    await port.tables.put(KEYS, found)
    return len(found)


@write
async def delete_keys(port: Transaction, found: list[Row]) -> int:
    return await port.tables.delete(KEYS, found)


@write
async def purge_keys(port: Transaction, found: list[Row]) -> int:
    wanted = {(queue, key): task for queue, key, task in found}
    held = await port.tables.some(KEYS, list(wanted))
    return await port.tables.delete(KEYS, [row for row in held if wanted[row[0], row[1]] == row[2]])


@write
async def purge_keys_of(port: Transaction, task_id: str) -> int:
    """Reads all keys; only for a task whose own key can't be read."""
    deleted, last = 0, None
    while found := await port.tables.index(KEYS_HELD, after=last, most=PAGE):
        held = await port.tables.rows(KEYS, KEYS_HELD, found)
        deleted += await port.tables.delete(KEYS, [row for row in held if row[2] == task_id])
        last = found[-1]
    return deleted


@read
async def ended_keys(view: Snapshot, now: Instant, held_until: int, queue: str, key: str, most: int) -> list[Row]:
    found = await view.tables.index(KEYS_HELD, after=(held_until, queue, key), until=(now,), most=most)
    held = {(row[0], row[1]): row[2] for row in await view.tables.rows(KEYS, KEYS_HELD, found)}
    tasks = [held.get((row[1], row[2]), "") for row in found]
    unfinished = await view.draft.values(view.keys("tasks"), [str(each) for each in tasks])
    return [(*row, value is None) for row, value in zip(found, unfinished, strict=True)]


# Token buckets.

BUCKET_ORDER = Index("bucket_order", "sss", lambda row: row[:3], (0, 1, 2))
REFILLS = Index("refills", "siss", lambda row: None if row[5] is None else (row[0], row[5], row[2], row[1]), (0, 3, 2))
BUCKETS = Table("buckets", 3, (BUCKET_ORDER, REFILLS))  # queue, scope, whose, level, at, refill_at


@read
async def buckets(view: Snapshot, asked: list[Row]) -> list[Row]:
    return [row[:5] for row in await view.tables.some(BUCKETS, asked)]


@read
async def client_buckets(view: Snapshot, asked: list[Row]) -> list[Row]:
    found = await view.tables.some(BUCKETS, [(queue, "client", client) for queue, client in asked])
    return [(row[0], *row[2:5]) for row in found]


@read
async def buckets_after(view: Snapshot, *asked: Any) -> list[Row]:
    found = await view.tables.index(BUCKET_ORDER, after=asked[:3], most=asked[3])
    return await view.tables.some(BUCKETS, found)


@write
async def save_buckets(port: Transaction, found: list[Row]) -> int:
    await port.tables.put(BUCKETS, found)
    return len(found)


@write
async def delete_buckets(port: Transaction, found: list[Row]) -> int:
    return await port.tables.delete(BUCKETS, found)


@write
async def forget_buckets(port: Transaction, queue: str, most: int) -> int:
    return await port.tables.delete(BUCKETS, await port.tables.index(BUCKET_ORDER, (queue,), most=most))


@read
async def refills(view: Snapshot, queue: str, most: int) -> list[Row]:
    found = await view.tables.rows(BUCKETS, REFILLS, await view.tables.index(REFILLS, (queue,), most=most))
    keys = [Partition(queue, row[2]).key for row in found]
    pending = await view.tables.indexes(PARTITIONS, [((key, State.PENDING), None) for key in keys], most=1)
    return [(row[2], row[3], row[4], bool(each)) for row, each in zip(found, pending, strict=True)]


@read
async def refills_due(view: Snapshot, queue: str, now: Instant, most: int) -> list[str]:
    found = await view.tables.index(REFILLS, (queue,), until=(queue, now), most=most)
    return [row[2] for row in found]


@write
async def save_refills(port: Transaction, found: list[Row]) -> int:
    asked = [(queue, "partition", whose) for queue, whose, *_ in found]
    for new, old in zip(found, await port.tables.get(BUCKETS, asked), strict=True):
        queue, whose, level, at, refill_at = new
        kept = (level, at) if old is None else old[3:5]
        port.tables.replace(BUCKETS, old, (queue, "partition", whose, *kept, refill_at))
    return len(found)


@write
async def forget_refills(port: Transaction, queue: str, partitions: list[str]) -> int:
    found = await port.tables.some(BUCKETS, [(queue, "partition", each) for each in partitions])
    await port.tables.put(BUCKETS, [(*row[:5], None) for row in found])
    return len(found)


# Partitions.

PARTITIONS = Index("partitions", rows.PARTITIONS, same, (5,))  # key, state, track, share, rank, id, ready_at


@read
async def partitions(view: Snapshot, queue: str, after: str, most: int) -> list[str]:
    found: list[str] = []
    key, last = view.keys(PARTITIONS.name), codec.up_to(codec.text_of(f"{queue} ").encode()[:-1])
    low = b"(" + codec.text_of(after).encode() + codec.END
    while len(found) < most and (members := await view.draft.range(key, low, last, 1)):
        found.append(codec.decode("s", members[0])[0])
        low = b"(" + codec.text_of(found[-1]).encode() + codec.END
    return found


@read
async def partitions_of(view: Snapshot, ids: list[str]) -> list[str]:
    found = view.records((await view.find_tasks(ids)).values())
    keys = {rows.partition_of(record) for record in found if record.state is State.PENDING}
    return sorted(key for key in keys if key is not None)


async def running_in(view: Snapshot, keys: Sequence[str]) -> list[int]:
    """How many tasks of each of some partitions run."""
    found = await view.tables.indexes(PARTITIONS, [((key, State.RUNNING), None) for key in keys], most=ALL)
    return [len(each) for each in found]


@read
async def partition_loads(view: Snapshot, keys: list[str], queue: str) -> list[Row]:
    asked = [(queue, "partition", key[len(queue) + 1 :]) for key in keys]
    found = await view.tables.get(BUCKETS, asked)
    loads = zip(keys, await running_in(view, keys), found, strict=True)
    return [(key, n, *((None, None) if row is None else row[3:5])) for key, n, row in loads]


@read
async def gated_heads(view: Snapshot, keys: list[str], most: int | None, passed: list[str]) -> list[Row]:
    """Round by round, the next track and share of each partition."""
    free = [key for key, n in zip(keys, await running_in(view, keys), strict=True) if most is None or n < most]
    asked: list[tuple[Sequence[Any], Sequence[Any] | None]] = [((key, State.PENDING), None) for key in free]
    heads: list[Row] = []
    while asked:
        found = await view.tables.indexes(PARTITIONS, asked, most=1 + len(passed))
        following: list[tuple[Sequence[Any], Sequence[Any] | None]] = []
        for (prefix, _), entries in zip(asked, found, strict=True):
            kept = [each for each in entries if each[5] not in passed]
            if kept:
                heads.append(kept[0])
            if entries:
                last = (kept or entries)[0] if kept else entries[-1]
                following.append((prefix, (*last[:3], last[3], 2**53) if kept else last))
        asked = following
    tasks = await view.find_tasks([head[5] for head in heads])
    return [(head[5], head[2], head[3]) for head in heads if head[5] in tasks and rows.is_gated(tasks[head[5]])]


@read
async def gated_of(view: Snapshot, tracks: list[int], most: int) -> list[Row]:
    found: list[Row] = []
    for track in tracks:
        if len(found) < most:
            members = await view.draft.range(view.keys.pending(track), b"[1", LAST, most - len(found))
            entries = [rows.pending_entry(member) for member in members]
            found += [(each.id, track, each.share) for each in entries]
    return found


@write
async def gate(port: Transaction, ids: list[str]) -> int:
    return await port.set_gates(ids, True)


@write
async def ungate(port: Transaction, ids: list[str], guarded: bool) -> int:
    return await port.set_gates(ids, False)


# Fair shares.

SHARE_NAMES = Index("share_names", "ss", lambda row: row[:2], (0, 1))
SHARE_ORDER = Index("share_order", "sis", lambda row: (row[0], row[2], row[1]) if row[3] > 0 else None, (0, 2))
SHARES = Table("shares", 2, (SHARE_NAMES, SHARE_ORDER))  # queue, share, virtual time, pending
TURN_ORDER = Index("turn_order", "iis", lambda row: (row[0], row[2], row[1]), (0, 2))
TURNS = Table("turns", 2, (TURN_ORDER,))  # track, share, virtual time


@read
async def tenants(view: Snapshot, queue: str, clock: int, most: int) -> list[Row]:
    passed = await view.tables.index(SHARE_ORDER, (queue,), until=(queue, clock), most=10 * PAGE)
    later = await view.tables.index(SHARE_ORDER, (queue,), since=(queue, clock + 1), most=most)
    first = sorted(passed, key=lambda row: row[2])[:most]
    found = await view.tables.rows(SHARES, SHARE_ORDER, [*first, *later][:most])
    return [row[1:] for row in found]


@read
async def shares_after(view: Snapshot, queue: str, share: str, most: int) -> list[Row]:
    found = await view.tables.some(SHARES, await view.tables.index(SHARE_NAMES, after=(queue, share), most=most))
    clocks = {row[0]: row[1] for row in await view.tables.all(CLOCKS)}
    return [(*row[:2], row[3] == 0 and row[2] <= clocks.get(row[0], row[2])) for row in found]


@write
async def save_shares(port: Transaction, found: list[Row]) -> int:
    for new, old in zip(found, await port.tables.get(SHARES, found), strict=True):
        queue, share, virtual_time, change = new
        before = (-1, 0) if old is None else old[2:4]
        now = before[0] if virtual_time < 0 else virtual_time
        port.tables.replace(SHARES, old, (queue, share, now, before[1] + change))
    return len(found)


@write
async def delete_shares(port: Transaction, found: list[Row]) -> int:
    return await port.tables.delete(SHARES, found)


@write
async def forget_shares(port: Transaction, queue: str, most: int) -> int:
    return await port.tables.delete(SHARES, await port.tables.index(SHARE_NAMES, (queue,), most=most))


@write
async def save_clock(port: Transaction, queue: str, clock: int) -> int:
    await port.tables.put(CLOCKS, [(queue, clock)])
    return 1


@write
async def add_turns(port: Transaction, found: list[Row]) -> int:
    shares = await port.tables.get(SHARES, [(queue, share) for _, share, queue in found])
    clocks = dict(await port.tables.all(CLOCKS))
    for (track, share, queue), row in zip(found, shares, strict=True):
        virtual_time = -1 if row is None else row[2]
        await port.tables.put(TURNS, [(track, share, virtual_time if virtual_time > clocks.get(queue, 0) else 0)])
    return len(found)


@write
async def save_turns(port: Transaction, found: list[Row]) -> int:
    there = await port.tables.get(TURNS, found)
    await port.tables.put(TURNS, [new for new, old in zip(found, there, strict=True) if old is not None])
    return len(found)


@write
async def delete_turns(port: Transaction, track: int, shares: list[str]) -> int:
    return await port.tables.delete(TURNS, [(track, share) for share in shares])


@write
async def forget_turns(port: Transaction, track: int, most: int) -> int:
    found = await port.tables.index(TURN_ORDER, (track,), most=most)
    return await port.tables.delete(TURNS, [(row[0], row[2]) for row in found])


async def first_turns(port: Transaction, track: int, clock: int, most: int) -> list[Row]:
    """The first turns of a track; those that the clock has passed go by name."""
    while passed := await port.tables.index(TURN_ORDER, (track,), since=(track, 1), until=(track, clock), most=PAGE):
        await port.tables.put(TURNS, [(row[0], row[2], 0) for row in passed])
    return [row[1:] for row in await port.tables.index(TURN_ORDER, (track,), most=most)]


# Edges.

EDGE_ORDER = Index("edge_order", "si", lambda row: row[:2], (0, 1))
FOLLOWED = Index("followed", "sisis", lambda row: (row[2], -row[4], row[0], row[1], row[3]) if row[5] else None, (2, 3))
NEEDED = Index("needed", "si", lambda row: row[:2] if row[5] else None, (0, 1))
EDGES = Table("edges", 2, (EDGE_ORDER, FOLLOWED, NEEDED))  # dependent, slot, prerequisite, rule, weight, open


async def having(view: Snapshot, index: Index, ids: list[str]) -> list[str]:
    found = await view.tables.indexes(index, [((each,), None) for each in ids], most=1, guard=True)
    return [each for each, entries in zip(ids, found, strict=True) if entries]


@read
async def followed(view: Snapshot, ids: list[str]) -> list[str]:
    return await having(view, FOLLOWED, ids)


@read
async def needing(view: Snapshot, ids: list[str]) -> list[str]:
    return await having(view, NEEDED, ids)


@read
async def edges_of(view: Snapshot, ids: list[str]) -> list[Row]:
    found = await view.tables.indexes(EDGE_ORDER, [((each,), None) for each in ids], most=ALL)
    edges = await view.tables.some(EDGES, [entry for entries in found for entry in entries])
    return [(*row[:4], row[5]) for row in edges]


@read
async def open_edges_of(view: Snapshot, wanted: list[Row], most: int) -> list[Row]:
    found: list[Row] = []
    for dependent, weight in wanted:
        if len(found) < most:
            entries = await view.tables.index(NEEDED, (dependent,), most=ALL)
            edges = await view.tables.some(EDGES, entries)
            found += [row[:3] for row in edges if row[4] != weight]
    return found[:most]


@read
async def open_edges_to(view: Snapshot, ids: list[str], most: int) -> list[Row]:
    found = await view.tables.indexes(FOLLOWED, [((each,), None) for each in ids], most=most)
    return [(place, *entry[2:]) for place, entries in enumerate(found) for entry in entries][:most]


@read
async def heaviest(view: Snapshot, ids: list[str]) -> list[Row]:
    found = await view.tables.indexes(FOLLOWED, [((each,), None) for each in ids], most=1)
    return [(each, -entries[0][1]) for each, entries in zip(ids, found, strict=True) if entries]


@write
async def save_edges(port: Transaction, found: list[Row]) -> int:
    await port.tables.put(EDGES, [(*row[:5], int(row[5])) for row in found])
    return len(found)


async def change_edges(port: Transaction, found: list[Row], change: Callable[[Row, Row], Row]) -> int:
    for asked, row in zip(found, await port.tables.get(EDGES, found), strict=True):
        if row is not None:
            port.tables.replace(EDGES, row, change(row, asked))
    return len(found)


@write
async def close_edges(port: Transaction, found: list[Row]) -> int:
    return await change_edges(port, found, lambda row, _: (*row[:5], 0))


@write
async def open_edges(port: Transaction, found: list[Row]) -> int:
    return await change_edges(port, found, lambda row, asked: (*row[:4], asked[2], 1))


@write
async def save_edge_weights(port: Transaction, found: list[Row]) -> int:
    return await change_edges(port, found, lambda row, asked: (*row[:4], asked[2], row[5]))


@write
async def forget_edges(port: Transaction, ids: list[str], most: int) -> int:
    found = await port.tables.indexes(EDGE_ORDER, [((each,), None) for each in ids], most=most)
    return await port.tables.delete(EDGES, [entry for entries in found for entry in entries][:most])


# Workflows.

WORKFLOW_ORDER = Index("workflow_order", "s", lambda row: row[:1])
WORKFLOWS = Table("workflows", 1, (WORKFLOW_ORDER,))  # id, name, created_at, total
MEMBERS = Index("members", rows.MEMBERS, same, (2,))  # workflow, place, task, state, reason


@read
async def workflow(view: Snapshot, workflow_id: str) -> list[Row]:
    return await view.tables.one(WORKFLOWS, workflow_id)


@read
async def workflows(view: Snapshot, before: str | None, most: int) -> list[Row]:
    after = None if before is None else (before,)
    found = await view.tables.index(WORKFLOW_ORDER, after=after, most=most, downwards=True)
    return await view.tables.some(WORKFLOWS, found)


@read
async def workflows_after(view: Snapshot, after: str | None, most: int) -> list[Row]:
    found = await view.tables.index(WORKFLOW_ORDER, after=None if after is None else (after,), most=most)
    members = await view.tables.indexes(MEMBERS, [(row, None) for row in found], most=1)
    return [(row[0], not each) for row, each in zip(found, members, strict=True)]


@write
async def add_workflow(port: Transaction, *row: Any) -> int:
    if await port.tables.one(WORKFLOWS, row[0]):
        return 0
    await port.tables.put(WORKFLOWS, [(*row, 0)])
    return 1


@write
async def count_members(port: Transaction, found: list[Row]) -> int:
    for (_, n), row in zip(found, await port.tables.get(WORKFLOWS, found), strict=True):
        if row is not None:
            port.tables.replace(WORKFLOWS, row, (*row[:3], row[3] + n))
    return len(found)


@write
async def delete_workflows(port: Transaction, ids: list[str]) -> int:
    return await port.tables.delete(WORKFLOWS, [(each,) for each in ids])


@read
async def count_by_state(view: Snapshot, ids: list[str]) -> list[Row]:
    found = await view.tables.indexes(MEMBERS, [((each,), None) for each in ids], most=ALL)
    totals: dict[tuple[str, str], int] = {}
    for row in (each for entries in found for each in entries):
        totals[row[0], row[3]] = totals.get((row[0], row[3]), 0) + 1
    return [(*key, n) for key, n in totals.items()]


async def members_in(
    view: Snapshot, workflow_id: str, place: Place, after: str | None, most: int, downwards: bool = False
) -> list[Row]:
    prefix = (workflow_id, place)
    start = None if after is None else (*prefix, after)
    if start is not None and not downwards:
        start = (*start, "\U0010ffff")
    return await view.tables.index(MEMBERS, prefix, after=start, most=most, downwards=downwards)


@read
async def newest_members(view: Snapshot, before: str | None, most: int, *wanted: Any) -> list[Row]:
    *places, workflow_id = wanted
    found: list[Row] = []
    for is_wanted, place in zip(places, (Place.TASKS, Place.DEAD, Place.FINISHED), strict=True):
        if is_wanted:
            found += await members_in(view, workflow_id, place, before, most, downwards=True)
    ids = sorted((row[2] for row in found), reverse=True)[:most]
    tasks = await view.find_tasks(ids)
    return [rows.outline(tasks[each]) for each in ids if each in tasks]


@read
async def dead_members(view: Snapshot, workflow_id: str, after: str | None, most: int) -> list[str]:
    return [row[2] for row in await members_in(view, workflow_id, Place.DEAD, after, most)]


@read
async def cancelled_members(view: Snapshot, workflow_id: str, after: str | None, most: int) -> list[str]:
    found = await members_in(view, workflow_id, Place.FINISHED, after, ALL)
    return [row[2] for row in found if row[3:] == (State.CANCELLED, "dependency")][:most]


@read
async def cancellable_member(view: Snapshot, workflow_id: str) -> list[str]:
    found = await members_in(view, workflow_id, Place.TASKS, None, ALL)
    return [row[2] for row in found if row[3:] != (State.RUNNING, "asked")][:1]


@read
async def replayable_member(view: Snapshot, workflow_id: str) -> list[str]:
    dead = await dead_members(view, workflow_id, None, 1)
    return dead or await cancelled_members(view, workflow_id, None, 1)


# Histories.

HISTORY_ORDER = Index("history_order", "si", lambda row: row[:2], (0, 1))
HISTORY = Table("history", 2, (HISTORY_ORDER,))  # task, n, entry


@read
async def history(view: Snapshot, task_id: str) -> list[Row]:
    found = await view.tables.index(HISTORY_ORDER, (task_id,), most=ALL)
    return [(row[1], row[-1]) for row in await view.tables.some(HISTORY, found)]


@write
async def add_history(port: Transaction, found: list[Row]) -> int:
    tasks = list(dict.fromkeys(task_id for task_id, _ in found))
    newest = await port.tables.indexes(HISTORY_ORDER, [((each,), None) for each in tasks], most=1, downwards=True)
    last = {task_id: each[0][1] if each else 0 for task_id, each in zip(tasks, newest, strict=True)}
    for task_id, entry in found:
        last[task_id] += 1
        await port.tables.put(HISTORY, [(task_id, last[task_id], entry)])
    return len(found)


@write
async def trim_history(port: Transaction, ids: list[str], most: int) -> int:
    found = await port.tables.indexes(HISTORY_ORDER, [((each,), None) for each in ids], most=ALL, downwards=True)
    return await port.tables.delete(HISTORY, [row for entries in found for row in entries[most:]])


@write
async def delete_history(port: Transaction, ids: list[str]) -> int:
    found = await port.tables.indexes(HISTORY_ORDER, [((each,), None) for each in ids], most=ALL)
    return await port.tables.delete(HISTORY, [row for entries in found for row in entries])


# The index of id blocks: no rows, only an ordered set.

BLOCKS = Index("blocks", "si", same, (0, 1))  # trait, block


@read
async def blocks(view: Snapshot, traits: list[str], below: int, most: int) -> list[Row]:
    asked = [((trait,), (trait, below)) for trait in traits]
    found = await view.tables.indexes(BLOCKS, asked, most=most, downwards=True)
    return [(place, entry[1]) for place, entries in enumerate(found) for entry in entries]


@read
async def blocks_between(view: Snapshot, first: str, last: str, most: int) -> list[int]:
    return [row[1] for row in await view.tables.index(BLOCKS, since=(first,), until=(last,), most=most)]


@read
async def blocks_after(view: Snapshot, trait: str, block: int, first: int, last: int, most: int) -> list[Row]:
    """A block is empty if none of the sixteen that it is one of has a task in any place."""
    found = await view.tables.index(BLOCKS, after=(trait, block), most=most)
    wide = {row[1] >> 4 for row in found if not first <= row[1] <= last}
    places = [
        view.keys("tasks_ids"),
        view.keys("dead_ids"),
        *(view.keys.finished_ids(day) for day in await view.days()),
    ]
    used: set[int] = set()
    for each in sorted(wide):
        start = f"{each >> 4:08x}-{each & 15:x}".encode()
        members = await view.draft.ranges([(key, b"[" + start, b"(" + start + b"g", 1, False) for key in places])
        if any(members):
            used.add(each)
    return [(*row, row[1] >> 4 in wide and row[1] >> 4 not in used) for row in found]


@write
async def add_blocks(port: Transaction, found: Iterable[Pair]) -> int:
    for pair in found:
        port.draft.add(port.keys(BLOCKS.name), codec.encode(BLOCKS.columns, pair))
    return 1


@write
async def delete_blocks(port: Transaction, found: Iterable[Pair]) -> int:
    for pair in found:
        port.draft.remove(port.keys(BLOCKS.name), codec.encode(BLOCKS.columns, pair))
    return 1


# Tasks by id, day and state.


@read
async def prerequisites(view: Snapshot, ids: list[str]) -> list[Row]:
    tasks = await view.find_tasks(ids, guard=True)
    return [(each, rows.outline(tasks[each])[2]) for each in ids if each in tasks]


@read
async def oldest_tasks(view: Snapshot, after: str | None, most: int) -> list[str]:
    low = START if after is None else codec.after(after.encode())
    return [text(each) for each in await view.draft.range(view.keys("tasks_ids"), low, LAST, most)]


@read
async def unfinished_in(view: Snapshot, before: str | None, most: int, wanted: list[Row]) -> list[str]:
    found: set[str] = set()
    high = LAST if before is None else b"(" + before.encode()
    for track, state in wanted:
        if state == State.PENDING:
            members = await view.draft.range(view.keys.pending(track), START, LAST, ALL)
            found |= {rows.pending_entry(member).id for member in members}
        elif state != State.RUNNING:
            key = view.keys.waiting(track, State(state))
            found |= {text(each) for each in await view.draft.range(key, high, START, most, downwards=True)}
    if tracks := {track for track, state in wanted if state == State.RUNNING}:
        found |= {task.id for task in await view.running_tasks() if rows.outline(task)[1] in tracks}
    return sorted((each for each in found if before is None or each < before), reverse=True)[:most]


@read
async def purge_row(view: Snapshot, ids: list[str]) -> list[Row]:
    return [rows.purge_row(task) for task in (await view.find_tasks(ids)).values()]


@write
async def delete_tasks(port: Transaction, found: list[Row]) -> int:
    return len(found)  # each is replaced by what it becomes, or removed, in `Transaction.save`


WRITES["delete_dead"] = WRITES["delete_finished"] = delete_tasks


@write
async def purge_tasks(port: Transaction, ids: list[str]) -> int:
    return await port.drop(ids)


@write
async def purge_dead(port: Transaction, ids: list[str]) -> int:
    return await port.drop(ids)


@write
async def purge_finished(port: Transaction, found: list[Row]) -> int:
    return await port.drop([task_id for _, task_id in found])


# Days of finished tasks, and of dead ones.

DAYS = Table("days")  # day, queues that have nothing left to delete there
DEAD_DAYS = Index("dead_days", "is", same, (1,))


@read
async def next_finished_day(view: Snapshot, day: int) -> list[int]:
    return [each for each in await view.days() if each >= day][:1]


@read
async def next_dead_day(view: Snapshot, day: int) -> list[int]:
    return [row[0] for row in await view.tables.index(DEAD_DAYS, since=(day,), most=1)]


@read
async def finished_of_day(view: Snapshot, day: int, after: str | None, most: int) -> list[Row]:
    low = START if after is None else codec.after(after.encode())
    ids = [text(each) for each in await view.draft.range(view.keys.finished_ids(day), low, LAST, most)]
    found = zip(ids, await view.draft.values(view.keys.finished(day), ids), strict=True)
    return [outline_of(each, Place.FINISHED, value) for each, value in found]


@read
async def dead_of_day(view: Snapshot, day: int, after: str | None, most: int) -> list[Row]:
    start = None if after is None else (day, after)
    ids = [row[1] for row in await view.tables.index(DEAD_DAYS, (day,), after=start, most=most)]
    found = zip(ids, await view.draft.values(view.keys("dead"), ids), strict=True)
    return [outline_of(each, Place.DEAD, value) for each, value in found]


def outline_of(task_id: str, place: Place, value: bytes | None) -> Row:
    try:
        return rows.outline(rows.stored(place, task_id, value or b""))[:3]
    except UNREADABLE:
        return (task_id, None, None)


@read
async def pruned(view: Snapshot, day: int) -> list[Row]:
    return await view.tables.one(DAYS, day)


@write
async def pruned_day(port: Transaction, day: int, queues: list[str]) -> int:
    await port.tables.put(DAYS, [(day, msgspec.json.encode(queues).decode())])
    return 1


@write
async def drop_empty_day(port: Transaction, day: int) -> int:
    if await port.draft.range(port.keys.finished_ids(day), START, LAST, 1):
        return 0
    port.draft.more.append(("DEL", port.keys.finished_counts(day)))
    return await port.tables.delete(DAYS, [(day,)])


# Counts and events.


@read
async def error_counts(view: Snapshot, queue: str) -> list[str]:
    return [what for what, whose, _ in await view.all_counts() if whose == queue and what.startswith("error ")]


@write
async def add_events(port: Transaction, found: list[Row]) -> int:
    for row in found:
        port.draft.more.append(("EVENT", *("" if each is None else each for each in row)))
    return len(found)


@read
async def events_horizon(view: Snapshot) -> list[int]:
    (last,) = await view.draft.client.pipeline([("HGET", view.keys("store"), "event")])
    return [int(last or 0)]


@read
async def events_trimmed(view: Snapshot) -> list[int]:
    (last,) = await view.draft.client.pipeline([("HGET", view.keys("store"), "trimmed")])
    return [int(last or 0)]


@read
async def events_after(view: Snapshot, after: int, passed: list[int], most: int) -> list[Row]:
    reply = await view.draft.client.call("XRANGE", view.keys("events"), f"({after}-0", "+", "COUNT", most + len(passed))
    found = [event_of(number, dict(pairs(fields))) for number, fields in reply]
    return [row for row in found if row[0] not in passed][:most]


def event_of(number: bytes, fields: dict[bytes, bytes]) -> Row:
    values = [text(fields.get(name, b"")) or None for name in (b"type", b"queue", b"task", b"worker", b"data")]
    at, track, took = (int(fields[name]) if fields.get(name) else None for name in (b"at", b"track", b"took"))
    kind, queue, task, worker_id, data = values
    return (int(number.partition(b"-")[0]), at, kind, track, queue, task, worker_id, took, data)


@read
async def events_to_trim(view: Snapshot, before: Instant, keep: int, most: int) -> list[int]:
    (last,) = await events_horizon(view)
    reply = await view.draft.client.call("XRANGE", view.keys("events"), "-", "+", "COUNT", most)
    found = [event_of(number, dict(pairs(fields))) for number, fields in reply]
    old = [row[0] for row in found if row[1] is None or row[1] < before or row[0] <= last - keep]
    return old[-1:]


@write
async def delete_events(port: Transaction, last: int) -> int:
    port.draft.more.append(("XTRIM", port.keys("events"), "MINID", f"{last + 1}-0"))
    return 1


@write
async def mark_trimmed(port: Transaction, last: int) -> int:
    (before,) = await port.draft.values(port.keys("store"), ["trimmed"])
    port.draft.put(port.keys("store"), "trimmed", b"%d" % max(int(before or 0), last))
    return 1


@read
async def watch(view: Snapshot, subscriber: str) -> list[Row]:
    return await view.tables.one(WATCHES, subscriber)


@write
async def save_watch(port: Transaction, *row: Any) -> int:
    await port.tables.put(WATCHES, [row])
    return 1


@write
async def forget_watches(port: Transaction, now: Instant) -> int:
    found = [row for row in await port.tables.all(WATCHES) if len(row) == 3 and is_by(row[1], now)]
    return await port.tables.delete(WATCHES, found)


def text(value: bytes) -> str:
    return value.decode(errors="replace")
