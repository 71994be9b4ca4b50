"""The plain form that `held.py` compares with: a table, FOR UPDATE SKIP LOCKED from the lowest rank on, and DELETE."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import asyncpg

from dibs.core.histogram import Histogram, add
from postgres_raw import CLAIM, DELETE, FACTS, LATER, LAYOUT, UNNEST, row

__all__ = ["Plain"]

BATCH = 100
IDLE = 0.005
"""Seconds until the next look when there was nothing."""


class Plain:
    """A producer's and a worker's connection, in this process."""

    def __init__(self, url: str, started: Callable[[int], None]) -> None:
        self._url = url
        self._started = started
        self._numbers = 0
        self.claims: Histogram = {}

    async def open(self) -> None:
        self._producer = await asyncpg.connect(self._url)
        self._worker = await asyncpg.connect(self._url)
        await self._producer.execute(LAYOUT)
        self._working = asyncio.create_task(self._work())

    async def enqueue(self, number: int) -> None:
        sent = b"%r" % time.time()
        rows = [row(self._numbers + each)[:5] for each in range(number)]
        self._numbers += number
        columns = [list(column) for column in zip(*rows, strict=True)]
        await self._producer.fetch(UNNEST, *columns, [sent] * number, [FACTS] * number)

    async def _work(self) -> None:
        claim, settle = await self._worker.prepare(CLAIM), await self._worker.prepare(DELETE)
        while True:
            began = time.perf_counter()
            claimed = await claim.fetch(BATCH, LATER)
            add(self.claims, round((time.perf_counter() - began) * 1_000_000))
            for task in claimed:
                self._started(round((time.time() - float(task["args"])) * 1_000_000))
            if claimed:
                await settle.fetch([task["id"] for task in claimed])
            else:
                await asyncio.sleep(IDLE)

    def check(self) -> None:
        """Raise what ended the worker."""
        if self._working.done():
            self._working.result()

    async def close(self) -> None:
        self._working.cancel()
        await asyncio.gather(self._working, return_exceptions=True)
        await self._producer.close()
        await self._worker.close()
