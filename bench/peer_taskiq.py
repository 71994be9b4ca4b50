"""Taskiq's side of the Redis comparison: messages in Redis that are acknowledged and kept; no results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from taskiq_redis import RedisStreamBroker

import peers
import signals

broker = RedisStreamBroker(url=peers.URL)


@broker.task(task_name="nothing")
async def nothing(number: int) -> int:
    signals.tell_done()
    return number


@broker.task(task_name="started")
async def started(number: int) -> None:
    signals.tell_started()


TASKS = {"nothing": nothing, "started": started}


class Taskiq:
    @asynccontextmanager
    async def opened(self, callers: int) -> AsyncIterator[None]:
        await broker.startup()
        yield
        await broker.shutdown()

    async def install(self) -> None:
        """The consumer group is made at start."""

    async def enqueue(self, name: str, number: int) -> object:
        return await TASKS[name].kiq(number)

    async def enqueue_many(self, numbers: range) -> object:
        raise NotImplementedError("Taskiq kicks one task at a time.")

    async def work(self) -> None:
        raise NotImplementedError("Its workers are started by its own command line.")


if __name__ == "__main__":
    peers.main(Taskiq())
