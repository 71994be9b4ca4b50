"""What workers in other languages said when they registered. Any server can learn it from the store."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from dibs.core.task import WorkerState
from dibs.runtime.hub import Hub

__all__ = ["Registration", "Registrations"]

MOST = 10_000


class Registration(Struct, frozen=True, kw_only=True):
    """What a worker can do, and the state that it was last told."""

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
        self._known: OrderedDict[str, Registration] = OrderedDict()

    def add(self, worker: str, known: Registration) -> None:
        self._known[worker] = known
        self._known.move_to_end(worker)
        while len(self._known) > MOST:
            self._known.popitem(last=False)

    def drop(self, worker: str) -> None:
        self._known.pop(worker, None)

    async def find(self, worker: str) -> Registration | None:
        if worker not in self._known:
            for each in await self._hub.runner.arun(self._hub.engine.workers()):
                if each.id == worker and each.state is not WorkerState.DEAD:
                    found = Registration(
                        queues=each.queues,
                        names=each.names,
                        capabilities=each.capabilities,
                        capacity=each.concurrency,
                        host=each.host,
                        version=each.version,
                        state=each.state,
                    )
                    self.add(worker, found)
        return self._known.get(worker)
