"""The leader's chores in this engine: those of all engines, and those of days that are dropped as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dibs.core.policy import CHORE_BATCH
from dibs.core.states import WAITING, State
from dibs.core.times import DAY
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.port import Stored
from dibs.engines.redis import statements
from dibs.engines.redis.draft import pairs
from dibs.engines.redis.snapshot import counted
from dibs.engines.redis.tables import Index
from dibs.engines.redis.transaction import Transaction
from dibs.engines.verbs import chores, reranking, retention
from dibs.engines.verbs.retention import cursor_of, expired_queues

__all__ = ["CHORES"]

ORPHANED = "orphaned"
"""The last day that was dropped, until what is left of its tasks has been deleted."""


async def rerank(transaction: Transaction, steps: list[Step], most: int) -> Done:
    return await reranking.rerank(transaction, steps, stale_tasks)


async def stale_tasks(transaction: Transaction, most: int) -> tuple[Sequence[Stored], bool]:
    """Waiting tasks of tracks of an earlier epoch."""
    catalog = transaction.catalog
    stale = [
        track.number
        for state, track, n in await transaction.counts_by_track()
        if state in WAITING and n > 0 and track.queue in catalog.queues and catalog.is_stale(track)
    ]
    found = await transaction.waiting_of(dict.fromkeys(stale), most) if stale else []
    return found, len(found) == most


async def prune_finished(transaction: Transaction, steps: list[Step], most: int) -> Done:
    dropped = await drop_days(transaction)
    pruned, unfinished = await retention.prune_finished(transaction, steps, most)
    return dropped + pruned, unfinished


async def drop_days(transaction: Transaction) -> int:
    """Drop the days that no queue keeps, each with one command a key; returns how many tasks that were.

    `prune_orphans` deletes what else is kept of these tasks.
    """
    known = {track.queue for track in transaction.tracks.values()}
    dropped = 0
    for day in await transaction.days():
        if (day + 1) * DAY > transaction.now or expired_queues(transaction, day, "keep") != known:
            continue
        keys = transaction.keys
        reply = await transaction.draft.client.call("HGETALL", keys.finished_counts(day))
        for field, number in pairs(reply):
            transaction.draft.checks["field", keys.finished_counts(day), field, number] = None
            what, whose = counted(field)
            if isinstance(whose, int) and transaction.knows(whose):
                transaction.count(State(what), whose, -int(number))
                dropped += int(number)
        gone = (keys.finished(day), keys.finished_ids(day), keys.finished_counts(day))
        transaction.draft.more.append(("UNLINK", *gone))
        transaction.draft.put(keys("store"), ORPHANED, b"%d" % day)
        await transaction.tables.delete(statements.DAYS, [(day,)])
    return dropped


class OrphanCursor(Struct, array_like=True, frozen=True):
    """Which of the indexes is walked through, and the entry to go on after."""

    place: int = 0
    entry: tuple[str, ...] = ()


ORPHANS: tuple[tuple[Index, int], ...] = (
    (statements.HISTORY_ORDER, 0),
    (statements.EDGE_ORDER, 0),
    (statements.MEMBERS, 2),
    (Index("cancelled", "", lambda row: row), 0),
)
"""Indexes of what is kept of tasks besides them, and which of their columns is the task."""


async def prune_orphans(transaction: Transaction, steps: list[Step], most: int) -> Done:
    """Delete what is left of tasks that were dropped with their day, a bounded number at a time."""
    (day,) = await transaction.draft.values(transaction.keys("store"), [ORPHANED])
    if day is None:
        return 0, []
    cursor = cursor_of(transaction, steps[0], OrphanCursor)
    index, column = ORPHANS[min(cursor.place, len(ORPHANS) - 1)]
    key = transaction.keys(index.name)
    low = b"(" + cursor.entry[0].encode() if cursor.entry else b"-"
    members = await transaction.draft.range(key, low, b"+", CHORE_BATCH)
    ids = [member.decode().split("\0")[column][:36] for member in members]
    there = await transaction.find_tasks([*dict.fromkeys(ids)])
    gone = [(member, each) for member, each in zip(members, ids, strict=True) if each not in there]
    lost = [*dict.fromkeys(each for _, each in gone)]
    if index is statements.HISTORY_ORDER and lost:
        await transaction.write("delete_history", lost)
    elif index is statements.EDGE_ORDER and lost:
        await transaction.write("forget_edges", lost, statements.ALL)
    else:
        for member, _ in gone:
            transaction.draft.remove(key, member)
    if len(members) == CHORE_BATCH:
        steps[0].after = to_json(OrphanCursor(cursor.place, (members[-1].decode(),)))
        return len(gone), steps
    if cursor.place + 1 < len(ORPHANS):
        steps[0].after = to_json(OrphanCursor(cursor.place + 1))
        return len(gone), steps
    transaction.draft.put(transaction.keys("store"), ORPHANED, None)
    return len(gone), []


CHORES: dict[str, chores.Chore] = {
    "rerank": rerank,
    **chores.CHORES,
    "prune_finished": prune_finished,
    "prune_orphans": prune_orphans,
}
