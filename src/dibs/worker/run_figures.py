"""What one worker's runs came to, by queue, name and tier: the source of its metrics, kept since it started."""

from __future__ import annotations

from dibs.core.settings import tier_of
from dibs.core.states import ENDED, State
from dibs.core.task import LeasedTask, Outcome
from dibs.core.times import SECOND
from dibs.observe.distribution import Distribution

__all__ = ["RunFigures"]


class RunFigures:
    """Counts settled runs. Written on the worker's loop; other threads may read copies."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str, Outcome], int] = {}
        self._run_seconds: dict[tuple[str, str], Distribution] = {}
        self._task_seconds: dict[tuple[str, State], Distribution] = {}

    def record(self, task: LeasedTask, outcome: Outcome, state: State | None, seconds: float) -> None:
        """Count one settled run that took so many seconds, and whose task is in this state now."""
        of_task = (task.queue, task.name)
        key = (*of_task, outcome)
        self._runs[key] = self._runs.get(key, 0) + 1
        if outcome is Outcome.RELEASED or outcome is Outcome.SNOOZED:
            return
        distribution = self._run_seconds.get(of_task)
        if distribution is None:
            distribution = self._run_seconds[of_task] = Distribution.empty()
        distribution.observe(seconds)
        if state is not None and state in ENDED:
            end = (tier_of(task.spec.priority), state)
            distribution = self._task_seconds.get(end)
            if distribution is None:
                distribution = self._task_seconds[end] = Distribution.empty()
            distribution.observe((task.claimed_at - task.ready_at) / SECOND + seconds)

    def runs(self) -> list[tuple[tuple[str, str, Outcome], int]]:
        """By queue, name and outcome."""
        return list(self._runs.items())

    def run_seconds(self) -> list[tuple[tuple[str, str], Distribution]]:
        """By queue and name: from claim to settle."""
        return list(self._run_seconds.items())

    def task_seconds(self) -> list[tuple[tuple[str, State], Distribution]]:
        """By tier and final state: from ready to settle, with all waiting."""
        return list(self._task_seconds.items())
