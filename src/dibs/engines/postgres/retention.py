"""Retention of ended tasks, idempotency keys, workflows, token buckets and orphans, in bounded, resumable steps.

A day of finished tasks that no queue keeps is dropped as a whole. Otherwise queues keep their tasks for different
times, so deletable rows can lie between rows that are kept: a step visits a bounded number of rows and remembers where
it stopped.
"""

from __future__ import annotations

from collections import Counter as Totals
from typing import TypeVar

from msgspec import Struct
from msgspec.json import decode

from dibs.core.limits import Bucket, Scope, limit_of, refill
from dibs.core.policy import CHORE_BATCH, VISIT_BATCH
from dibs.core.states import State
from dibs.core.times import DAY, Duration, Instant, day_of
from dibs.engines.decisions.encoding import encode
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.unreadable import readable

__all__ = [
    "Step",
    "make_days",
    "prune_buckets",
    "prune_dead",
    "prune_finished",
    "prune_keys",
    "prune_orphans",
    "prune_workflows",
]

Cursor = TypeVar("Cursor")

DAYS_AHEAD = 3
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '100ms'"
"""A transaction that waits for the lock on a whole table makes all others wait, so it tries again later."""
LOWEST_ID = "00000000-0000-0000-0000-000000000000"


class Step(Struct, frozen=True):
    """What one step of a chore did; `more`: it stopped at its bound."""

    done: int
    more: bool


STATES = frozenset(State)
SCOPES = frozenset(Scope)


async def cursor_of(transaction: Transaction, chore: str, kind: type[Cursor]) -> Cursor | None:
    """Where the last step stopped; None for the start, or if the cursor can't be read."""
    stored = await transaction.value("cursor", chore)
    if stored is None:
        return None
    text = [(chore, stored)]
    found = readable(transaction.aside, "cursor of chore", text, lambda each: decode(each, type=kind))
    return next((cursor for _, cursor in found), None)


def expired_queues(transaction: Transaction, day: int, setting: str) -> set[str]:
    """The queues that keep nothing that ended on this day."""

    def is_over(queue: str) -> bool:
        if queue in transaction.catalog.unreadable:  # how long it keeps tasks is unknown
            return False
        keep: Duration = getattr(transaction.settings(queue), setting)
        return (day + 1) * DAY <= transaction.now - keep

    return {queue for queue in transaction.catalog.by_queue if is_over(queue)}


class Sweep:
    """One step through ended tasks, day by day, until enough rows have been visited or deleted."""

    def __init__(self, transaction: Transaction, chore: str, place: str, setting: str) -> None:
        self.transaction = transaction
        self.chore = chore
        self.place = place
        self.setting = setting
        self.visited = 0
        self.deleted = 0

    async def run(self) -> Step:
        day, after = await cursor_of(self.transaction, self.chore, tuple[int, str]) or (-1, LOWEST_ID)
        while True:
            following = await self.transaction.value(f"next_{self.place}_day", day)
            if following is None or (following + 1) * DAY > self.transaction.now:
                await self.save_cursor(None)
                return Step(self.deleted, False)
            after = after if following == day else LOWEST_ID
            queues = expired_queues(self.transaction, following, self.setting)
            if queues and not await self.prune_day(following, after, queues):
                return Step(self.deleted, True)
            day, after = following + 1, LOWEST_ID

    async def prune_day(self, day: int, after: str, queues: set[str]) -> bool:
        """Delete expired tasks of one day; False if the bound was reached before its end."""
        while self.visited < VISIT_BATCH and self.deleted < CHORE_BATCH:
            asked = min(CHORE_BATCH - self.deleted, VISIT_BATCH - self.visited)
            rows = await self.transaction.rows(f"{self.place}_of_day", day, after, asked)
            self.visited += len(rows)
            over = [row for row in rows if row["state"] in STATES and self.is_over(row["track"], queues)]
            await self.delete(day, [(str(row["id"]), row["track"], State(row["state"])) for row in over])
            if len(rows) < asked:
                return True
            after = str(rows[-1]["id"])
        await self.save_cursor((day, after))
        return False

    def is_over(self, number: int, queues: set[str]) -> bool:
        return self.transaction.knows(number) and self.transaction.catalog.track(number).queue in queues

    async def delete(self, day: int, rows: list[tuple[str, int, State]]) -> None:
        if not rows:
            return
        self.deleted += len(rows)
        ids = [row[0] for row in rows]
        if self.place == "dead":
            await self.transaction.write("purge_dead", ids)
        else:
            await self.transaction.write("purge_finished", [day] * len(ids), ids)
        await self.transaction.write("delete_history", ids)
        await self.transaction.write("delete_edges", ids)
        for (track, state), n in Totals((row[1], row[2]) for row in rows).items():
            self.transaction.count(state, track, -n, 0 if self.place == "dead" else day)

    async def save_cursor(self, cursor: tuple[int, str] | None) -> None:
        await self.transaction.write("save_cursor", self.chore, None if cursor is None else encode(cursor))


