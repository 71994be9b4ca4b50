"""Tasks that must be killable or limited, in executor processes: started when needed, reused, one task at a time."""

from __future__ import annotations

import asyncio
import atexit
import time

from msgspec import structs

from dibs.attempt import outcome
from dibs.attempt.payloads import arguments
from dibs.core.task import Outcome, Settlement
from dibs.errors import DibsError
from dibs.runtime.definition import ExecutorKind
from dibs.runtime.hub import Hub
from dibs.worker.executors.app_path import find_app_path
from dibs.worker.executors.child_process import ChildDied, ChildProcess
from dibs.worker.executors.child_protocol import Start
from dibs.worker.run import Run

__all__ = ["ChildFailed", "ProcessExecutor"]

FAREWELL = 2.0
"""Seconds for idle children to close their resources when the worker leaves."""


class ChildFailed(Exception):
    """A run in a child failed: the task raised, or the child died."""

    def __init__(self, settlement: Settlement) -> None:
        super().__init__(settlement.note)
        self.settlement = settlement


class ProcessExecutor:
    """The executor processes of one worker."""

    def __init__(self, hub: Hub, app: str | None = None) -> None:
        """`app` says where children import the app from, `MODULE:APP`; by default Dibs looks for it.

        Raises if the app has tasks for children, but children could not find the app.
        """
        self._hub = hub
        self._given = app
        self._app: str | None = None
        self._idle: list[ChildProcess] = []
        self._all: set[ChildProcess] = set()
        if any(definition.executor is ExecutorKind.PROCESS for definition in hub.definitions.values()):
            self._app = find_app_path(hub, app)

    async def run(self, run: Run) -> Settlement:
        """Run a task in a child. Starting the child does not count as running. Cancelling this kills the child."""
        task = run.task
        try:
            json = await arguments(self._hub, task)
        except DibsError as error:
            return outcome.unready(task, error)
        try:
            settlement = await self._in_child(run, json)
        except ChildDied as error:
            settlement = outcome.failed_with(task, error.failure, retry=True)
        if settlement.outcome is not Outcome.COMPLETED:
            raise ChildFailed(settlement)
        return settlement

    async def _in_child(self, run: Run, args: bytes) -> Settlement:
        child = await self._take()
        reusable = False
        try:
            run.begin()
            ended = await child.run(start_of(run, args), run)
            # A run that failed inside a transaction of its own may have left it open: it ends with the child.
            completed = ended.settlement.outcome is Outcome.COMPLETED
            reusable = completed or not (ended.spoiled or run.completing)
            return ended.settlement
        finally:
            if reusable and child.alive:
                self._idle.append(child)
            else:
                self._drop(child)

    async def _take(self) -> ChildProcess:
        """An idle child that is still alive, or a new one."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._drop(child)
        if self._app is None:  # its first task for processes was defined after the worker had started
            self._app = find_app_path(self._hub, self._given)
        if not self._all:
            atexit.register(self._kill_all)  # before multiprocessing waits for children that wait for this process
        child = ChildProcess(self._app)
        self._all.add(child)
        try:
            await child.ready()
        except BaseException:
            self._drop(child)
            raise
        return child

    def _drop(self, child: ChildProcess) -> None:
        child.kill()
        child.hang_up()
        self._all.discard(child)

    def _kill_all(self) -> None:
        for child in tuple(self._all):
            child.kill()

    async def close(self) -> None:
        """Let idle children close their resources, for a moment; then kill what is left."""
        leaving = [child for child in self._all if child.alive]
        for child in leaving:
            child.hang_up()
        if leaving:
            goodbyes = [asyncio.ensure_future(child.gone()) for child in leaving]
            _, late = await asyncio.wait(goodbyes, timeout=FAREWELL)
            for goodbye in late:
                goodbye.cancel()
        self._kill_all()
        self._all.clear()
        self._idle.clear()
        atexit.unregister(self._kill_all)


def start_of(run: Run, args: bytes) -> Start:
    now = time.monotonic()
    return Start(
        task=structs.replace(run.task, args=b""),
        args=args,
        module=run.definition.function.__module__,
        valid_for=run.valid_until - now,
        time_left=None if run.timeout_at is None else run.timeout_at - now,
    )
