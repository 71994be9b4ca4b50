"""Takes back the tasks of workers that are gone, about once a second."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from dibs.errors import StoreError
from dibs.runtime.rescue import Rescue
from dibs.worker.health import HICCUP, Backoff, StoreHealth
from dibs.worker.service import Service

__all__ = ["Rescuer"]

log = logging.getLogger("dibs.worker")

RESCUE_INTERVAL = 1.02
"""A little more than the second that an engine requires between two looks at an absent worker: two looks are then
enough, and its tasks are back within 2.5 s."""

LONGEST_STALLING = 60.0
"""After this many seconds of repeated stalls, tasks are rescued all the same: a store may be slow for good."""

MORE_INTERVAL = 0.05
"""Seconds before a rescue that has more to take is continued: other writers come first."""


class Rescuer(Service):
    """Takes back lost tasks about once a second, but not right after an outage, a stall or a gap in time.

    Then every lease may have run out while its holder is alive: the holder gets time to extend it.
    """

    name = "rescuer"

    def __init__(self, rescue: Rescue, health: StoreHealth) -> None:
        self._rescue = rescue
        self._health = health
        self._seen_regained: float | None = None
        self._seen_stalled: float | None = None
        self._stalls_since = 0.0

    async def run(self) -> None:
        """Rescue until cancelled."""
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
        """Hold off if the store is away, has just come back, or was slow to answer."""
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
