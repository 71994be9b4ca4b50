"""Tasks that pay orders and complete in the same transaction: `python shop_app.py URL DSN SETTINGS-AS-JSON`.

Executor processes import this module, so it learns from the environment where its store and its shop are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dibs.attempt.middleware import Next
from dibs.client.app import Dibs
from dibs.runtime import rescue
from dibs.worker import Context, WorkerSettings
from dibs.worker.main import run
from servers.user_connections import django_settings, is_file

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


Execute = Callable[[str], Any]


@contextmanager
def by_driver() -> Iterator[tuple[Any, Execute]]:
    """A transaction that commits unless something is raised: what to hand over, and how to write in it."""
    with closing(sqlite3.connect(DSN) if is_file(DSN) else psycopg.connect(DSN)) as connection, connection:
        yield connection, connection.execute


@contextmanager
def by_session() -> Iterator[tuple[Any, Execute]]:
    engine = (
        sqlalchemy.create_engine(f"sqlite:///{DSN}", poolclass=NullPool)
        if is_file(DSN)
        else sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(DSN), poolclass=NullPool)
    )
    with Session(engine) as session, session.begin():
        yield session, lambda sql: session.execute(text(sql))


@contextmanager
def by_atomic() -> Iterator[tuple[Any, Execute]]:
    from django.conf import settings

    if not settings.configured:
        settings.configure(LOGGING_CONFIG=None, DATABASES={"default": django_settings(DSN)})
    from django.db import connection, transaction

    try:
        with transaction.atomic(), connection.cursor() as cursor:
            yield connection, cursor.execute
    finally:
        connection.close()


def pay_order(ctx: Context, order: int, begun: Callable[[], Any] = by_driver) -> None:
    reached(ctx, "began")
    with begun() as (connection, execute):
        execute(f"INSERT INTO {PAYMENTS} VALUES ({order}, {ctx.lease})")
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


@app.task(name="pay_in_session")
def pay_in_session(ctx: Context, order: int) -> None:
    pay_order(ctx, order, by_session)


@app.task(name="pay_in_atomic")
def pay_in_atomic(ctx: Context, order: int) -> None:
    pay_order(ctx, order, by_atomic)


@app.task(name="pay_in_async_session")
async def pay_in_async_session(ctx: Context, order: int) -> None:
    reached(ctx, "began")
    if is_file(DSN):
        engine = create_async_engine(f"sqlite+aiosqlite:///{DSN}", poolclass=NullPool)
    else:
        to_server = lambda: asyncpg.connect(DSN)  # noqa: E731
        engine = create_async_engine("postgresql+asyncpg://", async_creator=to_server, poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text(f"INSERT INTO {PAYMENTS} VALUES ({order}, {ctx.lease})"))
        reached(ctx, "inserted")
        await ctx.acomplete_in(session, result=ctx.lease)
        reached(ctx, "completed")
    reached(ctx, "committed")


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
