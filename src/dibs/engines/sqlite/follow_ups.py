"""How every write ends: follow-ups are done, partitions ungate their heads, counts are written."""

from __future__ import annotations

from dibs.engines.decisions.follow_ups import Done, FollowUp, FollowUpKind
from dibs.engines.port import Port, at_once
from dibs.engines.sqlite import partitions
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.verbs import follow_ups

__all__ = ["conclude", "resume"]


async def reorder_some(port: Port, some: list[FollowUp], most: int) -> Done:
    assert isinstance(port, Transaction)
    return partitions.reorder_some(port, some, most)


STEPS = {**follow_ups.STEPS, FollowUpKind.REORDER_QUEUE: reorder_some}


def conclude(transaction: Transaction) -> None:
    """Finish a transaction, up to the commit."""
    if transaction.follow_ups:
        resume(transaction)
    if transaction.partitions:
        partitions.promote_heads(transaction)
    transaction.write_counts()


def resume(transaction: Transaction) -> None:
    """Go on with what earlier transactions have left, and then with what this one has caused."""
    at_once(follow_ups.resume(transaction, STEPS))
