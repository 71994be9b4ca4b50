"""Heartbeats, on a thread, a loop and a connection of their own.

A task that blocks the event loop delays claims, never leases. The heart keeps every lease that is still inside its
timeout, carries progress, learns of cancellation and loss, gives the worker's sign of life and hears what state it is
to take. It also notices when the worker's loop no longer turns, and says which task stops it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

from dibs.core.lease import heartbeat_interval
from dibs.core.task import Lease, TaskRecord, WorkerState
from dibs.core.times import SECOND
from dibs.engines.base import Engine
from dibs.engines.values import Beat, ExtendAnswer, ExtendOutcome, Extension, worker_topic
from dibs.errors import StoreError
from dibs.runtime.clock import Clock
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.minute_stats import MinuteRecorder
from dibs.worker.run import Run, Stop
from dibs.worker.slots import Runs

__all__ = ["Heart"]

log = logging.getLogger("dibs.worker")

LONGEST_INTERVAL = 10.0
FIRST_BEAT = 5.0
PROGRESS_INTERVAL = 0.1
"""Seconds between two deliveries of progress."""

CLOCK_SET = 1.0
"""Seconds by which the wall clock has moved against the one that only goes on: it was set, or the machine slept."""

LOOK_INTERVAL = 1.0
"""Seconds between two looks at the worker's loop, while something runs on it."""

BLOCKED_AFTER = 2.0
"""Seconds without a turn of the loop after which the task that stops it is named in the log."""


