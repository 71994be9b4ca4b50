"""Chores for what workflows, limits and shares leave behind."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from dibs.core.limits import Bucket, Scope, limit_of, refill
from dibs.core.policy import CHORE_BATCH
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.sqlite.retention import Step, cursor_of, save_last
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.statements import row_by_row
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["BUCKETS", "prune_buckets", "prune_shares", "prune_workflows"]

texts_decoder = msgspec.json.Decoder(list[str])


class StoredBucket(Struct, array_like=True, frozen=True):
    """A row of dibs_buckets."""

    queue: str
    scope: Scope
    whose: str
    level: int
    at: Instant
    refill_at: Instant | None


class StoredShare(Struct, array_like=True, frozen=True):
    """A row of dibs_shares. `idle`: nothing is pending, and the clock has passed its tag."""

    queue: str
    share: str
    idle: int


BUCKETS = RowDecoder(StoredBucket, "limit of", 0, 1, 2)
SHARES = RowDecoder(StoredShare, "share", 0, 1)


def prune_buckets(transaction: Transaction) -> Step:
    """Forget buckets that are full again, or of limits that are no longer set: both are as good as none."""
    after = cursor_of(transaction, "prune_buckets", tuple[str, str, str]) or ("", "", "")
    rows = transaction.each(row_by_row("buckets_after"), (*after, CHORE_BATCH))
    found = BUCKETS.one_by_one(rows, transaction.aside)
    idle = [(each.queue, each.scope, each.whose) for each in found if is_full(transaction, each)]
    if idle:
        transaction.run("delete_buckets", to_json(idle))
    return Step(len(idle), save_last(transaction, "prune_buckets", rows, tuple[str, str, str]))


def is_full(transaction: Transaction, stored: StoredBucket) -> bool:
    if stored.queue in transaction.catalog.unreadable:  # nobody knows its limits
        return False
    limit = limit_of(transaction.settings(stored.queue), stored.scope, stored.whose)
    if limit is None or limit.rate is None:
        return True
    if stored.refill_at is not None:  # tasks wait for it, and a claim has yet to let them forward
        return False
    return refill(Bucket(stored.level, stored.at), limit, transaction.now) == refill(None, limit, transaction.now)


def prune_shares(transaction: Transaction) -> Step:
    """Forget shares without tasks that the clock has passed, and turns in streams that have nothing pending."""
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
