"""Leadership: one worker at a time does the chores of the store, such as retention."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from dibs.core.chores import is_behind, meaning_of
from dibs.core.humanize import format_duration
from dibs.core.policy import TERM_RENEWAL
from dibs.core.times import SECOND
from dibs.engines.values import ChoreRecord, Feature, Term
from dibs.errors import StoreError
from dibs.runtime.hub import Hub
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.service import Service

__all__ = ["ChoreLog", "Leader"]

log = logging.getLogger("dibs.worker")

PRUNE_INTERVAL = 60.0
"""Seconds between two rounds of all chores. Those in `OFTEN` are done with every renewal of the term."""

OFTEN = ("rerank", "background_steps", "prune_events")

MORE_INTERVAL = 0.05
"""Seconds before a chore that has more to do is continued: other writers come first."""


SLOW_STEP = 5 * SECOND
"""A step of a chore that takes longer holds others up."""


class ChoreLog:
    """Logs once that a chore does not keep up, and once that it does again; and once that its steps are slow."""

    def __init__(self) -> None:
        self._behind: set[str] = set()
        self._slow: set[str] = set()

    def ran(self, record: ChoreRecord) -> None:
        name = record.name
        if is_behind(record.behind_since, record.at) and name not in self._behind:
            self._behind.add(name)
            span = format_duration((record.at - record.behind_since) / SECOND)
            log.warning("The chore %s has had work left for %s: %s.", name, span, meaning_of(name))
        elif record.behind_since == 0 and name in self._behind:
            self._behind.discard(name)
            log.info("The chore %s has caught up.", name)
        if record.took <= SLOW_STEP:
            self._slow.discard(name)
        elif name not in self._slow:
            self._slow.add(name)
            log.warning("A step of the chore %s took %s.", name, format_duration(record.took / SECOND))


class Leader(Service):
    """Tries for leadership; while it leads, does the chores in turn, one bounded step at a time."""

    name = "leader"

    def __init__(self, hub: Hub, health: StoreHealth, worker: str, gained: Callable[[], None]) -> None:
        """`gained` is called when this worker begins to lead."""
        self._engine = hub.engine
        self._clock = hub.clock
        self._health = health
        self._worker = worker
        self._term: Term | None = None
        self._next_round = 0.0
        self._unfinished: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        self._chore_log = ChoreLog()
        self._gained = gained

    @property
    def leads(self) -> bool:
        return self._term is not None

    async def run(self) -> None:
        """Lead until cancelled."""
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
            log.info("This process leads now (term %d).", term.number)
            self._gained()

    async def _chores(self, term: Term) -> None:
        """Do every chore that is due once; those with more to do go on for at most one renewal interval."""
        began = time.monotonic()
        if not self._names:
            with self._health.asking("do chores"):
                self._names = tuple(each.name for each in (await self._engine.about()).chores)
        names = self._names
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
                self._chore_log.ran(record)
                if record.more:
                    unfinished.append(name)
            names = self._unfinished = tuple(unfinished)
            if names:
                await asyncio.sleep(MORE_INTERVAL)
