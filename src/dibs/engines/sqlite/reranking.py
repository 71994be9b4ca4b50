"""The rerank chore: tasks whose rank changes with time, then those ranked by earlier settings."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.moves import reranked
from dibs.core.policy import CHORE_BATCH
from dibs.core.states import WAITING
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import at_once
from dibs.engines.sqlite.retention import Step
from dibs.engines.sqlite.rows import Row
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import UnreadableTask
from dibs.engines.verbs.records import Records

__all__ = ["rerank"]


def rerank(transaction: Transaction) -> Step:
    due = transaction.tasks("reranks_due", transaction.now, CHORE_BATCH, to_json(transaction.passed_over))
    rank_again(transaction, due)
    transaction.write_counts()  # what follows reads the counts
    stale = stale_tracks(transaction)
    left = CHORE_BATCH
    done = len(due)
    for name in sorted(stale):
        queue = transaction.catalog.queues[name]
        taken = rerank_pending(transaction, stale[name], left)
        taken += rerank_blocked(transaction, stale[name], left - taken)
        taken += rerank_waiting(transaction, queue, stale[name], left - taken)
        left -= taken
        done += taken
    transaction.write_counts()
    is_stuck = not done and bool(transaction.aside.tasks)  # what is left may be unreadable
    return Step(done, len(due) == CHORE_BATCH or (bool(stale_tracks(transaction)) and not is_stuck))


def stale_tracks(transaction: Transaction) -> dict[str, list[int]]:
    """By queue, the tracks of an earlier epoch that have waiting tasks."""
    found: dict[str, list[int]] = {}
    for what, whose, _ in transaction.all_counts():
        track = transaction.catalog.tracks[int(whose)] if what in WAITING else None
        if track is not None and track.queue in transaction.catalog.queues and transaction.catalog.is_stale(track):
            found.setdefault(track.queue, []).append(track.number)
    return found


def rerank_pending(transaction: Transaction, tracks: list[int], most: int) -> int:
    taken = 0
    for track in tracks:
        rows = transaction.tasks("pending_of", track, most - taken, to_json(transaction.passed_over))
        rank_again(transaction, rows)
        taken += len(rows)
    return taken


def rerank_blocked(transaction: Transaction, tracks: list[int], most: int) -> int:
    if most <= 0:
        return 0
    rows = transaction.tasks("blocked_of", to_json(tracks), most, to_json(transaction.passed_over))
    rank_again(transaction, rows)
    return len(rows)


def rerank_waiting(transaction: Transaction, queue: Queue, tracks: list[int], most: int) -> int:
    """Tasks that are not due: a bounded number, from where the last step stopped."""
    if most <= 0:
        return 0
    after_due, after_id = transaction.row("rerank_cursor", queue.name)
    found = transaction.tasks("due_after", after_due or -1, after_id or "", most, to_json(transaction.passed_over))
    rows = [row for row in found if isinstance(row, Row)]
    stale = [row for row in rows if row.track in tracks]
    rank_again(transaction, stale)
    last: tuple[Instant | None, str | None] = (None, None)
    if len(found) == most:  # unreadable ones have been set aside: the next step skips them
        last = (rows[-1].due_at, rows[-1].id) if rows else (after_due, after_id)
    transaction.run("save_rerank_cursor", *last, queue.name)
    return len(stale)


def rank_again(transaction: Transaction, rows: Sequence[Row | UnreadableTask]) -> None:
    records = Records(transaction)
    for record in records.adopt(transaction.adopted(rows)):
        records.put(reranked(record, transaction.settings(record.queue), transaction.now))
    at_once(records.flush())
