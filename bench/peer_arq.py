"""arq's side of the Redis comparison: no results, and a poll every 10 ms where its default is 500."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

import peers
import signals

AT_ONCE = 100
POLL = 0.01


async def nothing(context: Any, number: int) -> int:
    signals.tell_done()
    return number


async def started(context: Any, number: int) -> None:
    signals.tell_started()


class Arq:
    @asynccontextmanager
    async def opened(self, callers: int) -> AsyncIterator[None]:
        self._pool = await create_pool(RedisSettings.from_dsn(peers.URL))
        yield
        await self._pool.aclose()

    async def install(self) -> None:
        """There is nothing to make."""

    async def enqueue(self, name: str, number: int) -> object:
        return await self._pool.enqueue_job(name, number)

    async def enqueue_many(self, numbers: range) -> object:
        raise NotImplementedError("arq enqueues one job at a time.")

    async def work(self) -> None:
        await Worker(
            [nothing, started],
            redis_pool=self._pool,
            max_jobs=AT_ONCE,
            poll_delay=POLL,
            keep_result=0,
            log_results=False,
        ).async_run()


if __name__ == "__main__":
    peers.main(Arq())
