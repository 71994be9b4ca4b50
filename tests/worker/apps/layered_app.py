"""Middleware in an executor process. A child finds the app by importing this module."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

from dibs import Context, Dibs

app = Dibs("memory://", retries=0)
entered: list[int] = []


@app.middleware
def layer(ctx: Context) -> Iterator[None]:
    entered.append(os.getpid())
    yield


@app.task(executor="process")
def where() -> tuple[int, int]:
    return entered[-1], os.getpid()


@app.task(executor="process")
def runs_a_loop() -> str:
    async def nested() -> str:
        return "no loop here"

    return asyncio.run(nested())
