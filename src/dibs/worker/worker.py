"""The worker as applications see it: run, start, stop, stats."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

from dibs.core.options import check_flag, check_kind
from dibs.core.task import WorkerState
from dibs.core.times import patience
from dibs.errors import WrongThread
from dibs.runtime.hub import Hub
from dibs.worker.run_figures import RunFigures
from dibs.worker.session import Session
from dibs.worker.settings import WorkerSettings
from dibs.worker.status import ExitReport, WorkerStats

__all__ = ["Worker"]

DEFAULT = WorkerSettings()


class Worker:
    """Runs an app's tasks: `await run()` on the app's loop, or `start()` and `stop()` from blocking code.

    Starting twice, stopping twice and stopping before the start are all fine. A stopped worker can be started again.
    """

    def __init__(self, hub: Hub, settings: WorkerSettings = DEFAULT, app: str | None = None) -> None:
        """`app` says where executor processes import the app from, `MODULE:APP`; by default Dibs looks for it."""
        self.hub = hub
        self.settings = check_kind(settings, "settings", WorkerSettings)
        self.id = settings.worker_id()
        self._app = app
        self._lock = threading.Lock()
        self._future: concurrent.futures.Future[ExitReport] | None = None
        self._ready = threading.Event()
        self._works = False
        self._stop_wanted: list[float | None] = []
        self._session: Session | None = None
        self._last_stats: WorkerStats | None = None
        self.figures = RunFigures()
        """What its runs came to, since it was made."""

    async def run(self) -> ExitReport:
        """Work until asked to stop; on the loop of the app's runner."""
        try:
            session = self._session = Session(self.hub, self.settings, self.id, self._app, self.figures)
            for timeout in self._stop_wanted:
                session.stop(timeout)
            report = await session.run(self._begin)
            self._last_stats = report.stats
            return report
        finally:
            self._session = None
            self._stop_wanted.clear()
            self._works = False
            self._ready.set()

    def _begin(self) -> None:
        self._works = True
        self._ready.set()

    def request_stop(self, timeout: float | None = None) -> None:
        """Stop claiming, and leave once everything has ended or `timeout` seconds have passed; from any thread.

        None: the timeout of the settings. Asked again, the earlier moment counts.
        """
        timeout = patience(timeout, "timeout")
        session = self._session
        if session is None:
            self._stop_wanted.append(timeout)
        else:
            session.loop.call_soon_threadsafe(session.stop, timeout)

    def start(self) -> Worker:
        """Work in the background; returns when the worker is ready, raises if it can't start."""
        with self._lock:
            if self._future is not None and not self._future.done():
                return self
            self._refuse_own_loop()
            runner = self.hub.runner
            runner.serve()
            self._ready.clear()
            self._works = False
            self._stop_wanted.clear()
            self._future = asyncio.run_coroutine_threadsafe(runner.arun(self.run()), runner.loop)
            self._future.add_done_callback(lambda _: self._ready.set())  # also if it never came to run
            self._ready.wait()
            if not self._works:
                self._future.result()
        return self

    def _refuse_own_loop(self) -> None:
        if asyncio._get_running_loop() is self.hub.runner.loop:
            raise WrongThread("start() on Dibs's own loop would wait for itself: await worker.run() there.")

    def stop(self, timeout: float | None = 30.0, wait: bool = True) -> ExitReport | None:
        """Stop a worker that `start` has started; None if there is none, or if it was not waited for."""
        timeout, wait = patience(timeout, "timeout"), check_flag(wait, "wait")
        future = self._future
        if future is None:
            return None
        if not future.done():
            self.request_stop(timeout)
        return future.result() if wait else None

    def wait(self, timeout: float | None = None) -> ExitReport | None:
        """Wait until a started worker has stopped by itself (drained, or idle with `until_idle`)."""
        longest = patience(timeout, "timeout")
        return None if self._future is None else self._future.result(longest)

    def stats(self) -> WorkerStats:
        """How it is doing; once it has stopped, how it was doing at its end."""
        session = self._session
        if session is not None:
            return session.stats()
        return self._last_stats or WorkerStats(id=self.id, state=WorkerState.DEAD)

    def not_live(self) -> str | None:
        """Why only a new process would help; None if it lives. Not on the worker's own loop: that is asked."""
        session = self._session
        return None if session is None else session.liveness.not_live()

    def not_ready(self) -> str | None:
        """Why it can't take work now; None if it can. Not on the worker's own loop: that is asked."""
        session = self._session
        return "the worker is not running" if session is None else session.liveness.not_ready()

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop(timeout=None)

    async def __aenter__(self) -> Worker:
        """Start without blocking your loop: ``async with app.worker(): …``."""
        self._refuse_own_loop()
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop, None)
