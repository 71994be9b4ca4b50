"""rescue: which workers are absent is asked inside the transaction."""

from __future__ import annotations

from dibs.core.times import Instant
from dibs.engines.port import Read, at_once
from dibs.engines.sqlite.presence import Presence
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import Rescued
from dibs.engines.verbs import rescue as shared

__all__ = ["rescue"]

BYTES_HELD = Read("bytes_held", tuple[str, int], "presence of worker")
"""Takes nothing: the bytes of the presence file that living workers should hold, as (worker, byte)."""


def rescue(
    transaction: Transaction, presence: Presence, ended_by: Instant | None, not_after: Instant | None
) -> Rescued:
    transaction.refresh()
    transaction.look_again()
    absent = presence.absent(dict(at_once(transaction.read(BYTES_HELD))))
    return at_once(shared.rescue(transaction, sorted(absent), 0, ended_by, not_after))