class Heart:
    """Beats until stopped."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        runs: Runs,
        health: StoreHealth,
        minutes: MinuteRecorder,
        worker: str,
        sign: Callable[[], Beat],
        obey: Callable[[WorkerState], None],
    ) -> None:
        self._engine = engine.sibling()
        self._clock = clock
        self._runs = runs
        self._health = health
        self._minutes = minutes
        self._worker = worker
        self._sign = sign
        self._obey = obey
        self._worker_loop = asyncio.get_running_loop()
        self._worker_thread = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._begun = asyncio.Event()
        self._stopping = False
        self._left_behind = False
        """The worker has left without it: the store did not answer in time."""
        self._asked = True
        self._nudged = False
        self._next_news = 0.0
        self._next_beat = 0.0
        self._interval = LONGEST_INTERVAL
        self._ticked = time.monotonic()
        self._wall_ahead = time.time() - self._ticked
        self._tick_asked = 0.0
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Returns after the first sign of life, so that a worker is known before it claims; or if that takes long."""
        self._thread = threading.Thread(target=self._run, name="dibs-heart", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(FIRST_BEAT):
                await self._begun.wait()
        except TimeoutError:
            log.warning("The store has not taken the worker's first sign of life yet.")

    async def stop(self, timeout: float) -> None:
        """Give the last sign and leave; from the worker's loop."""
        if self._thread is None:
            return
        self._stopping = True
        self.nudge()
        waited = asyncio.get_running_loop().run_in_executor(None, self._thread.join, timeout)
        await waited
        if self._thread.is_alive():
            self._left_behind = True
            log.warning("The store did not let the worker sign off within %.0f s.", timeout)

    def nudge(self) -> None:
        """Look sooner: there is progress to deliver, or a lease to keep. From any thread."""
        if not self._nudged:
            self._nudged = True
            self._call(self._set_wake)

    def hurry(self, span: float) -> None:
        """There is a lease with `span` seconds left: beat often enough for it."""
        interval = heartbeat_interval(round(span * SECOND)) / SECOND
        if interval < self._interval:
            self._interval = interval
            self._next_beat = min(self._next_beat, time.monotonic() + interval)
            self.nudge()

    def _call(self, function: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(function)
            except RuntimeError:  # the heart has stopped
                return

    def _set_wake(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if self._left_behind:  # nobody waits for it, and the interpreter may be gone half-way
                return
            self.failure = error
            log.exception("The heart of the worker stopped: its leases will end.")
            self._worker_loop.call_soon_threadsafe(self._runs.changed)
        finally:
            self._begin()

    def _begin(self) -> None:
        try:
            self._worker_loop.call_soon_threadsafe(self._begun.set)
        except RuntimeError:  # the worker's loop is closed: nobody waits
            return

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        listener: asyncio.Task[None] | None = None
        backoff = Backoff(cap=LONGEST_INTERVAL / 4)
        try:
            while not self._stopping:
                try:
                    if listener is None:
                        with self._health.asking("begin to keep leases"):
                            await self._engine.open()
                        listener = self._loop.create_task(self._listen())
                    await self._turn()
                    backoff.reset()
                except StoreError:
                    await self._rest(backoff.next())
                    continue
                if not self._begun.is_set():
                    self._begin()
                await self._rest(self._until_next())
            await self._leave()
        finally:
            if listener is not None:
                listener.cancel()
            await self._engine.close()

    async def _listen(self) -> None:
        """Hear the worker's own bell: somebody cancelled one of its tasks, or gave it another state."""
        subscription = self._engine.subscribe([worker_topic(self._worker)])
        try:
            while True:
                if await subscription.wait(3600):
                    self._asked = True
                    self._set_wake()
        finally:
            subscription.close()

    async def _rest(self, seconds: float) -> None:
        assert self._wake is not None
        if not self._stopping:
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()

    def _until_next(self) -> float:
        wait = self._next_beat - time.monotonic()
        if self._runs.busy:
            wait = min(wait, LOOK_INTERVAL)
        if self._nudged:
            wait = min(wait, self._next_news - time.monotonic())
        return max(wait, 0.001)

    async def _turn(self) -> None:
        """Whatever is due: everything when a beat is due or the bell rang, else only what was asked for."""
        now = time.monotonic()
        self._look(now)
        asked, self._asked = self._asked or self._clock_was_set(now), False
        due = now >= self._next_beat
        news = self._nudged and now >= self._next_news
        if news:
            self._nudged = False  # before looking: what comes later nudges again
            self._next_news = now + PROGRESS_INTERVAL
        try:
            await self._extend(now, everything=asked, due=due, news=news)
            if asked or due:
                await self._beat()
        except BaseException:
            self._asked = self._asked or asked
            raise
        if due:
            shortest = min((run.span for run in tuple(self._runs.held.values())), default=None)
            interval = LONGEST_INTERVAL if shortest is None else heartbeat_interval(shortest) / SECOND
            self._interval = min(interval, LONGEST_INTERVAL)
            self._next_beat = now + self._interval

    def _clock_was_set(self, now: float) -> bool:
        """If so, and it is the store's own, every lease may have run out: they are kept now, not at the next beat."""
        before, self._wall_ahead = self._wall_ahead, time.time() - now
        return abs(self._wall_ahead - before) > CLOCK_SET

    async def _extend(self, now: float, *, everything: bool, due: bool, news: bool) -> None:
        """One call for all runs inside their timeout: all of them, those that need it, or those that have news."""
        chosen: list[Run] = []
        extensions: list[Extension] = []
        for run in tuple(self._runs.held.values()):
            if run.stop is Stop.LOST or run.committed or (run.timeout_at is not None and now > run.timeout_at):
                continue
            has_news = news and (run.progress is not None or run.wanted_lease is not None)
            # A lease that is younger than the time between two beats can wait for the next one.
            aged = run.valid_until - now < 0.7 * run.span / SECOND
            if everything or has_news or (due and aged):
                chosen.append(run)
                extensions.append(extension_of(run, now))
        if not chosen:
            return
        try:
            with self._health.asking("keep leases", beats=True):
                answers = await self._engine.extend(extensions, now=self._clock.store_now())
        except BaseException:
            for run, extension in zip(chosen, extensions, strict=True):
                if run.progress is None and extension.progress is not None:
                    run.progress = (extension.progress, extension.message)
            raise
        await self._look_for_commits(chosen, answers)
        for run, extension, answer in zip(chosen, extensions, answers, strict=True):
            self._hear(run, now + extension.by / SECOND, answer)

    async def _look_for_commits(self, runs: list[Run], answers: list[ExtendAnswer]) -> None:
        """A run that has completed in its own transaction has no lease any more, and yet has not lost it."""
        asked = [
            run
            for run, answer in zip(runs, answers, strict=True)
            if run.completing and answer.outcome is ExtendOutcome.LOST
        ]
        if asked:
            with self._health.asking("look for commits"):
                records = await self._engine.get([run.task.id for run in asked])
            for run, record in zip(asked, records, strict=True):
                run.committed = isinstance(record, TaskRecord) and record.settled_lease == run.task.lease

    def _hear(self, run: Run, valid_until: float, answer: ExtendAnswer) -> None:
        """What the store said about one lease. Flags are set here, for threads; the loop does the rest."""
        if run.settled or run.committed:  # the answer to its settlement says all
            return
        if answer.outcome is ExtendOutcome.LOST:
            log.warning("The lease of %s %s was lost; stopping its run.", run.task.name, run.task.id)
            self._stop(run, Stop.LOST, "")
            return
        run.valid_until = valid_until
        if answer.outcome is ExtendOutcome.CANCEL:
            self._stop(run, Stop.CANCELLED, answer.reason)
        elif answer.outcome is ExtendOutcome.EXHAUSTED:
            self._stop(run, Stop.TIMED_OUT, "the run has lasted 24 hours")

    def _stop(self, run: Run, why: Stop, note: str) -> None:
        if run.stop is None:
            run.stop, run.stop_note = why, note
            self._worker_loop.call_soon_threadsafe(self._runs.stop, run, why, note)

    async def _beat(self) -> None:
        sign = self._sign()
        try:
            with self._health.asking("give a sign of life", beats=True):
                state = await self._engine.beat(sign, now=self._clock.store_now())
        except BaseException:
            self._minutes.put_back(sign.minutes)
            raise
        self._worker_loop.call_soon_threadsafe(self._obey, state)

    async def _leave(self) -> None:
        """The last minutes, and good-bye."""
        try:
            sign = self._sign()
            with self._health.asking("sign off"):
                if sign.minutes:
                    await self._engine.beat(sign, now=self._clock.store_now())
                await self._engine.leave(sign.id, now=self._clock.store_now())
        except StoreError:
            return

    def _look(self, now: float) -> None:
        """Ask the worker's loop for a tick; name the task that keeps it from answering."""
        if not self._runs.busy:
            self._tick_asked = 0.0
            return
        if self._tick_asked and self._ticked < self._tick_asked:
            if now - self._tick_asked > BLOCKED_AFTER:
                self._name_blocker(now - self._tick_asked)
            return
        self._tick_asked = now
        self._worker_loop.call_soon_threadsafe(self._tick)

    def _tick(self) -> None:
        self._ticked = time.monotonic()

    def _name_blocker(self, seconds: float) -> None:
        run = self._runs.current()
        if run is None or run.named_in_log:
            return
        run.named_in_log = True
        frame = sys._current_frames().get(self._worker_thread)
        stack = "".join(traceback.format_stack(frame)[-8:]) if frame is not None else "(no stack)"
        log.warning(
            "%s %s has blocked the event loop for %.1f s: nothing else starts meanwhile. Make it a plain function "
            "(it then runs in a thread) or await something. It is here:\n%s",
            run.task.name,
            run.task.id,
            seconds,
            stack,
        )


def extension_of(run: Run, now: float) -> Extension:
    """Take a run's news along."""
    progress, run.progress = run.progress, None
    wanted, run.wanted_lease = run.wanted_lease, None
    by = run.span if wanted is None else max(run.span, round(wanted * SECOND))
    lease = Lease(run.task.id, run.task.lease)
    fraction, message = progress if progress is not None else (None, "")
    return Extension(lease, by, fraction, message, round((now - run.claimed) * SECOND))
