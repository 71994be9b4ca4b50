"""Follow-ups that a transaction leaves to others, or goes on with."""

from __future__ import annotations

from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.steps import Step, StepKind
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.verbs import steps
from dibs.engines.verbs.shares import MovedShares


async def defer(transaction: Transaction) -> bool:
    """`conclude` in a transaction of the user's own: it holds no lock on queues, and may last.

    All its follow-ups are left to the next claim after its commit; True if there are any.
    """
    changed = [to_json([each.key for each in partitions]) for partitions in transaction.partitions.values()]
    transaction.partitions.clear()
    left = [*transaction.steps, *(Step(StepKind.REORDER_PARTITIONS, keys) for keys in changed)]
    transaction.steps.clear()
    moved = MovedShares([(*key, n) for key, n in transaction.shares.items() if n], [*transaction.new_turns])
    transaction.shares.clear()
    transaction.new_turns.clear()
    if moved.counts or moved.turns:
        left.append(Step(StepKind.COUNT_SHARES, to_json(moved)))
    if left:
        await transaction.write("add_steps", left)
    await transaction.flush()
    return bool(left)


async def resume(transaction: Transaction) -> bool:
    """Go on with what earlier transactions have left, and then with what this one has caused; True if some is left."""
    await steps.resume(transaction)
    return bool(await transaction.value("has_prompt_steps", list(transaction.aside.steps)))
