"""Retention of ended tasks, idempotency keys, token buckets and shares, in bounded, resumable steps.

Queues keep their tasks for different times, so deletable rows can lie between rows that are kept: a step visits a
bounded number of rows and remembers where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from msgspec import Struct, ValidationError, convert
from msgspec.json import Decoder, decode

from dibs.core.limits import Bucket, Scope, limit_of, refill
from dibs.core.policy import CHORE_BATCH, VISIT_BATCH
from dibs.core.states import State
from dibs.core.times import DAY, Duration, Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.follow_ups import FollowUp, FollowUpKind
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.statements import row_by_row, statement
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.unreadable import readable

__all__ = [
    "BUCKETS",
    "Step",
    "cursor_of",
    "prune_buckets",
    "prune_dead",
    "prune_finished",
    "prune_keys",
    "prune_shares",
    "pruned_queues",
    "save_last",
    "tell_of_days",
]

Cursor = TypeVar("Cursor")


LAST_DAY = 10**9
"""Later than any day; a value that is not a number sorts after it."""

texts_decoder = Decoder(list[str])


class Step(Struct, frozen=True):
    """What one step of a chore did; `more`: it stopped at its bound."""

    done: int
    more: bool


class Ended(Struct, array_like=True, frozen=True):
    id: str
    track: int
    state: State


class Key(Struct, array_like=True, frozen=True):
    held_until: Instant
    queue: str
    key: str
    free: int


class StoredBucket(Struct, array_like=True, frozen=True):
    """A row of dibs_buckets."""

    queue: str
    scope: Scope
    whose: str
    level: int
    at: Instant
    refill_at: Instant | None


class StoredShare(Struct, array_like=True, frozen=True):
    """A row of dibs_shares. `idle`: nothing is pending, and the clock has passed its virtual time."""

    queue: str
    share: str
    idle: int


ENDED = RowDecoder(Ended, "task")
KEYS = RowDecoder(Key, "key", 1, 2)
BUCKETS = RowDecoder(StoredBucket, "limit of", 0, 1, 2)
SHARES = RowDecoder(StoredShare, "share", 0, 1)


def cursor_of(transaction: Transaction, chore: str, kind: type[Cursor]) -> Cursor | None:
    """Where the last step stopped; None for the start, or if the cursor can't be read."""
    stored = transaction.each(statement("chore"), (chore,))
    if not stored or stored[0][1] is None:
        return None
    text = [(chore, stored[0][1])]
    found = readable(transaction.aside, "cursor of chore", text, lambda each: decode(each, type=kind))
    return next((cursor for _, cursor in found), None)


def save_last(transaction: Transaction, chore: str, rows: Sequence[tuple[Any, ...]], kind: type[Cursor]) -> bool:
    """Let the next step begin after these rows, whose first columns are the cursor; True if there is a next step.

    Whether the rest of a row can be read does not matter. If no row has valid first columns, the chore is at its end:
    such values sort after all others.
    """
    last = None
    if len(rows) == CHORE_BATCH:
        width = len(get_args(kind))
        last = next((key for row in reversed(rows) if (key := key_or_none(row[:width], kind)) is not None), None)
    transaction.run("save_cursor", chore, None if last is None else to_json(last))
    return last is not None


def key_or_none(columns: tuple[Any, ...], kind: type[Cursor]) -> Cursor | None:
    try:
        return convert(columns, kind)
    except ValidationError:
        return None


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

    def __init__(self, transaction: Transaction, chore: str) -> None:
        self.transaction = transaction
        self.chore = chore
        self.visited = 0
        self.deleted = 0
        self.day, self.after = cursor_of(transaction, chore, tuple[int, str]) or (-1, "")

    @property
    def is_over(self) -> bool:
        return self.visited >= VISIT_BATCH or self.deleted >= CHORE_BATCH

    def prune_day(self, day: int, select: str, queues: set[str]) -> bool:
        """Delete expired tasks of one day; False if the bound was reached before its end."""
        after = self.after if day == self.day else ""
        tracks = self.transaction.catalog.tracks
        while not self.is_over:
            asked = min(CHORE_BATCH - self.deleted, VISIT_BATCH - self.visited)
            found = self.transaction.each(row_by_row(select), (day, after, asked))
            rows = ENDED.one_by_one(found, self.transaction.aside)
            self.visited += len(found)
            self.delete(day, [row for row in rows if row.track in tracks and tracks[row.track].queue in queues])
            if len(found) < asked:
                return True
            after = found[-1][0]
        self.save_cursor((day, after))
        return False

    def delete(self, day: int, rows: list[Ended]) -> None:
        if not rows:
            return
        self.deleted += len(rows)
        ids = to_json([row.id for row in rows])
        if rows[0].state is State.DEAD:
            self.transaction.run("purge_dead", ids)
        else:
            self.transaction.run("purge_finished", to_json([(day, row.id) for row in rows]))
        self.transaction.run("delete_history", ids)
        self.transaction.follow_ups.append(FollowUp(FollowUpKind.DELETE_EDGES, ids))
        for row in rows:
            self.transaction.count(row.state, row.track, -1)

    def save_cursor(self, cursor: tuple[int, str] | None) -> None:
        self.transaction.run("save_cursor", self.chore, None if cursor is None else to_json(cursor))


