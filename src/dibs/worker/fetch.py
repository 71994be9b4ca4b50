"""The one fetcher: claims in batches for the free slots and a little more, and sleeps until there is work."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from msgspec import Struct

from dibs.core.states import State
from dibs.core.times import SECOND
from dibs.engines.base import Engine
from dibs.engines.values import Claimed, ClaimRequest, Floor, work_topic
from dibs.errors import StoreError
from dibs.runtime.hub import Hub
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.running import Runs
from dibs.worker.settings import WorkerSettings

__all__ = ["Fetcher", "Room", "prefetch_for"]

log = logging.getLogger("dibs.worker")

LONGEST_NAP = 5.0

PREFETCH_WINDOW = 0.1
"""Prefetch what should start within this many seconds."""

MOST_PREFETCH = 1000
STALE = 0.5
"""What could not be started for this many seconds goes back to the store: others may have free slots, and as long as
there is much in the buffer nothing is claimed, however urgent."""
LOOK_AT_BUFFER = 0.1

MOST_UNSETTLED = 4000
"""Claims wait while the store owes answers to this many settlements."""


class Room(Struct, frozen=True):
    """How much to ask for."""

    limit: int
    prefetch: int
    floors: tuple[Floor, ...] = ()


def prefetch_for(concurrency: int, average: float | None, since_start: float) -> int:
    """How many tasks should start within the window: `average` seconds a run, the last one started `since_start` ago.

    If nothing has started for long, whatever runs now takes at least that long.
    """
    if average is None:
        return 0
    return min(int(concurrency * PREFETCH_WINDOW / max(average, since_start, 1e-6)), MOST_PREFETCH)


class Fetcher:
    """Claims until stopped. `paused` keeps it from claiming, no more."""

    def __init__(
        self, hub: Hub, settings: WorkerSettings, worker: str, runs: Runs, health: StoreHealth, idle: Callable[[], None]
    ) -> None:
        self._hub = hub
        self._engine: Engine = hub.engine
        self._settings = settings
        self._worker = worker
        self._runs = runs
        self._health = health
        self._idle = idle
        self._queues = settings.served(hub)
        self._ceilings = settings.ceilings()
        self._wake = asyncio.Event()
        self._starved = False
        # A worker with a fixed name must not take up the numbers of an earlier process of that name.
        self._sequence = time.time_ns() // 1000
        self._repeat = False
        self._names: tuple[str, ...] = ()
        self._due: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._backoff = Backoff()
        self._stale_since: float | None = None
        self.paused = False
        self.stopping = False
        self.hurry: Callable[[float], None] = lambda _: None

    def wake(self) -> None:
        """Something has changed; on the loop's thread."""
        self._wake.set()

    def room_changed(self) -> None:
        """A slot came free, or the last run was settled."""
        if self._starved:
            self._wake.set()

    def due_in(self, seconds: float) -> None:
        """A task of ours falls due again: the last claim did not know of it."""
        at = time.monotonic() + seconds
        if self._due is None or at < self._due.when():
            if self._due is not None:
                self._due.cancel()
            self._due = asyncio.get_running_loop().call_at(at, self._fall_due)

    def _fall_due(self) -> None:
        self._due = None
        self._wake.set()

    async def run(self) -> None:
        """Until `stopping` is set; a claim that is under way is waited for, so that its leases are not orphaned."""
        listener = asyncio.get_running_loop().create_task(self._listen())
        try:
            while not self.stopping:
                room = None if self.paused else self.room()
                if room is None:
                    await self._nap(LONGEST_NAP, or_room=True)
                else:
                    await self._fetch(room)
        finally:
            listener.cancel()
            for timer in (self._due, self._watch):
                if timer is not None:
                    timer.cancel()

    async def _fetch(self, room: Room) -> None:
        self._wake.clear()
        claimed = await self._claim(room)
        if claimed is None:
            await self._nap(self._backoff.next())
            return
        given = len(claimed.tasks)
        if given == room.limit + room.prefetch:
            return
        # The store had no more for us: sleep until it says so, or until something falls due. A slot that comes free
        # changes that only if it was the slots that kept tasks back: limited queues give nothing in advance.
        until_idle = self._settings.until_idle
        if given == 0 and until_idle and await self._nothing_left(claimed):
            self._idle()
        kept_back = given >= room.limit or bool(room.floors)
        await self._nap(self._until_due(claimed), or_room=kept_back or until_idle)

    def _until_due(self, claimed: Claimed) -> float:
        nap = LONGEST_NAP * random.uniform(0.8, 1.0)
        return nap if claimed.next_due_in is None else min(nap, claimed.next_due_in / SECOND)

    async def _nap(self, seconds: float, *, or_room: bool = False) -> None:
        """Until woken, at most `seconds`. A ring since the last claim counts; `or_room`: so does room for more."""
        if not self._wake.is_set():
            self._starved = or_room
            try:
                async with asyncio.timeout(max(seconds, 0)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._starved = False
        self._wake.clear()

    async def _listen(self) -> None:
        subscription = self._engine.subscribe([work_topic(queue) for queue in self._queues])
        try:
            while True:
                if await subscription.wait(3600):
                    self._wake.set()
        finally:
            subscription.close()

    def room(self) -> Room | None:
        """What to ask for, if anything."""
        runs, settings = self._runs, self._settings
        if len(runs.reports) > MOST_UNSETTLED:
            return None
        buffered = len(runs.buffer)
        free = settings.concurrency - runs.busy
        target = self._prefetch() if settings.prefetch else 0
        runs.low = target // 2
        ahead = max(0, target - buffered)
        if buffered > runs.low:
            ahead = 0  # a claim for a handful is not worth a round trip
        limit = max(0, free - buffered) if not self._ceilings else free
        if limit == 0 and ahead == 0:
            return None
        floors = tuple(
            Floor(floor.effective, max(0, floor.below - runs.below[level]) + ahead)
            for level, floor in enumerate(self._ceilings)
        )
        return Room(limit, ahead, floors)

    def _prefetch(self) -> int:
        last_started = self._runs.last_started
        if last_started == self._stale_since:
            return 0  # what was prefetched last could not be started, and nothing has been since
        since_start = time.monotonic() - last_started
        return prefetch_for(self._settings.concurrency, self._runs.average, since_start if self._runs.busy else 0.0)

    async def _claim(self, room: Room) -> Claimed | None:
        """One claim; None if the store did not answer. The next one repeats it, for it may have taken effect."""
        if len(self._names) != len(self._hub.definitions):
            self._names = tuple(self._hub.definitions)
        if not self._repeat:
            self._sequence += 1
        request = ClaimRequest(
            worker=self._worker,
            sequence=self._sequence,
            queues=self._queues,
            limit=room.limit,
            prefetch=room.prefetch,
            names=self._names,
            capabilities=self._settings.offered(),
            lease=self._settings.lease_span(),
            in_order=self._settings.in_order,
            floors=room.floors,
            repeat=self._repeat,
        )
        sent = time.monotonic()
        try:
            with self._health.asking("claim tasks"):
                claimed = await self._engine.claim(request, now=self._hub.clock.store_now())
        except StoreError:
            self._repeat = True
            return None
        self._repeat = False
        self._backoff.reset()
        if claimed.tasks:
            shortest = min(task.lease_expires_at - task.claimed_at for task in claimed.tasks)
            self.hurry(shortest / SECOND - (time.monotonic() - sent))
            self._runs.accept(claimed.tasks, sent)
            self._watch_buffer()
        return claimed

    async def _nothing_left(self, claimed: Claimed) -> bool:
        """Whether our queues have nothing more that we could ever run."""
        if self._runs.held or len(self._runs.reports):
            return False
        try:
            counts = (await self._engine.counts()).tasks
        except StoreError:
            return False
        mine = [counts[queue] for queue in self._queues if queue in counts]
        later = (State.SCHEDULED, State.RETRYING, State.RUNNING, State.BLOCKED)
        if any(states[state] for states in mine for state in later):
            return False
        waits_for_a_token = claimed.next_due_in is not None and any(states[State.PENDING] for states in mine)
        return not waits_for_a_token

    def _watch_buffer(self) -> None:
        """Look at the buffer again in a while, as long as there is anything in it."""
        if self._watch is None and len(self._runs.buffer):
            self._watch = asyncio.get_running_loop().call_later(LOOK_AT_BUFFER, self._look_at_buffer)

    def _look_at_buffer(self) -> None:
        self._watch = None
        self.release_stale()
        self._watch_buffer()

    def release_stale(self) -> None:
        """Hand back what waits in the buffer because the tasks before it turned out to be slow.

        What waits for slots that are reserved stays as long as others start: it would only be fetched again.
        """
        last_started, long_ago = self._runs.last_started, time.monotonic() - STALE
        if self._ceilings and last_started > long_ago:
            return
        count = self._runs.release_buffer("not started in time; handed back for others", long_ago)
        if count:
            self._stale_since = last_started
            log.debug("Handed back %d tasks that could not be started in time.", count)
