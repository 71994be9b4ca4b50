"""rescue: which workers are absent is asked inside the transaction."""

from __future__ import annotations

from collections.abc import Callable

from dibs.core.times import Instant
from dibs.engines.port import Read, at_once
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import Rescued
from dibs.engines.verbs import rescue as shared

__all__ = ["rescue"]

BYTES_HELD = Read("bytes_held", tuple[str, int], "presence of worker")
"""Takes nothing: the bytes of the presence file that living workers should hold, as (worker, byte)."""


def rescue(
    transaction: Transaction,
    absent: Callable[[dict[str, int]], set[str]],
    ended_by: Instant | None,
    not_after: Instant | None,
) -> Rescued:
    transaction.refresh()
    transaction.look_again()
    gone = absent(dict(at_once(transaction.read(BYTES_HELD))))
    return at_once(shared.rescue(transaction, sorted(gone), 0, ended_by, not_after))
