"""The rerank chore: tasks whose rank changes with time, then those ranked by earlier settings."""

from __future__ import annotations

from dibs.core.moves import reranked
from dibs.core.policy import CHORE_BATCH
from dibs.core.states import WAITING
from dibs.engines.postgres.retention import Step
from dibs.engines.postgres.rows import TaskRow
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.verbs.records import Records

__all__ = ["rerank"]


async def rerank(transaction: Transaction) -> Step:
    due = await transaction.rows("reranks_due", transaction.now, CHORE_BATCH, transaction.passed_over)
    await rank_again(transaction, due)
    stale = [
        track.number
        for track in transaction.catalog.tracks.values()
        if not track.retired and track.queue in transaction.catalog.queues and transaction.catalog.is_stale(track)
    ]
    rows = await transaction.rows("waiting_locked", stale, CHORE_BATCH, transaction.passed_over) if stale else []
    await rank_again(transaction, rows)
    await transaction.flush()
    if stale and len(rows) < CHORE_BATCH:
        await retire(transaction, stale)
    return Step(len(due) + len(rows), len(due) == CHORE_BATCH or len(rows) == CHORE_BATCH)


async def rank_again(transaction: Transaction, rows: list[TaskRow]) -> None:
    records = Records(transaction)
    for record in records.adopt(transaction.adopted(rows)):
        records.put(reranked(record, transaction.settings(record.queue), transaction.now))
    await records.flush()


async def retire(transaction: Transaction, stale: list[int]) -> None:
    """Retire tracks of earlier settings that have no waiting tasks: claims need not read them again."""
    occupied = {track for what, track, _, _ in await transaction.all_counts() if what in WAITING}
    empty = [number for number in stale if number not in occupied]
    if empty:
        await transaction.write("retire", empty)
        await transaction.next_generation()
