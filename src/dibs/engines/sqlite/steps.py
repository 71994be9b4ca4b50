"""How every write ends: follow-ups are done, partitions ungate their heads, counts are written."""

from __future__ import annotations

from dibs.engines.decisions.steps import Done, Step, StepKind
from dibs.engines.port import Port, at_once
from dibs.engines.sqlite import partitions
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.verbs import steps

__all__ = ["conclude", "resume"]


async def reorder_some(port: Port, some: list[Step], most: int) -> Done:
    assert isinstance(port, Transaction)
    return partitions.reorder_some(port, some, most)


STEPS = {**steps.STEPS, StepKind.REORDER_QUEUE: reorder_some}


def conclude(transaction: Transaction) -> None:
    """Finish a transaction, up to the commit."""
    if transaction.steps:
        resume(transaction)
    if transaction.partitions:
        partitions.promote_heads(transaction)
    transaction.write_counts()


def resume(transaction: Transaction) -> None:
    """Go on with what earlier transactions have left, and then with what this one has caused."""
    at_once(steps.resume(transaction, STEPS))