async def prune_finished(transaction: Transaction) -> Step:
    dropped = await drop_days(transaction)
    step = await Sweep(transaction, "prune_finished", "finished", "keep").run()
    return Step(dropped + step.done, step.more)


async def prune_dead(transaction: Transaction) -> Step:
    return await Sweep(transaction, "prune_dead", "dead", "keep_dead").run()


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


async def make_days(transaction: Transaction) -> Step:
    """Create partitions for today and the next days, unless tasks have already ended there."""
    there = set(await stored_days(transaction))
    today = day_of(transaction.now)
    made = 0
    for day in range(today, today + DAYS_AHEAD):
        if day not in there and not await transaction.value("has_finished", day):
            await transaction.connection.execute(LOCK_TIMEOUT)
            made += await transaction.value("make_day", day)
    return Step(made, False)


async def prune_keys(transaction: Transaction) -> Step:
    """Free the keys whose window is over and whose task has ended."""
    cursor = await cursor_of(transaction, "prune_keys", tuple[Instant, str, str]) or (-1, "", "")
    rows = await transaction.rows("ended_keys", transaction.now, *cursor, CHORE_BATCH)
    free = [(row["queue"], row["key"]) for row in rows if row["free"]]
    if free:
        await transaction.write("delete_keys", *columns(free, 2))
    more = len(rows) == CHORE_BATCH
    after = encode((rows[-1]["held_until"], rows[-1]["queue"], rows[-1]["key"])) if more else None
    await transaction.write("save_cursor", "prune_keys", after)
    return Step(len(free), more)


async def prune_workflows(transaction: Transaction) -> Step:
    """Delete workflows without tasks: reads a bounded number, from where the last step stopped."""
    after = await cursor_of(transaction, "prune_workflows", str) or LOWEST_ID
    rows = await transaction.rows("page_of_workflows", after, CHORE_BATCH)
    empty = [row["id"] for row in rows if row["is_empty"]]
    if empty:
        await transaction.write("delete_workflows", empty)
    more = len(rows) == CHORE_BATCH
    await transaction.write("save_cursor", "prune_workflows", encode(str(rows[-1]["id"])) if more else None)
    return Step(len(empty), more)


async def prune_buckets(transaction: Transaction) -> Step:
    """Delete buckets that are full again, or whose limit is no longer set: both equal no bucket."""
    after = await cursor_of(transaction, "prune_buckets", tuple[str, str, str]) or ("", "", "")
    rows = await transaction.rows("page_of_buckets", *after, CHORE_BATCH)
    idle = []
    for row in rows:
        if row["scope"] not in SCOPES or row["queue"] in transaction.catalog.unreadable:
            continue  # this version does not know the scope
        limit = limit_of(transaction.settings(row["queue"]), Scope(row["scope"]), row["whose"])
        bucket = Bucket(row["level"], row["at"])
        full = limit is not None and limit.rate is not None and refill(None, limit, transaction.now)
        if not full or limit is None or row["level"] < 0 or refill(bucket, limit, transaction.now) == full:
            idle.append((row["queue"], row["scope"], row["whose"]))
    if idle:
        await transaction.write("delete_buckets", *columns(idle, 3))
    more = len(rows) == CHORE_BATCH
    last = (rows[-1]["queue"], rows[-1]["scope"], rows[-1]["whose"]) if more else None
    await transaction.write("save_cursor", "prune_buckets", None if last is None else encode(last))
    return Step(len(idle), more)


async def prune_orphans(transaction: Transaction) -> Step:
    """Delete histories and edges of tasks that were dropped with their day, a bounded number at a time."""
    after = await cursor_of(transaction, "prune_orphans", str) or LOWEST_ID
    rows = await transaction.rows("page_of_leftovers", after, CHORE_BATCH)
    gone = [row["id"] for row in rows if row["is_gone"]]
    if gone:
        await transaction.write("delete_history", gone)
        await transaction.write("delete_edges", gone)
    more = len(rows) == CHORE_BATCH
    await transaction.write("save_cursor", "prune_orphans", encode(str(rows[-1]["id"])) if more else None)
    return Step(len(gone), more)
