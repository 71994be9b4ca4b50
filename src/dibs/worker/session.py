"""One life of a worker, on its loop: builds the parts, serves, and leaves."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack

from dibs.attempt.log_filter import add_task_facts
from dibs.core.options import nearest, shown
from dibs.core.task import WorkerState
from dibs.engines.values import Beat
from dibs.errors import NotAllowed
from dibs.runtime.environment import host
from dibs.runtime.hub import Hub
from dibs.runtime.rescue import Rescue
from dibs.version import __version__
from dibs.worker.buffer import Buffer
from dibs.worker.dispatcher import Dispatcher
from dibs.worker.executors.process import ProcessExecutor
from dibs.worker.fetcher import Fetcher
from dibs.worker.health import StoreHealth
from dibs.worker.heartbeat import Heartbeat
from dibs.worker.liveness import Liveness
from dibs.worker.maintenance.blob_sweeper import BlobSweeper
from dibs.worker.maintenance.leader import Leader
from dibs.worker.maintenance.rescuer import Rescuer
from dibs.worker.maintenance.scheduler import Scheduler
from dibs.worker.minute_stats import MinuteStats
from dibs.worker.run import Run
from dibs.worker.run_figures import RunFigures
from dibs.worker.service import Service
from dibs.worker.settings import WorkerSettings
from dibs.worker.settler import Settler
from dibs.worker.shutdown import SIGN_OFF, Shutdown
from dibs.worker.slots import Slots
from dibs.worker.status import ExitCode, ExitReport, WorkerStats
from dibs.worker.stopper import Stopper
from dibs.worker.watchdog import LoopWatchdog

__all__ = ["Session"]

log = logging.getLogger("dibs.worker")

COUNTED = ("executed", "completed", "failed", "dead", "cancelled", "released", "lost", "timed_out", "refused")


class Session:
    """Everything between start and exit report. Raises if the worker can't be built."""

    def __init__(
        self, hub: Hub, settings: WorkerSettings, worker: str, app: str | None = None, figures: RunFigures | None = None
    ) -> None:
        """`app` says where executor processes import the app from; `figures` are the worker's, for all its lives."""
        self.loop = asyncio.get_running_loop()
        self.hub = hub
        self.settings = settings
        self.id = worker
        self.state = WorkerState.ACTIVE
        self._shutdown = Shutdown()
        hub.load_allowed()
        health = StoreHealth()
        held: dict[str, Run] = {}
        self._minutes = MinuteStats(worker)
        self._processes = ProcessExecutor(hub, app)
        self.slots = Slots(settings, Buffer(settings.served(hub), settings.in_order))
        self._settler = Settler(hub, health, held, self._minutes, figures or RunFigures(), self._due_in, self._changed)
        self._stopper = Stopper(self.slots, self._settler, self._changed)
        self._heartbeat = Heartbeat(
            hub,
            held,
            health,
            self._minutes,
            worker,
            LoopWatchdog(self.slots),
            figures=self._figures,
            sign=self._sign,
            obey=self._obey,
            stop_run=self._stopper.stop,
            broke=self._changed,
        )
        wake, shorten_interval = self._heartbeat.wake, self._heartbeat.shorten_interval
        work_came = self._heartbeat.work_came
        self._dispatcher = Dispatcher(
            hub, held, self.slots, self._settler, self._stopper, self._processes, wake, work_came, self._changed
        )
        self._fetcher = Fetcher(hub, settings, worker, self._dispatcher, health, self._idle, shorten_interval)
        self._scheduler = Scheduler(hub, health, self._leads)
        self._leader = Leader(hub, health, worker, self._scheduler.wake)
        self._services: list[Service] = [self._fetcher, self._leader, self._scheduler]
        self._services += [Rescuer(Rescue(hub), health), BlobSweeper(hub, self._leads)]
        self._works = False
        self.liveness = Liveness(self._heartbeat, health, self._unready)

    def stop(self, timeout: float | None, reason: str = "asked to stop") -> None:
        """Begin to leave, or leave sooner."""
        seconds = self.settings.shutdown_timeout if timeout is None else timeout
        if self._shutdown.ask(seconds, reason):
            running = len(self.slots.ending())
            patience = f" Waiting up to {seconds:.0f} s for running tasks: {running:,}." if running else ""
            log.info("Worker %s stops: %s.%s", self.id, reason, patience)
            self._dispatcher.leave()

    async def run(self, ready: Callable[[], None]) -> ExitReport:
        add_task_facts(self.id)
        async with AsyncExitStack() as resources:
            lifespan = self.hub.lifespan
            if lifespan is not None:
                self._dispatcher.provide(await resources.enter_async_context(lifespan()))
            await self._heartbeat.start()
            try:
                await self._scheduler.begin()
                for service in self._services:
                    service.start(self._broke)
                self._introduce()
                self._works = True
                ready()
                await self._shutdown.asked.wait()
                await self._shutdown.leave(self._fetcher, self._dispatcher, self._stopper, self._leader)
            finally:
                for service in self._services:
                    service.stop()
                await self._heartbeat.stop(SIGN_OFF)
                await self._processes.close()
                self._dispatcher.close()
        stats, how = self.stats(), self._shutdown
        log.info("Worker %s left (%s): %d run, %d failed.", self.id, how.reason, stats.executed, stats.failed)
        return ExitReport(code=how.code, reason=how.reason, stats=stats, handed_back=how.handed_back)

    def _introduce(self) -> None:
        """The worker's first line, and what looks like a mistake."""
        hub, settings = self.hub, self.settings
        log.info(
            "Dibs %s: worker %s serves %s from %s; concurrency %d, tasks known: %d.",
            __version__,
            self.id,
            ", ".join(settings.served(hub)),
            hub.store_name,
            settings.concurrency,
            len(hub.definitions),
        )
        used = {definition.queue for definition in hub.definitions.values()}
        for queue in settings.queues if used else ():
            if queue not in used:
                hint = nearest(queue, used)
                level = logging.WARNING if hint else logging.INFO
                log.log(level, "No task of this app has the queue %s by default.%s", shown(queue), hint)

    def _broke(self, name: str, error: BaseException) -> None:
        """A service has ended with an error: the worker leaves and says so."""
        log.error("The worker's %s broke.", name, exc_info=None if isinstance(error, NotAllowed) else error)
        self._fail(ExitCode.FAILED, f"its {name} broke: {str(error).removesuffix('.')}")

    def _fail(self, code: ExitCode, reason: str) -> None:
        self._shutdown.code = code
        self.stop(None, reason)

    def _unready(self) -> str | None:
        """Why it takes no work though all is well; from any thread."""
        if self._shutdown.asked.is_set():
            return "the worker is stopping"
        return None if self._works else "the worker is starting"

    def _leads(self) -> bool:
        return self._leader.leads

    def _figures(self) -> tuple[int, int]:
        return self.slots.busy, len(self.slots.buffer)

    def _sign(self) -> Beat:
        """The sign of life; from the heartbeat's thread."""
        running, buffered = self._figures()
        return Beat(
            id=self.id,
            host=host(),
            pid=os.getpid(),
            version=__version__,
            queues=self.settings.served(self.hub),
            names=tuple(self.hub.definitions),
            capabilities=self.settings.offered(),
            concurrency=self.settings.concurrency,
            running=running,
            buffered=buffered,
            minutes=self._minutes.take(),
        )

    def _obey(self, state: WorkerState) -> None:
        """Take the state that the store answers; on the loop."""
        if state is self.state or state is WorkerState.DEAD:
            return
        log.info("Worker %s is %s now.", self.id, state)
        self.state = state
        self._fetcher.paused = state is not WorkerState.ACTIVE
        if self._fetcher.paused:
            self._dispatcher.release_buffer(f"the worker is {state}")
        self._fetcher.wake()
        self._changed()

    def _changed(self) -> None:
        """A slot is free or stuck, the heartbeat stopped, or the worker's state has changed."""
        slots = self.slots
        if self._shutdown.asked.is_set():
            self._shutdown.look_again()
            return
        self._fetcher.slot_freed()
        if self.state is WorkerState.DRAINING and slots.busy == slots.leaked and not slots.buffer:
            self.stop(None, "drained")
        if slots.leaked and slots.leaked * 2 >= self.settings.concurrency:
            log.error("%d of %d slots are held by runs that do not end.", slots.leaked, self.settings.concurrency)
            self._fail(ExitCode.LEAKED, "too many runs do not end")
        if self._heartbeat.failure is not None:
            self._fail(ExitCode.FAILED, "its heartbeat broke")

    def _due_in(self, seconds: float) -> None:
        self._fetcher.due_in(seconds)

    def _idle(self) -> None:
        self.stop(None, "nothing left to do")

    def stats(self) -> WorkerStats:
        slots, counters = self.slots, self._settler.counters
        return WorkerStats(
            id=self.id,
            state=self.state,
            running=slots.busy,
            buffered=len(slots.buffer),
            unsettled=len(self._settler),
            leaked=slots.leaked,
            average_run=counters.run_time / counters.executed if counters.executed else None,
            **{name: getattr(counters, name) for name in COUNTED},
        )
