"""How many tasks are ahead of a new one: exactly, or from figures that all submits share."""

from __future__ import annotations

import asyncio
import time

from dibs.core.settings import Tier, tier_of
from dibs.core.task import NewTask
from dibs.errors import DibsError
from dibs.runtime.hub import Hub

__all__ = ["Depths"]

FRESH = 1.0
"""Seconds for which figures are used."""
ORDER = tuple(Tier)


class Depths:
    """The pending tasks of each queue and tier, read about once a second while tasks are submitted."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._pending: dict[tuple[str, Tier], int] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Future[None] | None = None

    async def about(self, new: NewTask) -> int:
        """How many pending tasks of a queue are at least as urgent, by their tiers."""
        tier = tier_of(new.spec.priority)
        is_counted = False
        if time.monotonic() - self._read_at > FRESH:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(self._read())
            if (new.queue, tier) not in self._pending:
                await asyncio.shield(self._reading)
                is_counted = True  # it was stored before
        ahead = sum(self._pending.get((new.queue, each), 0) for each in ORDER[ORDER.index(tier) :])
        if is_counted:
            return max(0, ahead - 1)
        self._pending[new.queue, tier] = self._pending.get((new.queue, tier), 0) + 1
        return ahead

    async def _read(self) -> None:
        try:
            found = await self._hub.runner.arun(self._hub.engine.backlog(now=self._hub.clock.store_now()))
            self._pending = {(each.queue, each.tier): each.pending for each in found}
        except DibsError:  # the task is stored; how many are ahead of it is not worth an error
            pass
        finally:
            self._read_at = time.monotonic()

    async def ahead(self, task_id: str, queue: str) -> int | None:
        """Counted now, up to 10,000; None if it is no longer pending."""
        peeked = self._hub.engine.peek(queue, 0, until=task_id, now=self._hub.clock.store_now())
        position = (await self._hub.runner.arun(peeked)).position
        return None if position is None else position.ahead
