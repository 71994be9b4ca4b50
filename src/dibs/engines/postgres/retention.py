"""Retention that only this engine has: a day of finished tasks that no queue keeps is dropped as a whole."""

from __future__ import annotations

from msgspec import Struct

from dibs.core.policy import CHORE_BATCH
from dibs.core.states import State
from dibs.core.times import DAY, day_of
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.port import Read
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.verbs import retention
from dibs.engines.verbs.retention import IdCursor, cursor_of, expired_queues, gone_past

__all__ = ["make_days", "prune_finished", "prune_orphans"]

DAYS_AHEAD = 3
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '100ms'"
"""A transaction that waits for the lock on a whole table makes all others wait, so it tries again later."""
STATES = frozenset(State)


class Leftover(Struct, array_like=True, frozen=True):
    """A task that has a history or edges. `is_gone`: it is in none of the three places."""

    id: str
    is_gone: bool


LEFTOVERS_AFTER = Read("leftovers_after", Leftover, "task")
"""Takes an id or None, and how many: tasks that have a history or edges, by id."""


async def prune_finished(transaction: Transaction, steps: list[Step], most: int) -> Done:
    dropped = await drop_days(transaction)
    pruned, unfinished = await retention.prune_finished(transaction, steps, most)
    return dropped + pruned, unfinished


async def drop_days(transaction: Transaction) -> int:
    """Drop the days that no queue keeps; returns how many tasks that were."""
    known = set(transaction.catalog.by_queue)
    dropped = 0
    for day in await stored_days(transaction):
        if (day + 1) * DAY <= transaction.now and expired_queues(transaction, day, "keep") == known:
            rows = await transaction.rows("count_of_day", day)
            await transaction.connection.execute(LOCK_TIMEOUT)
            if not await transaction.value("drop_day", day):
                continue  # the next round finds it again
            # `prune_orphans` deletes their history and edges.
            dropped += sum(row["n"] for row in rows)
            for row in rows:
                if row["what"] in STATES:
                    transaction.count(State(row["what"]), row["track"], -row["n"], day)
    return dropped


async def stored_days(transaction: Transaction) -> list[int]:
    """The days that have a partition of their own."""
    return sorted(row["day"] for row in await transaction.rows("days", transaction.schema))


async def make_days(transaction: Transaction, steps: list[Step], most: int) -> Done:
    """Create partitions for today and the next days, unless tasks have already ended there."""
    there = set(await stored_days(transaction))
    today = day_of(transaction.now)
    made = 0
    for day in range(today, today + DAYS_AHEAD):
        if day not in there and not await transaction.value("has_finished", day):
            await transaction.connection.execute(LOCK_TIMEOUT)
            made += await transaction.value("make_day", day)
    return made, []


async def prune_orphans(transaction: Transaction, steps: list[Step], most: int) -> Done:
    """Delete histories and edges of tasks that were dropped with their day, a bounded number at a time."""
    cursor = cursor_of(transaction, steps[0], IdCursor)
    found = await transaction.fetch(LEFTOVERS_AFTER, cursor.id, CHORE_BATCH)
    gone = [each.id for each in found.rows if each.is_gone]
    if gone:
        await transaction.write("delete_history", gone)
        await transaction.write("delete_edges", gone)
    return len(gone), gone_past(steps, found, IdCursor)
