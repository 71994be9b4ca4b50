"""Claims tasks in batches, for the free slots and a little more, and sleeps until there is work."""

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
from dibs.engines.topics import work_topic
from dibs.engines.values import Claimed, ClaimRequest, Floor
from dibs.errors import StoreError
from dibs.runtime.hub import Hub
from dibs.worker.dispatcher import Dispatcher
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.service import Service, listen, wait_for
from dibs.worker.settings import WorkerSettings

__all__ = ["MOST_PREFETCH", "Fetcher", "prefetch_for"]

log = logging.getLogger("dibs.worker")

LONGEST_NAP = 5.0

PREFETCH_WINDOW = 0.1
"""Prefetch what should start within this many seconds."""

MOST_PREFETCH = 1000
STALE = 0.5
"""Tasks that could not be started for this many seconds go back to the store: other workers may have free slots, and
this one claims nothing, however urgent, as long as its buffer is full."""
LOOK_AT_BUFFER = 0.1

MOST_UNSETTLED = 4000
"""No claims are made while more settlements than this wait for the store's answer."""


class Demand(Struct, frozen=True):
    """How much to ask for."""

    limit: int
    prefetch: int
    floors: tuple[Floor, ...] = ()


def prefetch_for(concurrency: int, average: float | None, since_start: float) -> int:
    """How many tasks should start within the window, if a run takes `average` seconds.

    The last run started `since_start` seconds ago. If that is long, the current runs take at least that long.
    """
    if average is None:
        return 0
    return min(int(concurrency * PREFETCH_WINDOW / max(average, since_start, 1e-6)), MOST_PREFETCH)


