"""PgQueuer's side of the PostgreSQL comparison."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

import peers
import signals

BATCH = 200
"""Jobs per fetch. By default it takes 10 at a time."""


class Contestant:
    @asynccontextmanager
    async def opened(self, callers: int) -> AsyncIterator[None]:
        if callers == 1:
            connection = await asyncpg.connect(peers.URL)
            self._driver = AsyncpgDriver(connection)
        else:
            connection = await asyncpg.create_pool(peers.URL, min_size=20, max_size=20)
            self._driver = AsyncpgPoolDriver(connection)
        self._queries = Queries(self._driver)
        yield
        await connection.close()

    async def install(self) -> None:
        await self._queries.install()

    async def enqueue(self, name: str, number: int) -> object:
        return await self._queries.enqueue(name, b'{"number":%d}' % number)

    async def enqueue_many(self, numbers: range) -> object:
        payloads = [b'{"number":%d}' % number for number in numbers]
        return await self._queries.enqueue(["nothing"] * len(payloads), payloads, [0] * len(payloads))

    async def work(self) -> None:
        application = PgQueuer(self._driver)

        @application.entrypoint("nothing")
        async def nothing(job: Job) -> None:
            signals.tell_done()

        @application.entrypoint("started")
        async def started(job: Job) -> None:
            signals.tell_started()

        await application.run(batch_size=BATCH)


if __name__ == "__main__":
    peers.main(Contestant(), run=uvloop.run)
