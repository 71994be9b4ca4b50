"""Tasks that may kill their workers: a worker holds one of them at a time.

So a task that kills its process ends no other suspect's run, and the harmless ones complete.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from dibs.core.task import MAX_LOSSES
from dibs.core.times import SECOND, Duration
from dibs.worker.run import Run

__all__ = ["suspects_in", "to_put_off"]

SUSPICIOUS = MAX_LOSSES - 2
"""A task that has lost this many workers is a suspect."""

PUT_OFF: Duration = 5 * SECOND
"""How long a suspect waits if the worker has another one. It doubles each time, up to 80 s, since each wait ends in a
claim."""

SPREAD = 10
"""Suspects that are put off together for at most twice as long as one alone. More are spread over a longer time."""


def suspects_in(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.task.losses >= SUSPICIOUS]


def to_put_off(suspects: list[Run], held: Iterable[Run]) -> list[tuple[Run, Duration]]:
    """Which of the `suspects` that were just claimed go back to the store, in this order, and for how long.

    If there are several, all go back: one that started now might end this process before the others have left.
    """
    count = sum(not run.settled for run in suspects_in(held))
    if count == 1:
        return []
    first, *others = suspects
    alone = count == len(suspects)  # no other suspect was here before these
    delayed = [(run, delay_of(run, len(suspects))) for run in (others if alone else suspects)]
    # The first comes back at once, but is settled last: the others must be gone when it is claimed again.
    return [*delayed, (first, 0)] if alone else delayed


def delay_of(run: Run, together: int) -> Duration:
    spread = 1 + random.random() * together / SPREAD
    return round((PUT_OFF << min(run.task.handed_back, 4)) * spread)
