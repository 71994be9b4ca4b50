"""Keys, histories, the index of id blocks, tasks by id, day and state, counts and events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.core.states import State
from dibs.core.times import Instant
from dibs.engines.decisions.blocks import Pair
from dibs.engines.decisions.records import Place
from dibs.engines.redis import codec, rows
from dibs.engines.redis.draft import LAST, START, pairs
from dibs.engines.redis.statements.names import ALL, PAGE, WRITES, is_by, read, same, text, write
from dibs.engines.redis.tables import Index, Row, Table
from dibs.engines.unreadable import UNREADABLE

if TYPE_CHECKING:
    from dibs.engines.redis.snapshot import Snapshot
    from dibs.engines.redis.transaction import Transaction

__all__ = ["DAYS", "HISTORY", "HISTORY_ORDER", "KEYS"]

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
    return [rows.purge_row(view.keys, task) for task in (await view.find_tasks(ids)).values()]


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
        return rows.outline(rows.StoredTask(task_id, place, value or b""))[:3]
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

WATCHES = Table("watches")  # subscriber, until, watch


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
