"""Threads for plain functions.

They are daemon threads of our own: one that hangs past its timeout must not keep the process from leaving, as the
threads of `concurrent.futures` would.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context as Variables
from queue import SimpleQueue
from typing import Any

__all__ = ["Job", "Threads"]


class Job:
    """One call in a thread. `answer` resolves to (value, error); `ended` is called on the loop when the thread is free
    again, also when nobody waits for the answer any more."""

    __slots__ = ("answer", "call", "ended", "error", "value")

    def __init__(self, call: Callable[[], Any], answer: asyncio.Future[Any], ended: Callable[[], None]) -> None:
        self.call = call
        self.answer = answer
        self.ended = ended
        self.value: Any = None
        self.error: BaseException | None = None


class Threads:
    """As many threads as are needed at once, kept for the next calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[Job] = deque()
        self._draining = False
        self._count = 0
        self._busy = 0

    async def call(self, function: Callable[[], Any], ended: Callable[[], None]) -> Any:
        """Run `function` in a thread. Cancelling the wait leaves the thread running; `ended` tells when it is done."""
        job = Job(function, self._loop.create_future(), ended)
        self._busy += 1
        if self._busy > self._count:
            self._count += 1
            thread = threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True)
            thread.start()
        self._jobs.put(job)
        await job.answer
        try:
            if job.error is not None:
                raise job.error
            return job.value
        finally:
            # Else the error would keep this frame, and the frame the error, with all that the task had: a connection
            # with an open transaction, say.
            del job

    def close(self) -> None:
        """Let idle threads end; busy ones end with what they do, or with the process."""
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
            except RuntimeError:  # the loop has been closed: the worker left without waiting for this thread
                return

    def _drain(self) -> None:
        # Cleared before looking: a job that comes after the last look wakes the loop again.
        self._draining = False
        while self._done:
            job = self._done.popleft()
            self._busy -= 1
            if not job.answer.done():
                job.answer.set_result(None)
            job.ended()
