"""Chores for what limits and shares leave behind: full buckets, and shares that are as good as new."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from dibs.core.limits import Bucket, Scope, limit_of, refill
from dibs.core.times import Instant
from dibs.engines.deciding.encoding import to_json
from dibs.engines.sqlite.pruning import CHORE_BATCH, Step
from dibs.engines.sqlite.transaction import Transaction

__all__ = ["prune_buckets", "prune_shares"]


class StoredBucket(Struct, array_like=True, frozen=True):
    """A row of dibs_buckets."""

    queue: str
    scope: Scope
    whose: str
    level: int
    at: Instant
    opens_at: Instant | None


class StoredShare(Struct, array_like=True, frozen=True):
    """A row of dibs_shares. `idle`: nothing is pending, and the clock has passed its tag."""

    queue: str
    share: str
    idle: int


buckets_decoder = msgspec.json.Decoder(list[StoredBucket])
shares_decoder = msgspec.json.Decoder(list[StoredShare])
cursor_decoder = msgspec.json.Decoder(tuple[str, ...])


def cursor_of(transaction: Transaction, chore: str, parts: int) -> tuple[str, ...]:
    """Where the last step stopped, or before everything."""
    stored = transaction.row("chore", chore)
    return ("",) * parts if stored is None or stored[1] is None else cursor_decoder.decode(stored[1])


def prune_buckets(transaction: Transaction) -> Step:
    """Forget buckets that are full again, or of limits that are no longer set: both are as good as none."""
    after = cursor_of(transaction, "prune_buckets", 3)
    found = buckets_decoder.decode(transaction.value("buckets_after", *after, CHORE_BATCH))
    idle = [(each.queue, each.scope, each.whose) for each in found if is_full(transaction, each)]
    if idle:
        transaction.write("delete_buckets", to_json(idle))
    more = len(found) == CHORE_BATCH
    last = to_json((found[-1].queue, found[-1].scope, found[-1].whose)) if more else None
    transaction.write("save_cursor", "prune_buckets", last)
    return Step(len(idle), more)


def is_full(transaction: Transaction, stored: StoredBucket) -> bool:
    limit = limit_of(transaction.settings(stored.queue), stored.scope, stored.whose)
    if limit is None or limit.rate is None:
        return True
    if stored.opens_at is not None:  # tasks wait for it, and a claim has yet to let them forward
        return False
    return refill(Bucket(stored.level, stored.at), limit, transaction.now) == refill(None, limit, transaction.now)


def prune_shares(transaction: Transaction) -> Step:
    """Forget shares without tasks that the clock has passed, and turns in streams that have nothing pending."""
    after = cursor_of(transaction, "prune_shares", 2)
    found = shares_decoder.decode(transaction.value("shares_after", *after, CHORE_BATCH))
    idle = [(each.queue, each.share) for each in found if each.idle]
    if idle:
        transaction.write("delete_shares", to_json(idle))
    more = len(found) == CHORE_BATCH
    last = to_json((found[-1].queue, found[-1].share)) if more else None
    transaction.write("save_cursor", "prune_shares", last)
    pending = transaction.pending_by_stream()
    empty = [each.number for each in transaction.catalog.streams.values() if each.fair and each.number not in pending]
    turns = [transaction.write("forget_turns", number, CHORE_BATCH) for number in empty]
    return Step(len(idle) + sum(turns), more or CHORE_BATCH in turns)
