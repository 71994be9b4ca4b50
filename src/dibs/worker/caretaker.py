"""What a server does for its store: the maintenance of a worker, without running tasks."""

from __future__ import annotations

import asyncio
import logging
import time

from dibs.engines.values import Feature
from dibs.errors import StoreError
from dibs.runtime.hub import Hub
from dibs.runtime.rescue import Rescue
from dibs.worker.health import Backoff, StoreHealth
from dibs.worker.maintenance.blob_sweeper import BlobSweeper
from dibs.worker.maintenance.leader import Leader
from dibs.worker.maintenance.rescuer import Rescuer
from dibs.worker.maintenance.scheduler import Scheduler
from dibs.worker.service import Service

__all__ = ["Caretaker"]

log = logging.getLogger("dibs.server")

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Seconds before a service that broke is started again, the first time and at most."""

HEALTHY_AFTER = 60.0
"""A service that has run this many seconds before it broke is started again as soon as the first time."""

PATIENCE = 1.0
"""Seconds for giving up leadership; without that it ends by itself."""


class Caretaker:
    """Rescues, leads, fires schedules and sweeps blobs, on the hub's loop, where the engine leaves that to its callers.

    A service that breaks is started again: it is no reason to stop answering requests. Starting twice, stopping twice
    and stopping before the start are fine.
    """

    def __init__(self, hub: Hub, name: str) -> None:
        """`name` is the leader's, for people."""
        self._needed = Feature.LEAD in hub.features
        self._runs = False
        self._restarts: dict[str, asyncio.TimerHandle] = {}
        health = StoreHealth()
        self._scheduler = Scheduler(hub, health, self._leads)
        self._leader = Leader(hub, health, name, self._scheduler.wake)
        services = (self._leader, self._scheduler, Rescuer(Rescue(hub), health), BlobSweeper(hub, self._leads))
        self._services: dict[str, Service] = {service.name: service for service in services}
        self._backoffs = {name: Backoff(FIRST_WAIT, LONGEST_WAIT) for name in self._services}
        self._started: dict[str, float] = {}

    def start(self) -> None:
        """Begin; the schedules of the app are declared first of all."""
        if self._runs or not self._needed:
            return
        self._runs = True
        for name in self._services:
            self._start(name)

    async def stop(self) -> None:
        """End what runs, and let another process lead at once."""
        self._runs = False
        for restart in self._restarts.values():
            restart.cancel()
        self._restarts.clear()
        tasks = [service.task for service in self._services.values() if service.task is not None]
        for service in self._services.values():
            service.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._leader.resign()
        except (StoreError, TimeoutError):
            log.info("Leadership could not be given up; it ends by itself.")

    def _leads(self) -> bool:
        """Whether it leads and still renews its term."""
        task = self._leader.task
        return self._leader.leads and task is not None and not task.done()

    def _start(self, name: str) -> None:
        self._restarts.pop(name, None)
        self._started[name] = time.monotonic()
        self._services[name].start(self._broke)

    def _broke(self, name: str, error: BaseException) -> None:
        if not self._runs:
            return
        backoff = self._backoffs[name]
        if time.monotonic() - self._started[name] > HEALTHY_AFTER:
            backoff.reset()
        wait = backoff.next()
        log.error("The server's %s broke; starting it again in %.1f s.", name, wait, exc_info=error)
        self._restarts[name] = asyncio.get_running_loop().call_later(wait, self._start, name)