class Fetcher(Service):
    """Claims until `stopping` is set; makes no claims while it is `paused`."""

    name = "fetcher"

    def __init__(
        self,
        hub: Hub,
        settings: WorkerSettings,
        worker: str,
        dispatcher: Dispatcher,
        health: StoreHealth,
        idle: Callable[[], None],
        shorten_interval: Callable[[float], None],
    ) -> None:
        """`idle` is called when nothing is left to do, `shorten_interval` with the seconds that new leases last."""
        self._hub = hub
        self._engine: Engine = hub.engine
        self._settings = settings
        self._worker = worker
        self._dispatcher = dispatcher
        self._slots = dispatcher.slots
        self._health = health
        self._idle = idle
        self._shorten_interval = shorten_interval
        self._queues = settings.served(hub)
        self._ceilings = settings.ceilings()
        self._wake = asyncio.Event()
        self._starved = False
        # A worker with a fixed name must not reuse the numbers of an earlier process with that name.
        self._sequence = time.time_ns() // 1000
        self._repeat = False
        self._names: tuple[str, ...] = ()
        self._due: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._backoff = Backoff()
        self._stale_since: float | None = None
        self.paused = False
        self.stopping = False

    def wake(self) -> None:
        """Look again: something has changed. On the loop's thread."""
        self._wake.set()

    def slot_freed(self) -> None:
        """Look again if the fetcher waits for a slot: one is free, or the last run was settled."""
        if self._starved:
            self._wake.set()

    def due_in(self, seconds: float) -> None:
        """Look again then: a task that this worker settled after the last claim falls due."""
        at = time.monotonic() + seconds
        if self._due is None or at < self._due.when():
            if self._due is not None:
                self._due.cancel()
            self._due = asyncio.get_running_loop().call_at(at, self._fall_due)

    def _fall_due(self) -> None:
        self._due = None
        self._wake.set()

    async def run(self) -> None:
        """Claim until `stopping` is set. A claim under way is completed, so that its leases are not orphaned."""
        topics = [work_topic(queue) for queue in self._queues]
        listener = asyncio.get_running_loop().create_task(listen(self._engine, topics, self._wake.set))
        try:
            while not self.stopping:
                demand = None if self.paused else self.demand()
                if demand is None:
                    await self._nap(LONGEST_NAP, or_slot=True)
                else:
                    await self._fetch(demand)
        finally:
            listener.cancel()
            for timer in (self._due, self._watch):
                if timer is not None:
                    timer.cancel()

    async def _fetch(self, demand: Demand) -> None:
        self._wake.clear()
        claimed = await self._claim(demand)
        if claimed is None:
            await self._nap(self._backoff.next())
            return
        given = len(claimed.tasks)
        if given == demand.limit + demand.prefetch:
            return
        # The store had no more: sleep until it has, or until something falls due. A free slot only matters if a lack of
        # slots kept tasks back: limited queues give nothing in advance.
        until_idle = self._settings.until_idle
        if given == 0 and until_idle and await self._nothing_left(claimed):
            self._idle()
        kept_back = given >= demand.limit or bool(demand.floors)
        await self._nap(self._until_due(claimed), or_slot=kept_back or until_idle)

    def _until_due(self, claimed: Claimed) -> float:
        nap = LONGEST_NAP * random.uniform(0.8, 1.0)
        return nap if claimed.next_due_in is None else min(nap, claimed.next_due_in / SECOND)

    async def _nap(self, seconds: float, *, or_slot: bool = False) -> None:
        """Sleep until woken, or not at all if that was since the last claim; `or_slot`: a free slot wakes as well."""
        if not self._wake.is_set():
            self._starved = or_slot
            await wait_for(self._wake, seconds)
            self._starved = False
        self._wake.clear()

    def demand(self) -> Demand | None:
        """What to ask for, if anything."""
        slots, settings = self._slots, self._settings
        if len(self._dispatcher.settler) > MOST_UNSETTLED:
            return None
        buffered = len(slots.buffer)
        free = settings.concurrency - slots.busy
        target = self._prefetch() if settings.prefetch else 0
        slots.low = target // 2
        ahead = max(0, target - buffered)
        if buffered > slots.low:
            ahead = 0  # a claim for a handful is not worth a round trip
        limit = max(0, free - buffered) if not self._ceilings else free
        if limit == 0 and ahead == 0:
            return None
        floors = tuple(
            Floor(floor.effective, max(0, floor.below - slots.below[level]) + ahead)
            for level, floor in enumerate(self._ceilings)
        )
        return Demand(limit, ahead, floors)

    def _prefetch(self) -> int:
        last_started = self._slots.last_started
        if last_started == self._stale_since:
            return 0  # what was prefetched last could not be started, and nothing has been since
        since_start = time.monotonic() - last_started
        return prefetch_for(self._settings.concurrency, self._slots.average, since_start if self._slots.busy else 0.0)

    async def _claim(self, demand: Demand) -> Claimed | None:
        """Claim once; None if the store did not answer. The next claim repeats it, because it may have taken effect."""
        if len(self._names) != len(self._hub.definitions):
            self._names = tuple(self._hub.definitions)
        if not self._repeat:
            self._sequence += 1
        request = ClaimRequest(
            worker=self._worker,
            sequence=self._sequence,
            queues=self._queues,
            limit=demand.limit,
            prefetch=demand.prefetch,
            names=self._names,
            capabilities=self._settings.offered(),
            lease=self._settings.lease_span(),
            in_order=self._settings.in_order,
            floors=demand.floors,
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
            self._shorten_interval(shortest / SECOND - (time.monotonic() - sent))
            self._dispatcher.accept(claimed.tasks, sent)
            self._watch_buffer()
        return claimed

    async def _nothing_left(self, claimed: Claimed) -> bool:
        """Whether the served queues have nothing more that this worker could ever run."""
        if self._dispatcher.held or len(self._dispatcher.settler):
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
        if self._watch is None and len(self._slots.buffer):
            self._watch = asyncio.get_running_loop().call_later(LOOK_AT_BUFFER, self._look_at_buffer)

    def _look_at_buffer(self) -> None:
        self._watch = None
        self.release_stale()
        self._watch_buffer()

    def release_stale(self) -> None:
        """Hand back what waits in the buffer because the tasks before it turned out to be slow.

        What waits only because slots are reserved stays as long as others start: it would be claimed again at once.
        """
        last_started, long_ago = self._slots.last_started, time.monotonic() - STALE
        if self._ceilings and last_started > long_ago:
            return
        count = self._dispatcher.release_buffer("not started in time; handed back for others", long_ago)
        if count:
            self._stale_since = last_started
            log.debug("Handed back %d tasks that could not be started in time.", count)
