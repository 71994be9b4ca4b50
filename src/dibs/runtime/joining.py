"""Acting inside a transaction of the user, from blocking and from async code.

The user's connection is used on the user's own thread or loop. What the engine has to do on its own connections for
that happens on its own loop, in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dibs.engines.base import Joined
from dibs.engines.port import at_once
from dibs.engines.values import Feature, Unready
from dibs.errors import StoreBusy, UsageError, WrongThread
from dibs.runtime.hub import Hub

__all__ = ["TRIES", "ainside", "inside"]

Answer = TypeVar("Answer")
Act = Callable[[Joined], Coroutine[Any, Any, Answer]]

TRIES = 20


def inside(hub: Hub, connection: Any, act: Act[Answer]) -> Answer:
    """Do something in the transaction on a connection, blocking."""
    check(hub)
    hub.runner.ensure_engine()
    joined = hub.engine.join(connection)
    if joined.waits:
        raise UsageError(
            "this is an async connection: use the async form with it (await aenqueue(…), await ctx.acomplete_in(…)), "
            "or a blocking connection here."
        )
    if joined.waits is False and asyncio._get_running_loop() is hub.runner.loop:
        raise WrongThread(
            "this would block the event loop of the worker: in an async task, use an async connection and await the "
            "async form (aenqueue(…), ctx.acomplete_in(…)); or make the task a plain function."
        )
    for _ in range(TRIES):
        try:
            return at_once(act(joined))
        except Unready:
            hub.runner.run(joined.prepare())
    raise too_many_retries()


async def ainside(hub: Hub, connection: Any, act: Act[Answer]) -> Answer:
    """Do something in the transaction on a connection, awaited on the loop that the connection belongs to."""
    check(hub)
    await hub.runner.aensure_engine()
    joined = hub.engine.join(connection)
    if joined.waits is False:
        raise UsageError(
            "this connection blocks, and would stop the event loop: use an async one here, or the blocking form "
            "(enqueue(…), ctx.complete_in(…)) in plain functions."
        )
    for _ in range(TRIES):
        try:
            return await act(joined)
        except Unready:
            await hub.runner.arun(joined.prepare())
    raise too_many_retries()


def check(hub: Hub) -> None:
    if Feature.TRANSACTIONS not in hub.engine.features:
        raise UsageError(
            "this engine can't join a transaction: leave connection= out, and let tasks return instead of calling "
            "complete_in."
        )


def too_many_retries() -> StoreBusy:
    return StoreBusy("queues change faster than this can be done. Nothing was written; try again.")
