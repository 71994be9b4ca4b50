"""What one worker's runs came to, by queue, name and tier: the source of its metrics, kept since it started."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from dibs.core.settings import tier_of
from dibs.core.states import ENDED, State
from dibs.core.task import LeasedTask, Outcome
from dibs.core.times import SECOND
from dibs.observe.distribution import Distribution

__all__ = ["RunFigures"]


class Runs(Struct):
    """Those of one task name in one queue. Completed ones have a number of their own: to hash an enum takes longer."""

    seconds: Distribution
    completed: int = 0
    others: dict[Outcome, int] = {}


class RunFigures:
    """Counts settled runs. Written on the worker's loop, for each run; other threads may read copies."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], Runs] = {}
        self._completed: dict[int, Distribution] = {}
        """By priority: the tier is looked up when somebody asks."""
        self._ended: dict[tuple[int, State], Distribution] = {}

    def record(self, task: LeasedTask, outcome: Outcome, state: State | None, seconds: float) -> None:
        """Count one settled run that took so many seconds, and whose task is in this state now."""
        key = (task.queue, task.name)
        runs = self._runs.get(key)
        if runs is None:
            runs = self._runs[key] = Runs(Distribution.empty())
        priority = task.spec.priority
        if outcome is COMPLETED:
            runs.completed += 1
            task_seconds = self._completed.get(priority)
            if task_seconds is None:
                task_seconds = self._completed[priority] = Distribution.empty()
        else:
            runs.others[outcome] = runs.others.get(outcome, 0) + 1
            if outcome is Outcome.RELEASED or outcome is Outcome.SNOOZED:
                return
            task_seconds = self._of_end(priority, state)
        runs.seconds.observe(seconds)
        task_seconds.observe((task.claimed_at - task.ready_at) / SECOND + seconds)

    def _of_end(self, priority: int, state: State | None) -> Distribution:
        if state is None or state not in ENDED:
            return Distribution.empty()  # it goes on: what it took is counted when it ends
        return self._ended.setdefault((priority, state), Distribution.empty())

    def runs(self) -> Iterator[tuple[tuple[str, str, Outcome], int]]:
        """By queue, name and outcome."""
        for (queue, name), runs in [*self._runs.items()]:
            counted = {COMPLETED: runs.completed, **runs.others}
            yield from (((queue, name, outcome), number) for outcome, number in counted.items() if number)

    def run_seconds(self) -> list[tuple[tuple[str, str], Distribution]]:
        """By queue and name: from claim to settle."""
        return [(key, runs.seconds) for key, runs in [*self._runs.items()] if runs.seconds.count]

    def task_seconds(self) -> list[tuple[tuple[str, State], Distribution]]:
        """By tier and final state: from ready to settle, with all waiting."""
        found: dict[tuple[str, State], Distribution] = {}
        completed = {(priority, State.COMPLETED): each for priority, each in [*self._completed.items()]}
        for (priority, state), seconds in [*completed.items(), *self._ended.items()]:
            found.setdefault((tier_of(priority), state), Distribution.empty()).merge(seconds)
        return list(found.items())


COMPLETED = Outcome.COMPLETED
