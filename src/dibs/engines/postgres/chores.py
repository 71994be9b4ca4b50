"""The leader's chores in this engine: those of all engines, and those of its counts and partitioned tables."""

from __future__ import annotations

from dibs.engines.decisions.steps import Done, Step
from dibs.engines.postgres import reranking, retention
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.verbs import chores
from dibs.engines.verbs.retention import limited

__all__ = ["CHORES", "fold_counts"]

FOLD_BATCH = 50_000


async def fold_counts(transaction: Transaction, steps: list[Step], most: int) -> Done:
    """Add up the changes of counts."""
    return limited(steps, await transaction.value("fold", FOLD_BATCH), FOLD_BATCH)


CHORES: dict[str, chores.Chore] = {
    "rerank": reranking.rerank,
    "fold_counts": fold_counts,
    "make_days": retention.make_days,
    **chores.CHORES,
    "prune_finished": retention.prune_finished,
    "prune_orphans": retention.prune_orphans,
}
