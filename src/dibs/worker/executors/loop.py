"""Async tasks, on the worker's event loop."""

from __future__ import annotations

from collections.abc import Awaitable

from dibs.attempt.execute import TaskRunner
from dibs.core.task import Settlement
from dibs.worker.run import Run

__all__ = ["LoopExecutor"]


class LoopExecutor:
    """Calls the task's function as it is."""

    def __init__(self, runner: TaskRunner) -> None:
        self._runner = runner

    def run(self, run: Run) -> Awaitable[Settlement]:
        return self._runner.run(run, run.definition, run.definition.function)