def prune_finished(transaction: Transaction) -> Step:
    sweep = Sweep(transaction, "prune_finished")
    for day, _, _, pruned in transaction.each(row_by_row("days"), ()):
        queues = expired_queues(transaction, day, "keep")
        if queues <= pruned_queues(transaction, day, pruned):
            continue
        if not sweep.prune_day(day, "finished_of_day", queues):
            return Step(sweep.deleted, True)
        # Nothing is left to prune here until settings or rows change; an empty day goes altogether.
        transaction.run("pruned_day", day, to_json(sorted(queues)))
        transaction.run("drop_empty_day", day)
    sweep.save_cursor(None)
    return Step(sweep.deleted, False)


def pruned_queues(snapshot: Snapshot, day: int, stored: object) -> set[str]:
    """The queues that have nothing left to delete on a day; none if that can't be read."""
    found = readable(snapshot.aside, "day", [(day, stored)], lambda each: texts_decoder.decode(convert(each, str)))
    return {queue for _, queues in found for queue in queues}


def prune_dead(transaction: Transaction) -> Step:
    sweep = Sweep(transaction, "prune_dead")
    tell_of_days(transaction)
    day = transaction.value("next_dead_day", sweep.day - 1, LAST_DAY)
    while day is not None and (day + 1) * DAY <= transaction.now:
        queues = expired_queues(transaction, day, "keep_dead")
        if queues and not sweep.prune_day(day, "dead_of_day", queues):
            return Step(sweep.deleted, True)
        day = transaction.value("next_dead_day", day, LAST_DAY)
    sweep.save_cursor(None)
    return Step(sweep.deleted, False)


def tell_of_days(snapshot: Snapshot) -> None:
    """Log dead tasks whose day can't be read. They are kept, because it is not known for how long."""
    for task_id, day in snapshot.each(row_by_row("dead_beyond"), (LAST_DAY, CHORE_BATCH)):
        snapshot.aside.log_once("day of dead task", task_id, f"it is {day!r}")


def prune_keys(transaction: Transaction) -> Step:
    """Free the keys whose window is over and whose task has ended."""
    cursor = cursor_of(transaction, "prune_keys", tuple[int, str, str]) or (-1, "", "")
    found = transaction.each(row_by_row("ended_keys"), (transaction.now, *cursor, CHORE_BATCH))
    keys = KEYS.one_by_one(found, transaction.aside)
    free = [(key.queue, key.key) for key in keys if key.free]
    if free:
        transaction.run("delete_keys", to_json(free))
    return Step(len(free), save_last(transaction, "prune_keys", found, tuple[int, str, str]))


def prune_buckets(transaction: Transaction) -> Step:
    """Delete buckets that are full again, or whose limit is no longer set: both equal no bucket."""
    after = cursor_of(transaction, "prune_buckets", tuple[str, str, str]) or ("", "", "")
    rows = transaction.each(row_by_row("buckets_after"), (*after, CHORE_BATCH))
    found = BUCKETS.one_by_one(rows, transaction.aside)
    idle = [(each.queue, each.scope, each.whose) for each in found if is_full(transaction, each)]
    if idle:
        transaction.run("delete_buckets", to_json(idle))
    return Step(len(idle), save_last(transaction, "prune_buckets", rows, tuple[str, str, str]))


def is_full(transaction: Transaction, stored: StoredBucket) -> bool:
    if stored.queue in transaction.catalog.unreadable:  # its limits are unknown
        return False
    limit = limit_of(transaction.settings(stored.queue), stored.scope, stored.whose)
    if limit is None or limit.rate is None:
        return True
    if stored.refill_at is not None:  # tasks wait for it, and a claim has yet to promote them
        return False
    return refill(Bucket(stored.level, stored.at), limit, transaction.now) == refill(None, limit, transaction.now)


def prune_shares(transaction: Transaction) -> Step:
    """Delete shares without tasks that the clock has passed, and turns in tracks without pending tasks."""
    after = cursor_of(transaction, "prune_shares", tuple[str, str]) or ("", "")
    rows = transaction.each(row_by_row("shares_after"), (*after, CHORE_BATCH))
    found = SHARES.one_by_one(rows, transaction.aside)
    idle = [(each.queue, each.share) for each in found if each.idle]
    if idle:
        transaction.run("delete_shares", to_json(idle))
    more = save_last(transaction, "prune_shares", rows, tuple[str, str])
    pending = transaction.pending_by_track()
    empty = [each.number for each in transaction.catalog.tracks.values() if each.fair and each.number not in pending]
    turns = [transaction.run("forget_turns", number, CHORE_BATCH) for number in empty]
    return Step(len(idle) + sum(turns), more or CHORE_BATCH in turns)


def prune_workflows(transaction: Transaction) -> Step:
    """Delete workflows without tasks: reads a bounded number, from where the last step stopped."""
    stored = transaction.row("chore", "prune_workflows")
    after = "" if stored is None or stored[1] is None else str(stored[1])
    looked, last, empty = transaction.row("empty_workflows", after, CHORE_BATCH)
    doomed = texts_decoder.decode(empty)
    if doomed:
        transaction.run("delete_workflows", empty)
    more = looked == CHORE_BATCH
    transaction.run("save_cursor", "prune_workflows", last if more else None)
    return Step(len(doomed), more)
