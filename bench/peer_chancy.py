"""Chancy's side of the PostgreSQL comparison."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chancy import Chancy, Queue, Worker, job

import peers
import signals

CONCURRENCY = 200


@job()
async def nothing(*, number: int) -> int:
    signals.tell_done()
    return number


@job()
async def started(*, number: int) -> None:
    signals.tell_started()


JOBS = {"nothing": nothing.job, "started": started.job}


class Contestant:
    @asynccontextmanager
    async def opened(self, callers: int) -> AsyncIterator[None]:
        logger = logging.getLogger("chancy-bench")
        logger.setLevel(logging.WARNING)
        async with Chancy(peers.URL, max_connection_pool_size=20, log=logger) as self._chancy:
            yield

    async def install(self) -> None:
        """Its queue runs coroutines, and looks again at once when one has ended instead of some seconds later."""
        await self._chancy.migrate()
        await self._chancy.declare(
            Queue(
                "default",
                concurrency=CONCURRENCY,
                executor=Chancy.Executor.Async,
                polling_interval=1,
                eager_polling=True,
            )
        )

    async def enqueue(self, name: str, number: int) -> object:
        return await self._chancy.push(JOBS[name].with_kwargs(number=number))

    async def enqueue_many(self, numbers: range) -> object:
        jobs = [JOBS["nothing"].with_kwargs(number=number) for number in numbers]
        return [references async for references in self._chancy.push_many(jobs)]

    async def work(self) -> None:
        async with Worker(self._chancy) as worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    peers.main(Contestant())
