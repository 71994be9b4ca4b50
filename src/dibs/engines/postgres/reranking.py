"""The rerank chore: which tasks are ranked by earlier settings, and retiring the tracks that they leave empty."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.states import WAITING
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.port import Stored
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.verbs import reranking

__all__ = ["rerank"]


async def rerank(transaction: Transaction, steps: list[Step], most: int) -> Done:
    done, unfinished = await reranking.rerank(transaction, steps, stale_tasks)
    if not unfinished:
        await retire(transaction)
    return done, unfinished


async def stale_tasks(transaction: Transaction, most: int) -> tuple[Sequence[Stored], bool]:
    tracks = stale_tracks(transaction)
    found = await transaction.load_by("waiting_locked", tracks, most, transaction.passed_over) if tracks else []
    return found, len(found) == most


def stale_tracks(transaction: Transaction) -> list[int]:
    """The tracks of an earlier epoch, but for retired ones."""
    catalog = transaction.catalog
    return [
        track.number
        for track in catalog.tracks.values()
        if not track.retired and track.queue in catalog.queues and catalog.is_stale(track)
    ]


async def retire(transaction: Transaction) -> None:
    """Retire tracks of earlier settings that have no waiting tasks: claims need not read them again."""
    stale = stale_tracks(transaction)
    counts = await transaction.all_counts() if stale else []
    occupied = {track for what, track, _, _ in counts if what in WAITING}
    empty = [number for number in stale if number not in occupied]
    if empty:
        await transaction.write("retire", empty)
        await transaction.next_generation()
