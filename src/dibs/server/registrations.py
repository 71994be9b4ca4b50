"""What workers in other languages said when they registered, and the state that they must obey.

The store knows it; a server remembers it for a second, so that another server's news arrive.
"""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from dibs.core.task import WorkerState
from dibs.engines.values import WorkerRecord
from dibs.runtime.hub import Hub

__all__ = ["Registration", "Registrations"]

FRESH = 1.0
"""Seconds for which what was read is used."""


class Registration(Struct, frozen=True, kw_only=True):
    """What a worker can do, and its state."""

    queues: tuple[str, ...]
    names: tuple[str, ...] | None
    capabilities: tuple[str, ...]
    capacity: int
    host: str
    version: str
    state: WorkerState = WorkerState.ACTIVE


class Registrations:
    """By the name that the store knows the worker by."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._known: dict[str, Registration] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Future[None] | None = None

    def add(self, worker: str, known: Registration) -> None:
        self._known[worker] = known

    def drop(self, worker: str) -> None:
        self._known.pop(worker, None)

    async def find(self, worker: str, *, again: bool = False) -> Registration | None:
        """`again`: something has changed, so that it must be read again."""
        if again or worker not in self._known or time.monotonic() - self._read_at > FRESH:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(self._read())
            await asyncio.shield(self._reading)
        return self._known.get(worker)

    async def _read(self) -> None:
        """Of all workers at once: many ask at the same time."""
        found = await self._hub.runner.arun(self._hub.engine.workers())
        self._known = {each.id: registration_of(each) for each in found if each.state is not WorkerState.DEAD}
        self._read_at = time.monotonic()


def registration_of(record: WorkerRecord) -> Registration:
    return Registration(
        queues=record.queues,
        names=record.names,
        capabilities=record.capabilities,
        capacity=record.concurrency,
        host=record.host,
        version=record.version,
        state=record.state,
    )
