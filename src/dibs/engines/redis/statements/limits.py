"""Token buckets, partitions and fair shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dibs.core.states import State
from dibs.core.times import Instant
from dibs.engines.decisions.partition import Partition
from dibs.engines.redis import codec, rows
from dibs.engines.redis.draft import LAST
from dibs.engines.redis.statements.names import ALL, PAGE, read, same, write
from dibs.engines.redis.tables import Index, Row, Table

if TYPE_CHECKING:
    from dibs.engines.redis.snapshot import Snapshot
    from dibs.engines.redis.transaction import Transaction

__all__ = ["BUCKETS", "CLOCKS", "PARTITIONS", "SHARES", "first_turns"]

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
    """Also of those that can't be read: what stands in other sets is told apart from the rest of a task."""
    found = [task for task in (await view.find_tasks(ids)).values() if not task.is_running]
    keys = {rows.waiting_partition(view.keys, task) for task in found}
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
async def gated_heads(view: Snapshot, keys: list[str], most: int | None, _ahead: int, passed: list[str]) -> list[Row]:
    """Round by round, the next track and share of each partition. One task is taken of each, whatever is asked for."""
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

CLOCKS = Table("clocks")  # queue, virtual time
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
    clocks: dict[Any, Any] = dict(await port.tables.all(CLOCKS))
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
