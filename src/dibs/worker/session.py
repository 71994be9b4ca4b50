"""One life of a worker, on its loop: builds the parts, serves, and leaves in good order."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from dibs.core.task import WorkerState
from dibs.engines.values import Beat
from dibs.errors import StoreError
from dibs.runtime.environment import host
from dibs.runtime.hub import Hub
from dibs.runtime.rescue import Rescue
from dibs.version import __version__
from dibs.worker.counters import Tally
from dibs.worker.executors.process import Processes
from dibs.worker.fetcher import Fetcher
from dibs.worker.health import StoreHealth
from dibs.worker.heartbeat import Heart
from dibs.worker.maintenance.blob_sweeper import Sweeper
from dibs.worker.maintenance.rescuer import Leader, Rescuer
from dibs.worker.maintenance.scheduler import Scheduler
from dibs.worker.minute_stats import MinuteRecorder
from dibs.worker.run import Stop
from dibs.worker.settings import WorkerSettings
from dibs.worker.settler import Reports
from dibs.worker.slots import GRACE, Runs
from dibs.worker.status import ExitCode, ExitReport, WorkerStats

__all__ = ["Session", "stats_of"]

log = logging.getLogger("dibs.worker")

SIGN_OFF = 5.0
"""Seconds for the last settlements, and as many for the last sign, once nothing runs any more."""


class Session:
    """Everything between start and exit report."""

    def __init__(self, hub: Hub, settings: WorkerSettings, worker: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.hub = hub
        self.settings = settings
        self.id = worker
        self.state = WorkerState.ACTIVE
        self.runs: Runs | None = None
        self._stopping = asyncio.Event()
        self._turn = asyncio.Event()
        self._deadline: float | None = None
        self._reason = "asked to stop"
        self._code = ExitCode.CLEAN
        self._handed_back = 0

    def stop(self, timeout: float | None, reason: str = "asked to stop") -> None:
        """Begin to leave, or leave sooner."""
        seconds = self.settings.shutdown_timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        if not self._stopping.is_set():
            self._reason = reason
            waits = self.runs is not None and self.runs.ending()
            patience = f" Waiting up to {seconds:.0f} s for running tasks." if waits else ""
            log.info("Worker %s stops: %s.%s", self.id, reason, patience)
            self._deadline = deadline
            self._stopping.set()
            if self.runs is not None:
                self.runs.leave()
        elif self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
        self._turn.set()

    async def run(self, ready: Callable[[], None]) -> ExitReport:
        self._build()
        assert self.runs is not None
        async with AsyncExitStack() as resources:
            lifespan = self.hub.lifespan
            if lifespan is not None:
                self.runs.provide(await resources.enter_async_context(lifespan()))
            services: list[asyncio.Task[None]] = []
            await self._heart.start()
            try:
                await self._scheduler.begin()
                services = [self._serve(name, work) for name, work in self._services()]
                log.info("Worker %s serves %s.", self.id, ", ".join(self.settings.served(self.hub)))
                ready()
                await self._stopping.wait()
                await self._leave(services)
            finally:
                for service in services:
                    service.cancel()
                await self._heart.stop(SIGN_OFF)
                await self._processes.close()
                self.runs.close()
        stats = self.stats()
        log.info("Worker %s left (%s): %d run, %d failed.", self.id, self._reason, stats.executed, stats.failed)
        return ExitReport(code=self._code, reason=self._reason, stats=stats, handed_back=self._handed_back)

    def _build(self) -> None:
        hub, settings = self.hub, self.settings
        hub.load_allowed()
        health = StoreHealth()
        self._minutes = MinuteRecorder(self.id)
        self._processes = Processes()
        self.runs = runs = Runs(hub, settings, self._minutes, self._processes)
        runs.reports = Reports(hub.engine, hub.clock, health, runs.answered)
        self._fetcher = Fetcher(hub, settings, self.id, runs, health, self._idle)
        self._heart = Heart(hub.engine, hub.clock, runs, health, self._minutes, self.id, self._sign, self._obey)
        self._fetcher.hurry = self._heart.hurry
        runs.nudge = self._heart.nudge
        runs.changed = self._changed
        runs.due_in = self._fetcher.due_in
        self._rescuer = Rescuer(Rescue(hub), health)
        self._leader = leader = Leader(hub.engine, hub.clock, health, self.id)
        self._scheduler = Scheduler(hub, health, leader)
        leader.gained = self._scheduler.wake
        self._sweeper = Sweeper(hub, lambda: leader.leads)

    def _services(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        return [
            ("fetcher", self._fetcher.run()),
            ("rescuer", self._rescuer.run()),
            ("leader", self._leader.run()),
            ("scheduler", self._scheduler.run()),
            ("sweeper", self._sweeper.run()),
        ]

    def _serve(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A part that runs until it is cancelled; if it breaks, the worker leaves and says so."""
        service = self.loop.create_task(work, name=f"dibs-{name}")

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("The worker's %s broke.", name, exc_info=error)
                self._code = ExitCode.FAILED
                self.stop(None, f"its {name} broke: {error}")

        service.add_done_callback(ended)
        return service

    def _sign(self) -> Beat:
        """The sign of life; from the heart's thread."""
        assert self.runs is not None
        return Beat(
            id=self.id,
            host=host(),
            pid=os.getpid(),
            version=__version__,
            queues=self.settings.served(self.hub),
            names=tuple(self.hub.definitions),
            capabilities=self.settings.offered(),
            concurrency=self.settings.concurrency,
            running=self.runs.busy,
            minutes=self._minutes.take(),
        )

    def _obey(self, state: WorkerState) -> None:
        """Take the state that the store says; on the loop."""
        if state is self.state or state is WorkerState.DEAD:
            return
        log.info("Worker %s is %s now.", self.id, state)
        self.state = state
        self._fetcher.paused = state is not WorkerState.ACTIVE
        if self._fetcher.paused and self.runs is not None:
            self.runs.release_buffer(f"the worker is {state}")
        self._fetcher.wake()
        self._changed()

    def _changed(self) -> None:
        """A slot is free, a thread has leaked, the heart stopped, or the state is another one."""
        runs = self.runs
        assert runs is not None
        if self._stopping.is_set():
            self._turn.set()
            return
        self._fetcher.room_changed()
        if self.state is WorkerState.DRAINING and runs.busy == runs.leaked and not runs.buffer:
            self.stop(None, "drained")
        if runs.leaked and runs.leaked * 2 >= self.settings.concurrency:
            log.error("%d of %d slots are held by runs that do not end.", runs.leaked, self.settings.concurrency)
            self._code = ExitCode.LEAKED
            self.stop(None, "too many runs do not end")
        if self._heart.failure is not None:
            self._code = ExitCode.FAILED
            self.stop(None, "its heart broke")

    def _idle(self) -> None:
        self.stop(None, "nothing left to do")

    async def _leave(self, services: list[asyncio.Task[None]]) -> None:
        """Stop claiming, finish or hand back, settle."""
        assert self.runs is not None
        self._fetcher.stopping = True
        self._fetcher.wake()
        fetching = services[0]
        while not fetching.done() and self._left() > 0:
            self._turn.clear()
            turn = self.loop.create_task(self._turn.wait())
            await asyncio.wait({fetching, turn}, timeout=self._left(), return_when=asyncio.FIRST_COMPLETED)
            turn.cancel()
        self.runs.leave()
        await self._finish_runs()
        self._hand_back()
        if self.runs.active():
            await asyncio.sleep(0)
            await self._until_quiet(GRACE + 0.5)
        if not await self.runs.reports.drained(SIGN_OFF):
            lost = self.runs.reports.abandon()
            log.error("%d outcomes could not be delivered; those tasks will run again.", lost)
            self._code = self._code or ExitCode.HANDED_BACK
        await self._resign()

    def _left(self) -> float:
        return 0.0 if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    async def _finish_runs(self) -> None:
        """Wait for running tasks until the deadline, which a second signal may move."""
        assert self.runs is not None
        while self.runs.ending() and self._left() > 0:
            await self._next_turn(self._left())

    async def _until_quiet(self, seconds: float) -> None:
        assert self.runs is not None
        until = time.monotonic() + seconds
        while self.runs.active() and time.monotonic() < until:
            await self._next_turn(until - time.monotonic())

    async def _next_turn(self, seconds: float) -> None:
        self._turn.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._turn.wait()
        except TimeoutError:
            return

    def _hand_back(self) -> None:
        """The time is up."""
        assert self.runs is not None
        active = self.runs.active()
        for run in active:
            self.runs.stop(run, Stop.HANDED_BACK, "the worker is leaving")
        if active:
            log.warning("Handing back %d running tasks: the time is up.", len(active))
            self._handed_back = len(active)
            self._code = self._code or ExitCode.HANDED_BACK

    async def _resign(self) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self._leader.resign()
        except (StoreError, TimeoutError):
            log.info("Leadership could not be given up; it ends by itself.")

    def stats(self) -> WorkerStats:
        assert self.runs is not None
        return stats_of(self.id, self.state, self.runs, self.runs.tally)


def stats_of(worker: str, state: WorkerState, runs: Runs | None, tally: Tally) -> WorkerStats:
    return WorkerStats(
        id=worker,
        state=state,
        running=0 if runs is None else runs.busy,
        buffered=0 if runs is None else len(runs.buffer),
        unsettled=0 if runs is None else len(runs.reports),
        leaked=0 if runs is None else runs.leaked,
        executed=tally.executed,
        completed=tally.completed,
        failed=tally.failed,
        dead=tally.dead,
        cancelled=tally.cancelled,
        released=tally.released,
        lost=tally.lost,
        timed_out=tally.timed_out,
        refused=tally.refused,
        average_run=tally.run_time / tally.executed if tally.executed else None,
    )
