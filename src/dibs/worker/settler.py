"""Settlements on their way to the store: what gathers while one flush is under way goes with the next.

No future per task: runs are told through one callback. A settlement is kept until the store has answered it, however
long the store is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from dibs.core.task import Settlement
from dibs.engines.base import Engine
from dibs.engines.values import SettleOutcome
from dibs.errors import StoreError
from dibs.runtime.clock import Clock
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.run import Run

__all__ = ["Reports"]

log = logging.getLogger("dibs.worker")

MOST = 1000
"""Settlements in one flush."""

Report = tuple[Run, Settlement]
Answered = Callable[[Run, Settlement, SettleOutcome | None], None]
"""Told of each answer; None: the store could not take this settlement at all."""


class Reports:
    """The worker's settlements, in order."""

    def __init__(self, engine: Engine, clock: Clock, health: StoreHealth, answered: Answered) -> None:
        self._engine = engine
        self._clock = clock
        self._health = health
        self._answered = answered
        self._waiting: deque[Report] = deque()
        self._under_way = 0
        self._flushing: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()
        self._backoff = Backoff()
        self._loop = asyncio.get_running_loop()
        self._variables = copy_context()

    def __len__(self) -> int:
        """Settlements that the store has not answered yet."""
        return len(self._waiting) + self._under_way + len(self._alone)

    def add(self, run: Run, settlement: Settlement) -> None:
        """Hand over one settlement; on the loop's thread.

        A task that completes in its own transaction is locked until that is over: its report waits alone.
        """
        if run.completing:
            task = self._loop.create_task(self._send([(run, settlement)]), context=self._variables.copy())
            self._alone.add(task)
            task.add_done_callback(self._alone.discard)
            return
        self._waiting.append((run, settlement))
        if self._flushing is None:
            # Not in the context of the run that happened to end first.
            self._flushing = self._loop.create_task(self._flush(), context=self._variables.copy())

    async def drained(self, timeout: float) -> bool:
        """Wait until everything has been answered; False if that took too long."""
        until = self._loop.time() + timeout
        while left := self._alone | ({self._flushing} if self._flushing is not None else set()):
            _, pending = await asyncio.wait(left, timeout=max(0.0, until - self._loop.time()))
            if pending:
                return False
        return True

    def abandon(self) -> int:
        """Stop trying; the leases will end by themselves. How many were not delivered."""
        lost = len(self)
        for task in (*self._alone, *([] if self._flushing is None else [self._flushing])):
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

    async def _send(self, batch: list[Report]) -> None:
        """Deliver a batch; one that is refused as a whole because of its data goes item by item."""
        try:
            outcomes = await self._deliver([settlement for _, settlement in batch])
        except Exception:
            if len(batch) > 1:
                for report in batch:
                    await self._send([report])
                return
            run, settlement = batch[0]
            log.exception("The outcome of %s %s could not be stored; its lease will end.", run.task.name, run.task.id)
            self._answered(run, settlement, None)
            return
        for (run, settlement), outcome in zip(batch, outcomes, strict=True):
            self._answered(run, settlement, outcome)

    async def _deliver(self, settlements: list[Settlement]) -> list[SettleOutcome]:
        """Until the store answers. A repeat is harmless: what a lost reply had done is answered `already`."""
        while True:
            try:
                with self._health.asking("settle tasks"):
                    outcomes = await self._engine.settle(settlements, now=self._clock.store_now())
            except StoreError:
                await asyncio.sleep(self._backoff.next())
            else:
                self._backoff.reset()
                return outcomes
