"""The heartbeat of a worker, on a thread, a loop and a connection of its own.

A task that blocks the event loop delays claims, never leases. Each beat extends the leases of runs that are inside
their timeouts, carries their progress, and tells the store that the worker lives. The answers say which runs were
cancelled or have lost their lease, and which state the worker should take.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import compress
from operator import not_

from dibs.core.lease import heartbeat_interval
from dibs.core.task import Lease, TaskRecord, WorkerState
from dibs.core.times import SECOND
from dibs.engines.base import Engine
from dibs.engines.topics import worker_topic
from dibs.engines.values import Beat, ExtendAnswer, ExtendOutcome, Extension, PartlyAnswered
from dibs.errors import NotAllowed, StoreError
from dibs.runtime.hub import Hub
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.minute_stats import MinuteStats
from dibs.worker.run import Run, Stop
from dibs.worker.run_log import extra_of
from dibs.worker.service import listen, wait_for
from dibs.worker.watchdog import LoopWatchdog

__all__ = ["Heartbeat"]

log = logging.getLogger("dibs.worker")

LONGEST_INTERVAL = 10.0
FIRST_BEAT = 5.0
PART_AWAY = 2.5
"""Seconds before the next beat while a part of the store is away."""
PROGRESS_INTERVAL = 0.1
"""Seconds between two deliveries of progress."""

FIGURES_INTERVAL = 1.0
"""The store's figures about a worker are at most about this many seconds old. If nothing changes, nothing is sent."""

FIRST_FIGURES = 0.5
"""Seconds before the first ones after a rest: most tasks have ended by then, so that one beat says it all."""

Figures = tuple[int, int]
"""Busy slots, and tasks that are leased but not started."""

CLOCK_SET = 1.0
"""If the wall clock has moved by this many seconds against the monotonic one, it was set, or the machine slept."""


