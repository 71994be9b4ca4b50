"""Settles runs: settlements that gather during one flush go to the store with the next.

There is no future per task. A settlement is kept until the store has answered it, however long the store is down.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context

from dibs.attempt import outcome
from dibs.attempt.hooks import call_hooks, end_of, hooks_for
from dibs.core.task import Outcome, Settlement
from dibs.core.times import SECOND
from dibs.engines.values import PartlyAnswered, SettleAnswer, SettleOutcome
from dibs.errors import StoreError
from dibs.runtime.hub import Hub
from dibs.worker.counters import Counters
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.minute_stats import MinuteStats
from dibs.worker.run import Run, Stop
from dibs.worker.run_figures import RunFigures
from dibs.worker.run_log import extra_of, log_end, logs_all_runs

__all__ = ["Settler"]

log = logging.getLogger("dibs.worker")

MOST = 1000
"""Settlements in one flush."""

PART_AWAY = 0.1
"""Seconds before the next flush while a part of the store is away."""

Ended = tuple[Run, Settlement]


class Settler:
    """Takes the settlements of a worker's runs to the store, in order, and counts the answers."""

    def __init__(
        self,
        hub: Hub,
        health: StoreHealth,
        held: dict[str, Run],
        minutes: MinuteStats,
        figures: RunFigures,
        due_in: Callable[[float], None],
        changed: Callable[[], None],
    ) -> None:
        """`due_in` is called with the seconds until a task is due again, `changed` when no run is `held` any more."""
        self._hub = hub
        self._engine = hub.engine
        self._clock = hub.clock
        self._health = health
        self._held = held
        self._minutes = minutes
        self._figures = figures
        self._due_in = due_in
        self._changed = changed
        self.counters = Counters()
        self._waiting: deque[Ended] = deque()
        self._under_way = 0
        self._flushing: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()
        self._hooks: set[asyncio.Task[None]] = set()
        self._backoff = Backoff()
        self._logs_all = logs_all_runs()
        self._loop = asyncio.get_running_loop()
        self._variables = copy_context()

    def __len__(self) -> int:
        """Settlements that the store has not answered yet."""
        return len(self._waiting) + self._under_way + len(self._alone)

    def settle(self, run: Run, settlement: Settlement) -> None:
        """Hand over one settlement; on the loop's thread. One of a run that lost its lease is not sent."""
        if run.completing and run.in_thread and run.stop is not Stop.LOST:
            # Its transaction may be open, and would block this settlement and the others of its batch.
            run.late = settlement
            return
        run.settled = True
        if run.stop is Stop.LOST:
            self.counters.lost += 1
            if self._held.get(run.task.id) is run:
                del self._held[run.task.id]
        elif run.completing:  # the task is locked until its own transaction is over: its settlement waits alone
            task = self._loop.create_task(self._send([(run, settlement)]), context=self._variables.copy())
            self._alone.add(task)
            task.add_done_callback(self._alone.discard)
        else:
            self._waiting.append((run, settlement))
            if self._flushing is None:
                # Without the context variables of the run that happened to end first.
                self._flushing = self._loop.create_task(self._flush(), context=self._variables.copy())

    async def drained(self, timeout: float) -> bool:
        """Wait until everything has been answered, and the hooks have ended; False if that took too long."""
        until = self._loop.time() + timeout
        while left := self._alone | self._hooks | ({self._flushing} if self._flushing is not None else set()):
            _, pending = await asyncio.wait(left, timeout=max(0.0, until - self._loop.time()))
            if pending:
                return False
        return True

    def abandon(self) -> int:
        """Stop trying; the leases will end by themselves. Returns how many settlements were not delivered."""
        lost = len(self)
        for task in (*self._alone, *self._hooks, *([] if self._flushing is None else [self._flushing])):
            task.cancel()
        return lost

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
                self._under_way = len(batch)
                await self._send(batch)
                self._under_way = 0
        finally:
            self._flushing = None

    async def _send(self, batch: list[Ended]) -> None:
        """Deliver a batch. If its data is refused as a whole, its settlements are delivered one by one."""
        try:
            answers = await self._deliver([settlement for _, settlement in batch])
        except Exception:
            if len(batch) > 1:
                for ended in batch:
                    await self._send([ended])
                return
            run, settlement = batch[0]
            log.exception(
                "The outcome of %s %s could not be stored; its lease will end.",
                run.task.name,
                run.task.id,
                extra=extra_of(run.task),
            )
            self._answered(run, settlement, SettleAnswer(SettleOutcome.REFUSED))
            return
        for (run, settlement), answer in zip(batch, answers, strict=True):
            if answer is None:
                self._waiting.append((run, settlement))
            else:
                self._answered(run, settlement, answer)

    async def _deliver(self, settlements: list[Settlement]) -> Sequence[SettleAnswer | None]:
        """Try until the store answers. A repeat is harmless: if the first reply was lost, the answer is `already`.

        None for those that a part of the store did not answer: they are delivered again, with those that came since.
        """
        while True:
            try:
                with self._health.asking("settle tasks"):
                    answers = await self._engine.settle(settlements, now=self._clock.store_now())
            except PartlyAnswered as error:
                await asyncio.sleep(PART_AWAY)
                return error.answers
            except StoreError:
                await asyncio.sleep(self._backoff.next())
            else:
                self._backoff.reset()
                return answers

    def _answered(self, run: Run, settlement: Settlement, answer: SettleAnswer) -> None:
        """The store has answered a settlement."""
        if self._held.get(run.task.id) is run:  # a later lease on the same task is another run
            del self._held[run.task.id]
        if answer.outcome is SettleOutcome.REFUSED:
            self._refused(run, settlement)
            return
        if run.completing and answer.outcome is SettleOutcome.ALREADY:
            settlement = committed(run, settlement)
        if answer.due_in is not None:
            self._due_in(answer.due_in / SECOND)
        if not self._held:
            self._changed()
        ran = time.monotonic() - run.claimed
        self.counters.count(settlement, answer.state, ran)
        self._minutes.record(run.task, settlement.outcome, answer.state, int(ran * SECOND), self._clock.now())
        self._figures.record(run.task, settlement.outcome, answer.state, ran)
        if settlement.outcome is not Outcome.COMPLETED or self._logs_all:
            with suppress(Exception):  # of a log handler: it must not cost the other runs of a batch their counts
                log_end(run, settlement, answer)
        if answer.state is not None and (hooks := hooks_for(self._hub, run.definition, answer.state)):
            calls = call_hooks(hooks, end_of(run.task, settlement, answer.state))
            hook = self._loop.create_task(calls, context=self._variables.copy())
            self._hooks.add(hook)
            hook.add_done_callback(self._hooks.discard)

    def _refused(self, run: Run, settlement: Settlement) -> None:
        self.counters.refused += 1
        log.warning(
            "The outcome of %s %s (%s) was refused: lease %d is not the current one.",
            run.task.name,
            run.task.id,
            settlement.outcome,
            run.task.lease,
            extra=extra_of(run.task),
        )


def committed(run: Run, settlement: Settlement) -> Settlement:
    """What counts for a task that has completed in its own transaction, however its run ended afterwards."""
    failure = settlement.failure
    if failure is not None and failure is not outcome.NOT_COMMITTED:
        log.warning(
            "%s %s failed after it had completed in its own transaction, and stays completed: %s: %s\n%s",
            run.task.name,
            run.task.id,
            failure.type,
            failure.message,
            failure.traceback,
            extra=extra_of(run.task),
        )
    return outcome.completed(run.task, None)
