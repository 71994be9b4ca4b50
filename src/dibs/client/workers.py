"""`app.workers`: lists workers, pauses and drains them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from dibs.client.blocking import Admin, blocking
from dibs.client.info import snapshot
from dibs.core.options import check_reference
from dibs.core.task import WorkerState
from dibs.engines.values import Changed
from dibs.errors import UnknownWorker, WrongState
from dibs.runtime.environment import actor


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker as of its last heartbeat."""

    id: str
    """Its name."""
    state: WorkerState
    """active, paused, draining, or dead."""
    host: str
    """The machine that it runs on."""
    pid: int
    """Its process on that host."""
    version: str
    """Of Dibs."""
    queues: tuple[str, ...]
    """What it claims from, in order."""
    names: tuple[str, ...] | None
    """The tasks that it knows; None: any."""
    capabilities: tuple[str, ...]
    """What it offers."""
    concurrency: int
    """Its slots."""
    running: int
    """Its busy slots."""
    buffered: int
    """Tasks that are leased but not started: in the store they are running, here they wait for a slot."""
    started_at: datetime | None
    """When it started."""
    seen_at: datetime | None
    """Its last heartbeat."""


WorkerInfos = list[WorkerInfo]
"""Named here, because inside the class `list` is a method."""


class Workers(Admin):
    """Reading and controlling workers; they obey within a moment, at the latest with their next heartbeat."""

    async def alist(self) -> WorkerInfos:
        """All workers; dead ones are kept for a day."""
        found = await self._ask(self.hub.engine.workers())
        return [snapshot(WorkerInfo, record, buffered=getattr(record, "buffered", 0)) for record in found]

    list = blocking(alist)

    async def apause(self, worker: str) -> bool:
        """Claim nothing more until resumed. False if it was paused."""
        return await self._state(worker, WorkerState.PAUSED)

    pause = blocking(apause)

    async def aresume(self, worker: str) -> bool:
        """Claim again. False if it was active."""
        return await self._state(worker, WorkerState.ACTIVE)

    resume = blocking(aresume)

    async def adrain(self, worker: str) -> bool:
        """Finish what it runs, then leave. False if it was draining."""
        return await self._state(worker, WorkerState.DRAINING)

    drain = blocking(adrain)

    async def _state(self, worker: str, state: WorkerState) -> bool:
        check_reference(worker, "a worker's id")
        answer = await self._ask(self.hub.engine.set_worker_state(worker, state, actor=actor(), now=self._now))
        if answer is Changed.UNKNOWN:
            raise UnknownWorker(f"no worker has the id {worker!r}.")
        if answer is Changed.WRONG_STATE:
            raise WrongState(f"worker {worker!r} is dead.")
        return answer is Changed.DONE
