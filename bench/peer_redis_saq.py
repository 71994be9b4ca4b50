"""SAQ's side of the Redis comparison."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saq import Worker
from saq.queue.redis import RedisQueue

import peers
import signals

AT_ONCE = 50


async def nothing(context: Any, *, number: int) -> int:
    signals.tell_done()
    return number


async def started(context: Any, *, number: int) -> None:
    signals.tell_started()


class Saq:
    @asynccontextmanager
    async def opened(self, callers: int) -> AsyncIterator[None]:
        self._queue = RedisQueue.from_url(peers.URL, max_concurrent_ops=peers.CALLERS)
        await self._queue.connect()
        yield
        await self._queue.disconnect()

    async def install(self) -> None:
        """There is nothing to make."""

    async def enqueue(self, name: str, number: int) -> object:
        return await self._queue.enqueue(name, number=number)

    async def enqueue_many(self, numbers: range) -> object:
        raise NotImplementedError("SAQ enqueues one job at a time.")

    async def work(self) -> None:
        await Worker(self._queue, functions=[nothing, started], concurrency=AT_ONCE).start()


if __name__ == "__main__":
    peers.main(Saq())