class Heartbeat:
    """Beats until stopped. Stopping twice, or before the start, is fine."""

    def __init__(
        self,
        hub: Hub,
        held: dict[str, Run],
        health: StoreHealth,
        minutes: MinuteStats,
        worker: str,
        watchdog: LoopWatchdog,
        *,
        figures: Callable[[], Figures],
        sign: Callable[[], Beat],
        obey: Callable[[WorkerState], None],
        stop_run: Callable[[Run, Stop, str], None],
        broke: Callable[[], None],
    ) -> None:
        """`sign` makes the sign of life, of which `figures` are the part that changes often; both on this thread. The
        other functions are called on the worker's loop."""
        self._engine: Engine = hub.engine.sibling()
        self._clock = hub.clock
        self._held = held
        self._health = health
        self._minutes = minutes
        self._worker = worker
        self._figures = figures
        self._sign = sign
        self._watchdog = watchdog
        self._obey = obey
        self._stop_run = stop_run
        self._broke = broke
        self._worker_loop = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._begun = asyncio.Event()
        self._stopping = False
        self._left_behind = False
        """The worker has left without waiting for this thread: the store did not answer in time."""
        self._asked = True
        self._has_news = False
        self._next_news = 0.0
        self._next_beat = 0.0
        self._next_figures = 0.0
        self._sent: Figures = (0, 0)
        self._part_away = False
        """Some leases could not be extended, because their part of the store was away."""
        self._resting = False
        """Nothing is held and nothing has changed: this thread sleeps until the next beat, unless woken."""
        self._interval = LONGEST_INTERVAL
        self._wall_ahead = time.time() - time.monotonic()
        self._turned_at = time.monotonic()
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Return after the first beat, so that a worker is known before it claims; or when that takes too long."""
        self._thread = threading.Thread(target=self._run, name="dibs-heartbeat", daemon=True)
        self._thread.start()
        await wait_for(self._begun, FIRST_BEAT)
        if not self._begun.is_set():
            log.warning("The store has not taken the worker's first sign of life yet.")

    async def stop(self, timeout: float) -> None:
        """Tell the store that the worker leaves, and end the thread; on the worker's loop."""
        if self._thread is None:
            return
        self._stopping = True
        self.wake()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, timeout)
        if self._thread.is_alive():
            self._left_behind = True
            log.warning("The store did not let the worker sign off within %.0f s.", timeout)

    def trouble(self, patience: float) -> str | None:
        """Why it will keep no lease any more; None if it does. From any thread."""
        if self._thread is None or self._stopping:
            return None
        if self.failure is not None or not self._thread.is_alive():
            return "the heartbeat has stopped"
        silent = time.monotonic() - self._turned_at
        return f"the heartbeat has hung for {silent:.0f} s" if silent > LONGEST_INTERVAL + patience else None

    def wake(self) -> None:
        """There is progress to deliver, or a lease to extend: beat sooner. From any thread."""
        if not self._has_news:
            self._has_news = True
            if self._loop is not None:
                with suppress(RuntimeError):  # the heartbeat has stopped
                    self._loop.call_soon_threadsafe(self._set_wake)

    def work_came(self) -> None:
        """Something is held: have an eye on it. On the worker's loop, after each claim that gave tasks."""
        if self._resting:
            self._resting = False
            self._next_figures = max(self._next_figures, time.monotonic() + FIRST_FIGURES)
            self.wake()

    def shorten_interval(self, span: float) -> None:
        """There is a lease with `span` seconds left: beat often enough for it."""
        interval = heartbeat_interval(round(span * SECOND)) / SECOND
        if interval < self._interval:
            self._interval = interval
            self._next_beat = min(self._next_beat, time.monotonic() + interval)
            self.wake()

    def _set_wake(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if self._left_behind:  # nothing waits for it, and the interpreter may be half gone
                return
            self.failure = error
            why = "" if not isinstance(error, NotAllowed) else f" {str(error)[0].upper()}{str(error)[1:]}"
            log.error("The worker's heartbeat stopped: its leases will end.%s", why, exc_info=None if why else error)
            self._worker_loop.call_soon_threadsafe(self._broke)
        finally:
            self._begin()

    def _begin(self) -> None:
        with suppress(RuntimeError):  # the worker's loop is closed: nothing waits
            self._worker_loop.call_soon_threadsafe(self._begun.set)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        listener: asyncio.Task[None] | None = None
        backoff, topics = Backoff(cap=LONGEST_INTERVAL / 4), [worker_topic(self._worker)]
        try:
            while not self._stopping:
                self._turned_at = time.monotonic()
                try:
                    if listener is None:
                        with self._health.asking("begin to keep leases"):
                            await self._engine.open()
                        listener = self._loop.create_task(listen(self._engine, topics, self._ask))
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

    def _ask(self) -> None:
        """Beat at once: a task of this worker was cancelled, or the worker was given another state."""
        self._asked = True
        self._set_wake()

    async def _rest(self, seconds: float) -> None:
        assert self._wake is not None
        if not self._stopping:
            await wait_for(self._wake, seconds)
        self._wake.clear()

    def _until_next(self) -> float:
        now = time.monotonic()
        wait = self._next_beat - now
        self._resting = True  # before looking: work that comes later wakes this thread
        if self._has_changed():
            self._resting = False
            wait = min(wait, self._next_figures - now)
        elif self._held:
            self._resting = False
            wait = min(wait, FIGURES_INTERVAL)
        if (look_in := self._watchdog.interval) is not None:
            self._resting = False
            wait = min(wait, look_in)
        if self._has_news:
            wait = min(wait, self._next_news - now)
        return max(wait, 0.001)

    def _has_changed(self) -> bool:
        """Whether the store's figures about this worker are out of date."""
        return self._figures() != self._sent or self._minutes.has_changed

    async def _turn(self) -> None:
        """Do what is due: extend everything if asked to, else the leases that need it and those with news."""
        now = time.monotonic()
        self._watchdog.look(now)
        asked, self._asked = self._asked or self._clock_was_set(now), False
        self._part_away = False
        due = now >= self._next_beat
        news = self._has_news and now >= self._next_news
        if news:
            self._has_news = False  # before looking: what comes later sets it again
            self._next_news = now + PROGRESS_INTERVAL
        try:
            await self._extend(now, everything=asked, due=due, news=news)
            if asked or due or (now >= self._next_figures and self._has_changed()):
                await self._beat()
        except BaseException:
            self._asked = self._asked or asked
            raise
        if due:
            shortest = min((run.span for run in tuple(self._held.values())), default=None)
            interval = LONGEST_INTERVAL if shortest is None else heartbeat_interval(shortest) / SECOND
            self._interval = min(interval, PART_AWAY if self._part_away else LONGEST_INTERVAL)
            self._next_beat = now + self._interval

    def _clock_was_set(self, now: float) -> bool:
        """If it is the store's clock as well, every lease may have run out: all are extended now."""
        before, self._wall_ahead = self._wall_ahead, time.time() - now
        return abs(self._wall_ahead - before) > CLOCK_SET

    async def _extend(self, now: float, *, everything: bool, due: bool, news: bool) -> None:
        """Extend leases in one call: all that are inside their timeout, those that need it, or those with news."""
        chosen: list[Run] = []
        extensions: list[Extension] = []
        for run in tuple(self._held.values()):
            if run.stop is Stop.LOST or run.committed or (run.timeout_at is not None and now > run.timeout_at):
                continue
            has_news = news and (run.progress is not None or run.wanted_lease is not None)
            # A lease that is younger than the time between two beats can wait for the next beat.
            aged = run.valid_until - now < 0.7 * run.span / SECOND
            if everything or has_news or (due and aged):
                chosen.append(run)
                extensions.append(extension_of(run, now))
        if not chosen:
            return
        try:
            with self._health.asking("keep leases", beats=True):
                answers = await self._engine.extend(extensions, now=self._clock.store_now())
        except PartlyAnswered as error:
            self._part_away = True
            is_answered = [answer is not None for answer in error.answers]
            put_back(compress(zip(chosen, extensions, strict=True), map(not_, is_answered)))
            chosen, extensions = list(compress(chosen, is_answered)), list(compress(extensions, is_answered))
            answers = list(compress(error.answers, is_answered))
        except BaseException:
            put_back(zip(chosen, extensions, strict=True))
            raise
        await self._look_for_commits(chosen, answers)
        for run, extension, answer in zip(chosen, extensions, answers, strict=True):
            self._hear(run, now + extension.by / SECOND, answer)

    async def _look_for_commits(self, runs: list[Run], answers: list[ExtendAnswer]) -> None:
        """A run that has completed in its own transaction has no lease any more, but has not lost it either."""
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
        """Act on the answer for one lease. Flags are set here, for threads; the worker's loop does the rest."""
        if run.settled or run.committed:  # the answer to its settlement decides
            return
        if answer.outcome is ExtendOutcome.LOST:
            task = run.task
            log.warning("The lease of %s %s was lost; stopping its run.", task.name, task.id, extra=extra_of(task))
            self._stop(run, Stop.LOST, "")
            return
        run.valid_until = valid_until
        if answer.outcome is ExtendOutcome.CANCEL:
            if run.stop is None:
                note = f": {answer.reason}" if answer.reason else ""
                log.info("%s %s is asked to stop%s.", run.task.name, run.task.id, note, extra=extra_of(run.task))
            self._stop(run, Stop.CANCELLED, answer.reason)
        elif answer.outcome is ExtendOutcome.EXHAUSTED:
            self._stop(run, Stop.TIMED_OUT, "the run has lasted 24 hours")

    def _stop(self, run: Run, why: Stop, note: str) -> None:
        if run.stop is None:
            run.stop, run.stop_note = why, note
            self._worker_loop.call_soon_threadsafe(self._stop_run, run, why, note)

    async def _beat(self) -> None:
        self._next_figures = time.monotonic() + FIGURES_INTERVAL
        figures, sign = self._figures(), self._sign()
        try:
            with self._health.asking("give a sign of life", beats=True):
                state = await self._engine.beat(sign, now=self._clock.store_now())
        except BaseException:
            self._minutes.put_back(sign.minutes)
            raise
        self._sent = figures
        self._worker_loop.call_soon_threadsafe(self._obey, state)

    async def _leave(self) -> None:
        """Deliver the last minutes and sign off."""
        sign = self._sign()
        with suppress(StoreError, NotAllowed), self._health.asking("sign off"):
            if sign.minutes:
                await self._engine.beat(sign, now=self._clock.store_now())
            await self._engine.leave(sign.id, now=self._clock.store_now())


def put_back(unsent: Iterable[tuple[Run, Extension]]) -> None:
    """Keep progress that was not delivered, unless there is newer."""
    for run, extension in unsent:
        if run.progress is None and extension.progress is not None:
            run.progress = (extension.progress, extension.message)


def extension_of(run: Run, now: float) -> Extension:
    """The extension of a run's lease, with its news."""
    progress, run.progress = run.progress, None
    wanted, run.wanted_lease = run.wanted_lease, None
    by = run.span if wanted is None else max(run.span, round(wanted * SECOND))
    lease = Lease(run.task.id, run.task.lease)
    fraction, message = progress if progress is not None else (None, "")
    return Extension(lease, by, fraction, message, round((now - run.claimed) * SECOND))
