"""The rerank chore: which tasks are ranked by earlier settings."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.states import WAITING
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.port import Stored
from dibs.engines.sqlite.rows import Row
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import UnreadableTask
from dibs.engines.verbs import reranking

__all__ = ["rerank"]


async def rerank(transaction: Transaction, steps: list[Step], most: int) -> Done:
    return await reranking.rerank(transaction, steps, stale_tasks)


async def stale_tasks(transaction: Transaction, most: int) -> tuple[Sequence[Stored], bool]:
    rows: list[Row | UnreadableTask] = []
    more = False
    for queue, tracks in sorted(stale_tracks(transaction).items()):
        rows += transaction.pending_of(tracks, most - len(rows))
        if len(rows) < most:
            passed = to_json(transaction.passed_over)
            rows += transaction.tasks("blocked_of", to_json(tracks), most - len(rows), passed)
        if len(rows) < most:
            found, is_truncated = stale_due(transaction, queue, tracks, most - len(rows))
            rows += found
            more = more or is_truncated
    return transaction.adopted(rows), more or len(rows) == most


def stale_tracks(transaction: Transaction) -> dict[str, list[int]]:
    """By queue, the tracks of an earlier epoch that have waiting tasks."""
    found: dict[str, list[int]] = {}
    for what, whose, _ in transaction.all_counts():
        track = transaction.catalog.tracks[int(whose)] if what in WAITING else None
        if track is not None and track.queue in transaction.catalog.queues and transaction.catalog.is_stale(track):
            found.setdefault(track.queue, []).append(track.number)
    return found


def stale_due(transaction: Transaction, queue: str, tracks: list[int], most: int) -> tuple[list[Row], bool]:
    """Tasks that are not due: a bounded number is visited, from where the last step stopped. True if there are more."""
    after_due, after_id = transaction.row("rerank_cursor", queue)
    found = transaction.tasks("due_after", after_due or -1, after_id or "", most, to_json(transaction.passed_over))
    rows = [row for row in found if isinstance(row, Row)]
    last: tuple[Instant | None, str | None] = (None, None)
    if len(found) == most:  # unreadable ones have been set aside: the next step skips them
        last = (rows[-1].due_at, rows[-1].id) if rows else (after_due, after_id)
    transaction.run("save_rerank_cursor", *last, queue)
    return [row for row in rows if row.track in tracks], len(found) == most
