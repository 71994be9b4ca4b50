"""The slots: starts runs, stops them, and turns their ends into settlements."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from dibs.core.task import MAX_LOSSES, LeasedTask, Outcome, Settlement
from dibs.core.times import SECOND, Duration
from dibs.engines.values import SettleOutcome
from dibs.errors import DibsError
from dibs.runtime.definition import ExecutorKind
from dibs.runtime.hub import Hub
from dibs.worker import outcome
from dibs.worker.buffer import Buffer
from dibs.worker.context import CURRENT, Context
from dibs.worker.middleware import compose
from dibs.worker.minutes import MinuteRecorder
from dibs.worker.payloads import arguments, keep_result
from dibs.worker.processes import ChildFailed, Processes
from dibs.worker.reports import Reports
from dibs.worker.run import Run, Stop
from dibs.worker.settings import WorkerSettings
from dibs.worker.tally import Tally
from dibs.worker.threads import Threads

__all__ = ["Runs"]

log = logging.getLogger("dibs.worker")

GRACE = 1.0
"""Seconds that a coroutine has to end after it was cancelled; then its run is settled without it."""

LOST_GRACE = 60.0
"""Seconds that a run without a timeout has to end after its lease was lost. Most often it is a thread, which can only
be told. It did nothing wrong, so its slot does not count as stuck before that."""

SUSPICIOUS = MAX_LOSSES - 2
"""Losses from which on a task may be what kills its workers: such tasks are not held together with each other."""

PUT_OFF: Duration = 5 * SECOND
"""How long a suspect waits if another one is here; twice as long each time, up to 80 s: claims are not free."""

AT_A_TIME = 10
"""As many suspects as are put off for no longer than twice that; if there are more they are spread over more."""

REMEMBERED = 10_000
"""Tasks of which a worker counts how often it has put them off."""

LEARNING = 0.05
"""The weight of the newest run in the running average of durations."""


class Runs:
    """Everything that this worker holds a lease on."""

    def __init__(self, hub: Hub, settings: WorkerSettings, minutes: MinuteRecorder, processes: Processes) -> None:
        self._hub = hub
        self._codec = hub.codec
        self._clock = hub.clock
        self._minutes = minutes
        self._loop = asyncio.get_running_loop()
        self._onion = compose(hub.middleware)
        self._ceilings = settings.ceilings()
        self._concurrency = settings.concurrency
        self._threads = Threads(self._loop, "dibs-task")
        self._processes = processes
        self.tally = Tally()
        self.state: Any = None
        self._variables = copy_context()
        self.held: dict[str, Run] = {}
        self.buffer = Buffer(settings.served(hub), settings.in_order)
        self._live: set[Run] = set()
        self.busy = 0
        self.low = 0
        """A slot that comes free is news once no more than this many runs are buffered."""
        self.leaving = False
        self.leaked = 0
        self._put_off: Counter[str] = Counter()
        self.average: float | None = None
        self.last_started = time.monotonic()
        self.below = [0] * len(self._ceilings)
        self.reports: Reports
        self.nudge: Callable[[], None] = lambda: None
        self.changed: Callable[[], None] = lambda: None
        self.due_in: Callable[[float], None] = lambda _: None

    def provide(self, state: Any) -> None:
        """What the lifespan gave, and the context variables it has set, are there for every run."""
        self.state = state
        self._variables = copy_context()

    def accept(self, tasks: list[LeasedTask], claimed: float) -> None:
        """Take on what a claim gave, and start what there are slots for."""
        definitions, nudge = self._hub.definitions, self.nudge
        runs: list[Run] = []
        for task in tasks:
            there = self.held.get(task.id)
            if there is not None:
                if there.task.lease == task.lease:
                    continue  # a repeated claim gives again what an earlier reply had given
                self.stop(there, Stop.LOST)  # lost, and claimed again by ourselves
            run = self.held[task.id] = Run(task, definitions[task.name], claimed, nudge)
            runs.append(run)
        suspects = [run for run in runs if run.task.losses >= SUSPICIOUS]
        if suspects and not self._hold_one(suspects):
            runs = [run for run in runs if run.task.losses < SUSPICIOUS]
        self.buffer.add(runs)
        self.fill()

    def _hold_one(self, suspects: list[Run]) -> bool:
        """Of tasks that have lost worker after worker, one at a time, so that a killer takes none of the others along.

        If there are several, all go back (False): one that started now might end this process before the others have
        left.
        """
        held = sum(run.task.losses >= SUSPICIOUS and not run.settled for run in self.held.values())
        if held == 1:
            return True
        first, *others = suspects
        for run in others if held == len(suspects) else suspects:
            spread = 1 + random.random() * len(suspects) / AT_A_TIME
            delay = round((PUT_OFF << min(self._times_put_off(run.task), 4)) * spread)
            self._settle(run, outcome.put_off(run.task, delay))
        if held == len(suspects):  # after the others, which must be gone when it comes back
            self._settle(first, outcome.put_off(first.task, 0))
        return False

    def _times_put_off(self, task: LeasedTask) -> int:
        """How often this worker has put a task off before now, as far as it remembers."""
        if len(self._put_off) >= REMEMBERED:
            self._put_off.clear()
        self._put_off[task.id] += 1
        return self._put_off[task.id] - 1

    def fill(self) -> None:
        """Start buffered runs while there are slots for them."""
        buffer, may_start = self.buffer, self._may_start if self._ceilings else None
        while self.busy < self._concurrency and not self.leaving:
            run = buffer.pop(may_start)
            if run is None:
                return
            self._start(run)

    def _may_start(self, run: Run) -> bool:
        """Whether starting this leaves the reserved slots free."""
        return all(
            run.task.effective >= floor.effective or self.below[level] < floor.below
            for level, floor in enumerate(self._ceilings)
        )

    def _count_levels(self, run: Run, change: int) -> None:
        for level, floor in enumerate(self._ceilings):
            if run.task.effective < floor.effective:
                self.below[level] += change

    def _start(self, run: Run) -> None:
        self.busy += 1
        if self._ceilings:
            self._count_levels(run, +1)
        run.context = Context(run, self.state, self._hub)
        self.last_started = run.started = time.monotonic()
        self._live.add(run)
        # Runs are started from within others that end: without a context of its own, each would inherit theirs.
        run.handle = self._loop.create_task(self._drive(run), context=self._variables.copy())

    def _begin_timeout(self, run: Run) -> None:
        """The time that a run may take counts from here."""
        timeout = run.timeout
        if timeout is not None:
            run.timeout_at = time.monotonic() + timeout / SECOND
            run.timer = self._loop.call_at(run.timeout_at, self.stop, run, Stop.TIMED_OUT)

    async def _drive(self, run: Run) -> None:
        """One run, whatever it does."""
        run.entered = True
        try:
            settlement = await self._attempt(run) if run.stop is None else self._stopped(run)
        except BaseException as error:
            if not self._loop.is_running():  # it is being closed under us: nothing can be settled any more
                raise
            settlement = self._judge(run, error)
        self._finish(run, settlement)

    async def _attempt(self, run: Run) -> Settlement:
        """Make ready, call, keep. What it raises was raised by the task."""
        task, definition, context = run.task, run.definition, run.context
        assert context is not None
        CURRENT.set(context)
        in_process = definition.executor is ExecutorKind.PROCESS
        try:
            json = await arguments(self._hub, task)
            args, kwargs = ([], {}) if in_process else definition.signature.decode(json)
        except DibsError as error:
            return outcome.unready(task, error, self._times_put_off(task))
        if in_process:
            return await self._in_process(run, json)
        self._begin_timeout(run)
        if definition.takes_context:
            args.insert(0, context)
        if definition.executor is ExecutorKind.THREAD:
            value = await self._wrapped(context, lambda: self._in_thread(run, args, kwargs))
        elif self._onion is None:
            value = await definition.function(*args, **kwargs)
        else:
            value = await self._onion(context, lambda: definition.function(*args, **kwargs))
        return await self._kept(run, outcome.returned(task, value, self._codec))

    async def _kept(self, run: Run, settlement: Settlement) -> Settlement:
        """A large result is brought to the blob store first. One that was to be committed has been, or is lost."""
        if run.completing:
            return outcome.not_committed(run.task)
        if settlement.result is None or len(settlement.result) <= self._hub.payloads.limit:
            return settlement
        if run.timer is not None:
            run.timer.cancel()  # it is over; what follows may take its time, as long as the lease is kept
        run.timeout_at = None
        run.returned = False  # nothing is on its way to be settled yet, so it can still be stopped
        return await keep_result(self._hub, run.task, settlement)

    async def _wrapped(self, context: Context, call: Callable[[], Any]) -> Any:
        return await (call() if self._onion is None else self._onion(context, call))

    async def _in_thread(self, run: Run, args: list[Any], kwargs: dict[str, Any]) -> Any:
        function, context = run.definition.function, run.context

        def call() -> Any:
            CURRENT.set(context)
            return function(*args, **kwargs)

        run.in_thread = True
        return await self._threads.call(call, lambda: self._thread_ended(run))

    def _thread_ended(self, run: Run) -> None:
        run.in_thread = False
        run.returned = True
        if run.late is not None:
            self._settle(run, run.late)
        if run.settled:  # its slot was kept for it, though nobody waited any more
            self._free(run)

    async def _in_process(self, run: Run, json: bytes) -> Settlement:
        result = await self._processes.call(run, json, self._begin_timeout)
        payload = None if result is None else self._codec.wrap(result)
        return await self._kept(run, outcome.completed(run.task, payload))

    def _judge(self, run: Run, error: BaseException) -> Settlement:
        """What a run that raised comes to."""
        if run.stop is not None:
            return self._stopped(run)
        if isinstance(error, ChildFailed):
            return outcome.failed_with(run.task, error.failure, retry=error.retry, delay=error.delay)
        return outcome.failed(run.task, run.definition, error)

    def _stopped(self, run: Run) -> Settlement:
        """The settlement of a run that we stopped. A lost lease is only reported so that the refusal is counted."""
        if run.stop is Stop.TIMED_OUT:
            return outcome.timed_out(run.task, run.timeout or round((time.monotonic() - run.claimed) * SECOND))
        if run.stop is Stop.CANCELLED:
            return outcome.cancelled(run.task, run.stop_note)
        return outcome.released(run.task, run.stop_note or str(run.stop))

    def stop(self, run: Run, why: Stop, note: str = "") -> None:
        """Stop a run at once, as far as its executor allows. On the loop's thread; later reasons don't count."""
        if run.settled or run.returned or (run.stop is not None and run.stop is not why):
            return
        run.stop, run.stop_note = why, note
        if run.started is None:
            if self.buffer.drop(run):
                self._settle(run, self._stopped(run))
            return
        assert run.handle is not None
        # A coroutine that was cancelled before its first step would never run, and never give back its slot.
        if run.entered and (not run.in_thread or why is Stop.TIMED_OUT or why is Stop.LOST):
            run.handle.cancel()
        if why is Stop.LOST:
            self._loop.call_later(self._time_to_end(run), self._give_up, run)
        elif why is not Stop.CANCELLED:
            self._loop.call_later(GRACE, self._give_up, run)

    def _time_to_end(self, run: Run) -> float:
        """For how long a run that lost its lease may go on before its slot counts as stuck: until its timeout."""
        return LOST_GRACE if run.timeout_at is None else max(0.0, run.timeout_at - time.monotonic()) + GRACE

    def _give_up(self, run: Run) -> None:
        """A stopped run that goes on: settle it without waiting for it, keep its slot until it ends."""
        if run in self._live and not run.leaked:
            log.warning("%s %s was stopped (%s) but goes on.", run.task.name, run.task.id, run.stop)
            run.leaked = True
            self.leaked += 1
            if not run.settled and not run.completing:
                self._settle(run, self._stopped(run))
            self.changed()

    def _finish(self, run: Run, settlement: Settlement) -> None:
        """A run's coroutine has ended; a thread of it may still be busy."""
        if run.timer is not None:
            run.timer.cancel()
        if not run.settled:
            self._settle(run, self._stopped(run) if run.stop is Stop.TIMED_OUT else settlement)
        if not run.in_thread:
            self._free(run)

    def _free(self, run: Run) -> None:
        """A slot is free again."""
        assert run.started is not None
        took = time.monotonic() - run.started
        self.average = took if self.average is None else self.average + LEARNING * (took - self.average)
        self._live.discard(run)
        self.leaked -= run.leaked
        self.busy -= 1
        if self._ceilings:
            self._count_levels(run, -1)
        self.fill()
        if len(self.buffer) <= self.low or self.leaving or self.leaked or self._ceilings:
            self.changed()

    def _settle(self, run: Run, settlement: Settlement) -> None:
        if run.completing and run.in_thread and run.stop is not Stop.LOST:
            # Its transaction may be open, and would keep this report waiting, and others with it.
            run.late = settlement
            return
        run.settled = True
        if run.stop is Stop.LOST:
            self.tally.lost += 1
            self._let_go(run)
            return
        self.reports.add(run, settlement)

    def answered(self, run: Run, settlement: Settlement, answer: SettleOutcome | None) -> None:
        """The store has answered a settlement."""
        task = run.task
        self._let_go(run)
        if answer is SettleOutcome.REFUSED or answer is None:
            self.tally.refused += 1
            log.warning(
                "The outcome of %s %s (%s) was refused: lease %d is not the current one.",
                task.name,
                task.id,
                settlement.outcome,
                task.lease,
            )
            return
        if run.completing and answer is SettleOutcome.ALREADY:
            settlement = self._committed(run, settlement)
        if settlement.outcome is Outcome.RETRY or settlement.outcome is Outcome.SNOOZED:
            self.due_in(settlement.delay / SECOND)
        if not self.held:
            self.changed()
        ran = time.monotonic() - run.claimed
        self.tally.count(settlement.outcome, settlement.timed_out, ran)
        self._minutes.record(task, settlement.outcome, int(ran * SECOND), self._clock.now())

    def _committed(self, run: Run, settlement: Settlement) -> Settlement:
        """The task has completed in its own transaction, whatever became of its run afterwards."""
        failure = settlement.failure
        if failure is not None and failure is not outcome.NOT_COMMITTED:
            log.warning(
                "%s %s failed after it had completed in its own transaction, and stays completed: %s: %s\n%s",
                run.task.name,
                run.task.id,
                failure.type,
                failure.message,
                failure.traceback,
            )
        return outcome.completed(run.task, None)

    def _let_go(self, run: Run) -> None:
        """Hold no longer; a later lease on the same task is another run."""
        if self.held.get(run.task.id) is run:
            del self.held[run.task.id]

    def leave(self) -> None:
        """Start nothing more, and hand back what has not started."""
        self.leaving = True
        self.release_buffer("the worker is leaving")

    def release_buffer(self, note: str, received_before: float | None = None) -> int:
        """Hand back what has not started: all of it, or what has been here since before some instant."""
        runs = [run for run in self.buffer if received_before is None or run.received < received_before]
        for run in runs:
            self.buffer.drop(run)
            self._settle(run, outcome.released(run.task, note))
        return len(runs)

    def active(self) -> list[Run]:
        """Runs that have started and are not settled."""
        return [run for run in self._live if not run.settled]

    def ending(self) -> list[Run]:
        """Runs that are worth waiting for: all that have started, but for those that were stopped and go on."""
        return [run for run in self._live if not run.leaked]

    def current(self) -> Run | None:
        """The run whose coroutine the loop is executing right now; from any thread."""
        task = asyncio.current_task(self._loop)
        return next((run for run in tuple(self._live) if run.handle is task), None) if task else None

    def close(self) -> None:
        self._threads.close()
