"""Starts the runs that claims gave, most urgent first, and settles what they come to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

from dibs.attempt import outcome
from dibs.attempt.execute import TaskRunner
from dibs.attempt.payloads import keep_result
from dibs.core.task import LeasedTask, Settlement
from dibs.runtime.definition import ExecutorKind
from dibs.runtime.hub import Hub
from dibs.worker.executors.process import ChildFailed, ProcessExecutor
from dibs.worker.executors.thread import ThreadExecutor
from dibs.worker.run import Run, Stop
from dibs.worker.run_log import log_start, logs_all_runs
from dibs.worker.settler import Settler
from dibs.worker.slots import Slots
from dibs.worker.stopper import Stopper, settlement_of
from dibs.worker.suspects import suspects_in, to_put_off

__all__ = ["Dispatcher"]


class Dispatcher:
    """Takes a run from its claim to its settlement, on the executor that its task asks for."""

    def __init__(
        self,
        hub: Hub,
        held: dict[str, Run],
        slots: Slots,
        settler: Settler,
        stopper: Stopper,
        processes: ProcessExecutor,
        wake: Callable[[], None],
        work_came: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        """Runs call `wake` when they have news for the heartbeat, and `work_came` tells it that there are runs at all;
        `changed` is called when a claim is worth it."""
        self.held = held
        self.slots = slots
        self.settler = settler
        self._hub = hub
        self._stopper = stopper
        self._wake = wake
        self._work_came = work_came
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._runner = TaskRunner(hub)
        self._threads = ThreadExecutor(self._runner, self._thread_ended)
        self._execute: dict[ExecutorKind, Callable[[Run], Awaitable[Settlement]]] = {
            ExecutorKind.LOOP: self._run_on_loop,
            ExecutorKind.THREAD: self._threads.run,
            ExecutorKind.PROCESS: processes.run,
        }
        self._variables = copy_context()
        self._leaving = False
        self._logs_all = logs_all_runs()

    def provide(self, state: Any) -> None:
        """Give every run what the lifespan yielded, and the context variables that it set."""
        self._runner.state = state
        self._variables = copy_context()

    def accept(self, tasks: list[LeasedTask], claimed: float) -> None:
        """Take on what a claim gave, and start as much of it as there are slots for."""
        held, definitions, wake, time_out = self.held, self._hub.definitions, self._wake, self._stopper.time_out
        hold = self.slots.hold
        runs: list[Run] = []
        for task in tasks:
            there = held.get(task.id)
            if there is not None:
                if there.task.lease == task.lease:
                    continue  # a repeated claim gives again what an earlier reply had given
                self._stopper.stop(there, Stop.LOST)  # lost, and claimed again by this worker
            run = held[task.id] = Run(task, definitions[task.name], claimed, wake, time_out, hold)
            runs.append(run)
        suspects = suspects_in(runs)
        if suspects and (put_off := to_put_off(suspects, held.values())):
            for run, delay in put_off:
                self.settler.settle(run, outcome.put_off(run.task, delay))
            runs = [run for run in runs if run not in suspects]
        self.slots.buffer.add(runs)
        self.fill()
        self._work_came()

    def fill(self) -> None:
        """Start buffered runs while there are slots for them."""
        slots = self.slots
        while slots.busy < slots.count and not self._leaving and (run := slots.occupy()) is not None:
            # A run may be started by the end of another one, and must not inherit its context variables.
            run.handle = self._loop.create_task(self._drive(run), context=self._variables.copy())
            if self._logs_all:
                log_start(run)

    async def _drive(self, run: Run) -> None:
        """Run one task, whatever it does."""
        run.entered = True
        try:
            if run.stop is not None:
                settlement = settlement_of(run)
            else:
                settlement = await self._execute[run.definition.executor](run)
                result = settlement.result
                if run.completing or (result is not None and len(result) > self._hub.payloads.limit):
                    settlement = await self._keep(run, settlement)
        except BaseException as error:
            if not self._loop.is_running():  # the loop is being closed: nothing can be settled any more
                raise
            settlement = judge(run, error)
        self._finish(run, settlement)

    def _run_on_loop(self, run: Run) -> Awaitable[Settlement]:
        return self._runner.run(run, run.definition, self._runner.function_of(run.definition))

    async def _keep(self, run: Run, settlement: Settlement) -> Settlement:
        """Store a large result in the blob store. A run with a transaction of its own has committed it, or not."""
        if run.completing:
            return outcome.not_committed(run.task)
        if run.timer is not None:
            run.timer.cancel()  # the run is over; storing its result may take longer than the timeout
        run.timeout_at = None
        run.returned = False  # nothing is being settled yet, so it can still be stopped
        return await keep_result(self._hub, run.task, settlement)

    def _finish(self, run: Run, settlement: Settlement) -> None:
        """A run's coroutine has ended; its thread may still be busy."""
        if run.timer is not None:
            run.timer.cancel()
        if not run.settled:
            settlement = settlement_of(run) if run.stop is Stop.TIMED_OUT else settlement
            self.settler.settle(run, outcome.with_backoff(run.task, run.definition, settlement))
        if not run.in_thread:
            self._free(run)

    def _thread_ended(self, run: Run) -> None:
        run.in_thread = False
        run.returned = True
        if run.late is not None:
            self.settler.settle(run, run.late)
        if run.settled:  # it was settled without waiting for its thread, which kept the slot
            self._free(run)

    def _free(self, run: Run) -> None:
        slots = self.slots
        slots.free(run)
        self.fill()
        if len(slots.buffer) <= slots.low or self._leaving or slots.leaked or slots.below:
            self._changed()

    def leave(self) -> None:
        """Start nothing more, and hand back what has not started."""
        self._leaving = True
        self.release_buffer("the worker is leaving")

    def release_buffer(self, note: str, received_before: float | None = None) -> int:
        """Hand back what has not started: all of it, or what was received before some instant."""
        buffer = self.slots.buffer
        runs = [run for run in buffer if received_before is None or run.received < received_before]
        for run in runs:
            buffer.drop(run)
            self.settler.settle(run, outcome.released(run.task, note))
        return len(runs)

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()


def judge(run: Run, error: BaseException) -> Settlement:
    """What a run that raised comes to."""
    if run.stop is not None:
        return settlement_of(run)
    if isinstance(error, ChildFailed):
        return error.settlement
    return outcome.failed(run.task, run.definition, error)
