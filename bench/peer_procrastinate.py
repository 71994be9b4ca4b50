"""Procrastinate's side of the PostgreSQL comparison."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import procrastinate

import peers
import signals

CONCURRENCY = 20
"""A hundred at once made little difference."""

logging.getLogger("procrastinate").setLevel(logging.ERROR)  # else it warns of an app in the main module
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=peers.URL, min_size=4, max_size=20))


@app.task(name="nothing")
async def nothing(number: int) -> int:
    signals.tell_done()
    return number


@app.task(name="started")
async def started(number: int) -> None:
    signals.tell_started()


class Procrastinate:
    @asynccontextmanager
    async def opened(self, callers: int) -> AsyncIterator[None]:
        async with app.open_async():
            yield

    async def install(self) -> None:
        await app.schema_manager.apply_schema_async()

    async def enqueue(self, name: str, number: int) -> object:
        return await app.tasks[name].defer_async(number=number)

    async def enqueue_many(self, numbers: range) -> object:
        return await nothing.batch_defer_async(*({"number": number} for number in numbers))

    async def work(self) -> None:
        await app.run_worker_async(concurrency=CONCURRENCY)


if __name__ == "__main__":
    peers.main(Procrastinate())
