"""What every worker does for the common good: take back what the dead held, and, when it leads, the chores."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from dibs.core.lease import TERM_RENEWAL
from dibs.core.times import SECOND
from dibs.engines.base import Engine
from dibs.engines.values import Feature, Term
from dibs.errors import StoreError
from dibs.runtime.clock import Clock
from dibs.worker.health import HICCUP, Backoff, StoreHealth
from dibs.worker.rescue import Rescue

__all__ = ["Leader", "Rescuer"]

log = logging.getLogger("dibs.worker")

RESCUE_INTERVAL = 1.02
"""A little more than the second that an engine wants between two looks at an absent worker: two looks then do, and its
tasks are back within 2.5 s."""

LONGEST_STALLING = 60.0
"""Seconds of stall after stall before one look is made in between: a store may be slow for good."""

PRUNE_INTERVAL = 60.0
"""Seconds between two rounds of all chores. Those in `OFTEN` are done with every renewal of the term."""

OFTEN = ("rerank",)

MORE_INTERVAL = 0.05
"""Seconds before a chore that has more to do is continued: writers come first."""


class Rescuer:
    """Takes back lost tasks about once a second, but not right after an outage, a stall or a gap in time.

    Then every lease may have run out while its holder is alive: the holder gets time to extend it.
    """

    def __init__(self, rescue: Rescue, health: StoreHealth) -> None:
        self._rescue = rescue
        self._health = health
        self._seen_regained: float | None = None
        self._seen_stalled: float | None = None
        self._stalls_since = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(first=RESCUE_INTERVAL)
        more = False
        while True:
            await asyncio.sleep(MORE_INTERVAL if more else RESCUE_INTERVAL * random.uniform(1.0, 1.12))
            self.notice(time.monotonic())
            if self._rescue.holds_off(time.monotonic()):
                more = False
                continue
            try:
                with self._health.asking("look for lost tasks"):
                    more = (await self._rescue.look()).more
                backoff.reset()
            except StoreError:
                await asyncio.sleep(backoff.next())
                continue
            if self._rescue.holds_off(time.monotonic()):
                log.info("The store or this process stood still; leaving other workers' leases alone for a while.")

    def notice(self, now: float) -> None:
        """Hold off if the store is away, or has come back, or was slow to answer whatever it was asked."""
        regained, stalled = self._health.regained_at, self._health.stalled_at
        if regained is not None and regained != self._seen_regained:
            self._seen_regained = regained
            if self._health.was_down_for > HICCUP:
                self._rescue.hold_off(regained)
        if stalled is not None and stalled != self._seen_stalled:
            self._seen_stalled = stalled
            if not self._rescue.holds_off(now):
                self._stalls_since = stalled
            if stalled - self._stalls_since < LONGEST_STALLING:
                self._rescue.hold_off(stalled)
        if self._health.down:
            self._rescue.leave_alone(now + RESCUE_INTERVAL)


class Leader:
    """Tries for leadership; while it leads, does the chores in turn, one bounded step at a time."""

    def __init__(self, engine: Engine, clock: Clock, health: StoreHealth, worker: str) -> None:
        self._engine = engine
        self._clock = clock
        self._health = health
        self._worker = worker
        self._term: Term | None = None
        self._next_round = 0.0
        self._unfinished: tuple[str, ...] = ()
        self.gained: Callable[[], None] = lambda: None
        """Called when this worker begins to lead."""

    @property
    def leads(self) -> bool:
        return self._term is not None

    async def run(self) -> None:
        """Until cancelled."""
        if Feature.LEAD not in self._engine.features:
            return
        backoff = Backoff(first=1.0)
        while True:
            try:
                await self._lead()
                if self._term is not None:
                    await self._chores(self._term)
                backoff.reset()
            except StoreError:
                await asyncio.sleep(backoff.next())
                continue
            await asyncio.sleep(TERM_RENEWAL / SECOND * random.uniform(0.9, 1.0))

    async def resign(self) -> None:
        """Let another worker lead at once."""
        term, self._term = self._term, None
        if term is not None:
            await self._engine.resign(term)

    async def _lead(self) -> None:
        with self._health.asking("lead"):
            term = await self._engine.lead(self._worker, now=self._clock.store_now())
        before, self._term = self._term, term
        if term is not None and (before is None or before.number != term.number):
            log.info("This worker leads now (term %d).", term.number)
            self.gained()

    async def _chores(self, term: Term) -> None:
        """Every chore that is due, once; those with more to do go on for at most one renewal interval."""
        began = time.monotonic()
        with self._health.asking("do chores"):
            names = tuple(each.name for each in (await self._engine.about()).chores)
        if began < self._next_round:
            names = tuple(name for name in names if name in OFTEN or name in self._unfinished)
        else:
            self._next_round = began + PRUNE_INTERVAL
        while names and time.monotonic() - began < TERM_RENEWAL / SECOND:
            unfinished = []
            for name in names:
                with self._health.asking("do chores"):
                    record = await self._engine.chore(name, term, now=self._clock.store_now())
                if record.refused:
                    log.info("Another worker leads now; term %d is over.", term.number)
                    self._term = None
                    return
                if record.more:
                    unfinished.append(name)
            names = self._unfinished = tuple(unfinished)
            if names:
                await asyncio.sleep(MORE_INTERVAL)
