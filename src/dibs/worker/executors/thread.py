"""Plain functions, in threads.

These are daemon threads: one that hangs past its timeout must not keep the process from ending, as the threads of
`concurrent.futures` would.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context as Variables
from functools import partial
from queue import SimpleQueue
from typing import Any

from dibs.attempt.context import CURRENT
from dibs.attempt.execute import TaskRunner
from dibs.core.task import Settlement
from dibs.worker.run import Run


class Job:
    """One call in a thread; `answer` resolves when it has ended."""

    __slots__ = ("answer", "call", "error", "run", "value")

    def __init__(self, run: Run, call: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        self.run = run
        self.call = call
        self.answer = answer
        self.value: Any = None
        self.error: BaseException | None = None


class ThreadExecutor:
    """As many threads as are needed at once, kept for the next calls."""

    def __init__(self, runner: TaskRunner, ended: Callable[[Run], None]) -> None:
        """`ended` is called on the loop when the thread of a run is free again, also if the run was not waited for."""
        self._runner = runner
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[Job] = deque()
        self._draining = False
        self._count = 0
        self._busy = 0

    def run(self, run: Run) -> Awaitable[Settlement]:
        return self._runner.run(run, run.definition, partial(self._call, run))

    async def _call(self, run: Run, /, *args: Any, **kwargs: Any) -> Any:
        """Call the task's function in a thread. Cancelling the wait leaves the thread running."""
        function, context = self._runner.function_of(run.definition), CURRENT.get()

        def call() -> Any:
            CURRENT.set(context)
            return function(*args, **kwargs)

        job = Job(run, call, self._loop.create_future())
        run.in_thread = True
        self._busy += 1
        if self._busy > self._count:
            self._count += 1
            threading.Thread(target=self._work, name=f"dibs-task-{self._count}", daemon=True).start()
        self._jobs.put(job)
        await job.answer
        try:
            if job.error is not None:
                raise job.error
            return job.value
        finally:
            # Otherwise the error keeps this frame and the frame the error, with everything that the task had, such as
            # a connection with an open transaction.
            del job

    def close(self) -> None:
        """Let idle threads end; busy ones end with their call, or with the process."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                # A fresh set of context variables for each call: nothing leaks from one task into the next.
                job.value = Variables().run(job.call)
            except BaseException as error:
                job.error = error
            self._tell(job)
            del job

    def _tell(self, job: Job) -> None:
        """Wake the loop once for all jobs that end before it looks."""
        self._done.append(job)
        if not self._draining:
            self._draining = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: the worker left without waiting for this thread
                return

    def _drain(self) -> None:
        # Cleared first: a job that ends after the loop below has looked wakes the loop again.
        self._draining = False
        while self._done:
            job = self._done.popleft()
            self._busy -= 1
            if not job.answer.done():
                job.answer.set_result(None)
            self._ended(job.run)
