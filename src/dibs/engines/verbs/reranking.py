"""The rerank chore: tasks whose rank changes with time, then those ranked by earlier settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dibs.core.moves import reranked
from dibs.core.policy import CHORE_BATCH
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.port import Port, Stored
from dibs.engines.verbs.records import Records

__all__ = ["StaleTasks", "rerank"]

StaleTasks = Callable[[Any, int], Awaitable[tuple[Sequence[Stored], bool]]]
"""Takes a port and how many: waiting tasks ranked by earlier settings, to be changed, and whether there may be more."""


async def rerank(port: Port, steps: list[Step], stale_tasks: StaleTasks) -> Done:
    due = await port.load_by("reranks_due", port.now, CHORE_BATCH, port.passed_over)
    await rank_again(port, due)
    await port.flush()  # what follows reads the counts
    stale, more = await stale_tasks(port, CHORE_BATCH)
    await rank_again(port, stale)
    await port.flush()
    done = len(due) + len(stale)
    is_stuck = not done and bool(port.passed_over)  # what is left may be unreadable
    return done, steps if len(due) == CHORE_BATCH or (more and not is_stuck) else []


async def rank_again(port: Port, tasks: Sequence[Stored]) -> None:
    records = Records(port)
    for record in records.adopt(tasks):
        records.put(reranked(record, port.settings(record.queue), port.now))
    await records.flush()
