"""How every write ends: follow-ups are done, partitions promote their heads, counts are written."""

from __future__ import annotations

from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.steps import Done, Step, StepKind
from dibs.engines.port import Port
from dibs.engines.postgres import partitions
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.verbs import steps

__all__ = ["conclude", "defer", "resume"]


async def reorder_some(port: Port, some: list[Step], most: int) -> Done:
    assert isinstance(port, Transaction)
    return await partitions.reorder_some(port, some, most)


async def mark_changed_again(port: Port, some: list[Step], most: int) -> Done:
    assert isinstance(port, Transaction)
    return await partitions.mark_changed_again(port, some, most)


STEPS = {
    **steps.STEPS,
    StepKind.REORDER_QUEUE: reorder_some,
    StepKind.REORDER_PARTITIONS: mark_changed_again,
}


async def conclude(transaction: Transaction) -> None:
    """Bring a transaction to its end, up to the commit."""
    if transaction.steps:
        await steps.resume(transaction, STEPS)
    if transaction.partitions:
        await partitions.promote_heads(transaction)
    await transaction.flush()


async def defer(transaction: Transaction) -> bool:
    """`conclude` in a transaction of the user's own: it holds no lock on queues, and may last.

    All its follow-ups are left to the next claim after its commit; True if there are any.
    """
    changed = [to_json([each.key for each in partitions]) for partitions in transaction.partitions.values()]
    transaction.partitions.clear()
    left = [*transaction.steps, *(Step(StepKind.REORDER_PARTITIONS, keys) for keys in changed)]
    transaction.steps.clear()
    if left:
        await transaction.write("add_steps", left)
    await transaction.flush()
    return bool(left)


async def resume(transaction: Transaction) -> bool:
    """Go on with what earlier transactions have left, and then with what this one has caused; True if some is left."""
    await steps.resume(transaction, STEPS)
    return bool(await transaction.value("has_prompt_steps", list(transaction.aside.steps)))
