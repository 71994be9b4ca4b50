"""The leader's chores in this engine: those of all engines, and those of a file."""

from __future__ import annotations

from dibs.engines.decisions.steps import Done, Step
from dibs.engines.sqlite import reranking, retention
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.verbs import chores

__all__ = ["CHORES"]

VACUUM_PAGES = 1000
FREE_SHARE = 0.25
"""A file returns pages only when more than this share of it is free: pages are soon needed again."""


async def vacuum(transaction: Transaction, steps: list[Step], most: int) -> Done:
    """Return pages to the filesystem when much of the file is free."""
    execute = transaction.connection.execute
    free = execute("PRAGMA freelist_count").fetchone()[0]
    enough = max(VACUUM_PAGES, FREE_SHARE * execute("PRAGMA page_count").fetchone()[0])
    if free <= enough:
        return 0, []
    execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
    left = execute("PRAGMA freelist_count").fetchone()[0]
    return free - left, steps if left > enough else []


async def checkpoint(transaction: Transaction, steps: list[Step], most: int) -> Done:
    raise AssertionError("checkpoints can't be made in a transaction: see FileStore.checkpoint")


CHORES: dict[str, chores.Chore] = {
    "rerank": reranking.rerank,
    **chores.CHORES,
    "prune_finished": retention.prune_finished,
    "prune_dead": retention.prune_dead,
    "checkpoint": checkpoint,
    "vacuum": vacuum,
}
