"""Tasks that pay orders and complete in the same transaction: `python shop_app.py URL DSN SETTINGS-AS-JSON`.

Executor processes import this module, so it learns from the environment where its store and its shop are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg

from dibs.attempt.middleware import Next
from dibs.client.app import Dibs
from dibs.runtime import rescue
from dibs.worker import Context, WorkerSettings
from dibs.worker.main import run

if __name__ == "__main__":
    os.environ["SHOP_STORE"], os.environ["SHOP_DSN"] = sys.argv[1:3]

app = Dibs(os.environ.get("SHOP_STORE", "memory://"), retry_base=0)
DSN = os.environ.get("SHOP_DSN", "")
PAYMENTS = os.environ.get("SHOP_PAYMENTS", "payments")


def reached(ctx: Context, step: str) -> None:
    """The first run ends, or stands still, at the step that the task was enqueued for."""
    if ctx.attempt == 1 and ctx._task.losses == 0 and ctx.metadata.get("step") == step:
        os.kill(os.getpid(), getattr(signal, ctx.metadata["signal"]))


async def last_step(ctx: Context, call: Next) -> Any:
    value = await call()
    reached(ctx, "returned")
    return value


app.hub.middleware.append(last_step)


def pay_order(ctx: Context, order: int) -> None:
    reached(ctx, "began")
    with psycopg.connect(DSN) as connection:
        connection.execute(f"INSERT INTO {PAYMENTS} VALUES (%s, %s)", [order, ctx.lease])
        reached(ctx, "inserted")
        ctx.complete_in(connection, result=ctx.lease)
        reached(ctx, "completed")
    reached(ctx, "committed")


@app.task(name="pay")
def pay(ctx: Context, order: int) -> None:
    pay_order(ctx, order)


@app.task(name="pay_in_process", executor="process")
def pay_in_process(ctx: Context, order: int) -> None:
    pay_order(ctx, order)


async def pay_order_async(ctx: Context, order: int) -> None:
    reached(ctx, "began")
    connection = await asyncpg.connect(DSN)
    try:
        async with connection.transaction():
            await connection.execute(f"INSERT INTO {PAYMENTS} VALUES ($1, $2)", order, ctx.lease)
            reached(ctx, "inserted")
            await ctx.acomplete_in(connection, result=ctx.lease)
            reached(ctx, "completed")
        reached(ctx, "committed")
    finally:
        await connection.close()


@app.task(name="pay_async")
async def pay_async(ctx: Context, order: int) -> None:
    """It goes on when it is cancelled, as a thread does: then nobody but the store keeps a zombie from committing."""
    paying = asyncio.create_task(pay_order_async(ctx, order))
    while not paying.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([paying])
    await paying


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
    sys.modules["shop_app"] = sys.modules["__main__"]
    settings = json.loads(sys.argv[3])
    rescue.HOLD_OFF = settings.pop("hold_off", rescue.HOLD_OFF)
    sys.exit(run(app.hub, WorkerSettings(queues=tuple(settings.pop("queues", ())), **settings)))
