"""How a worker leaves: stops claiming, finishes or hands back what runs, and settles it."""

from __future__ import annotations

import asyncio
import logging
import time

from dibs.errors import StoreError
from dibs.worker.dispatcher import Dispatcher
from dibs.worker.fetcher import Fetcher
from dibs.worker.maintenance.leader import Leader
from dibs.worker.run import Stop
from dibs.worker.service import wait_for
from dibs.worker.status import ExitCode
from dibs.worker.stopper import GRACE, Stopper

__all__ = ["SIGN_OFF", "Shutdown"]

log = logging.getLogger("dibs.worker")

SIGN_OFF = 5.0
"""Seconds for the last settlements, and as many for signing off, once nothing runs any more."""


class Shutdown:
    """Whether, why and until when a worker leaves, and how it went. Used on the worker's loop."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.reason = "asked to stop"
        self.code = ExitCode.CLEAN
        self.handed_back = 0
        self._deadline: float | None = None
        self._turn = asyncio.Event()

    def ask(self, seconds: float, reason: str) -> bool:
        """Leave within `seconds`; True if nothing had asked before. Asked again, the earlier moment counts."""
        deadline = time.monotonic() + seconds
        first = not self.asked.is_set()
        if first:
            self.reason = reason
            self.asked.set()
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
        self._turn.set()
        return first

    def look_again(self) -> None:
        """Something has ended."""
        self._turn.set()

    async def leave(self, fetcher: Fetcher, dispatcher: Dispatcher, stopper: Stopper, leader: Leader) -> None:
        """Stop claiming, finish or hand back, settle, give up leadership."""
        slots, settler = dispatcher.slots, dispatcher.settler
        await self._stop_claiming(fetcher)
        dispatcher.leave()
        while slots.ending() and self._left() > 0:
            await self._next_turn(self._left())
        self._hand_back(dispatcher, stopper)
        if slots.active():
            await asyncio.sleep(0)
            until = time.monotonic() + GRACE + 0.5
            while slots.active() and time.monotonic() < until:
                await self._next_turn(until - time.monotonic())
        if not await settler.drained(SIGN_OFF):
            log.error("%d outcomes could not be delivered; those tasks will run again.", settler.abandon())
            self.code = self.code or ExitCode.HANDED_BACK
        await resign(leader)

    async def _stop_claiming(self, fetcher: Fetcher) -> None:
        fetcher.stopping = True
        fetcher.wake()
        assert fetcher.task is not None
        fetcher.task.add_done_callback(lambda _: self._turn.set())
        while not fetcher.task.done() and self._left() > 0:
            await self._next_turn(self._left())

    def _left(self) -> float:
        """Seconds until the deadline, which a second request may have moved."""
        return 0.0 if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    async def _next_turn(self, seconds: float) -> None:
        self._turn.clear()
        await wait_for(self._turn, seconds)

    def _hand_back(self, dispatcher: Dispatcher, stopper: Stopper) -> None:
        """Stop what still runs: the time is up."""
        active = dispatcher.slots.active()
        for run in active:
            stopper.stop(run, Stop.HANDED_BACK, "the worker is leaving")
        if active:
            log.warning("Handing back %d running tasks: the time is up.", len(active))
            self.handed_back = len(active)
            self.code = self.code or ExitCode.HANDED_BACK


async def resign(leader: Leader) -> None:
    try:
        async with asyncio.timeout(1.0):
            await leader.resign()
    except (StoreError, TimeoutError):
        log.info("Leadership could not be given up; it ends by itself.")
