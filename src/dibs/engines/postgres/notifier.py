"""Waking waiters, here and in other processes, by LISTEN and NOTIFY on one channel for each schema.

A notification takes a lock on the whole database when it is committed, so none is sent inside the transactions that do
the work, and not one for each ring (`echoes`). Nothing depends on a notification arriving: workers look by themselves
now and then.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from dibs.engines.base import MayBlock
from dibs.engines.postgres.errors import DRIVER_ERRORS, translation
from dibs.engines.postgres.notify_rate import REPEAT_AFTER, Rate, Replay
from dibs.engines.postgres.pool import GOODBYE_SECONDS, Connection, Pool
from dibs.engines.values import SCHEDULES
from dibs.engines.wake import Listener, LocalNotifier
from dibs.errors import DibsError

__all__ = ["ANSWER_SECONDS", "Notifier", "until_deaf"]

log = logging.getLogger("dibs.engines.postgres")

FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0
LOOK_SECONDS = 15.0
"""How often a connection on which nothing happens is asked whether it is still there."""

ANSWER_SECONDS = 5.0
LONGEST_PAYLOAD = 7000
NOTIFY = (
    # What is lost with a crash of the server are notifications to those who lose their connection anyway.
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
)


def channel_of(schema: str) -> str:
    """A channel's name may have 63 bytes."""
    return f"dibs_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"


def poll_seconds(topics: Collection[str]) -> float:
    """How often whoever waits for these looks by himself, where nothing can be heard.

    A look for work is one statement. Who waits for requests to a worker, or for changes of schedules, writes when he
    looks: these may take longer.
    """
    if set(topics) <= {SCHEDULES}:
        return 5.0
    return 0.95 if all(topic.startswith("worker:") for topic in topics) else 0.5


async def until_deaf(connection: Connection, ask: Callable[[], Awaitable[object]]) -> None:
    """Until the connection is closed. It is asked now and then: one that stalls looks like a quiet one."""
    gone = asyncio.Event()
    connection.add_termination_listener(lambda _: gone.set())
    while not connection.is_closed():
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await gone.wait()
        except TimeoutError:
            await ask()


class Subscriber:
    """A subscription that keeps the engine listening until it is closed; where it can't listen, it rings by itself."""

    def __init__(self, notifier: Notifier, listener: Listener, longest: float = math.inf) -> None:
        self._bells = notifier
        self._longest = longest
        self._listener = listener
        self._closed = False

    async def wait(self, timeout: float) -> bool:
        """Until rung, at most `timeout` seconds; a ring since the last wait counts."""
        return await self._listener.wait(min(timeout, self._longest)) or timeout > self._longest

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._listener.close()
            self._bells.unsubscribe()


class Notifier:
    """The bells of one engine: its own listeners, and a way to those of others."""

    def __init__(self, pool: Pool, loop: asyncio.AbstractEventLoop, may_block: MayBlock) -> None:
        self.local_notifier = LocalNotifier()
        self.pool = pool
        direct = pool.address.direct()
        self.lines = None if direct is None else Pool(direct)
        """Where connections that listen come from, None if a pooler is in the way."""
        self.loop = loop
        self.may_block = may_block
        self.channel = channel_of(pool.address.schema)
        self.subscribers = 0
        self.listener_thread: asyncio.Task[None] | None = None
        self.rate = Rate()
        self.replay = Replay(self.local_notifier, loop)
        self.sending: set[asyncio.Task[None]] = set()

    def subscribe(self, topics: Collection[str], loop: asyncio.AbstractEventLoop) -> Subscriber:
        listener = self.local_notifier.subscribe(topics, loop)
        self.subscribers += 1
        if self.lines is None:
            return Subscriber(self, listener, poll_seconds(topics))
        if self.listener_thread is None:
            self.listener_thread = self.loop.create_task(self.listen(), name="dibs-listen")
        return Subscriber(self, listener)

    def unsubscribe(self) -> None:
        self.subscribers -= 1
        if self.subscribers == 0 and self.listener_thread is not None:
            self.listener_thread.cancel()
            self.listener_thread = None

    # Hearing.

    async def listen(self) -> None:
        """Keep a connection that hears. The log is told once that there is none, and once that there is again."""
        failures = 0
        while True:
            try:
                async with self.hearing() as connection:
                    if failures > 1:
                        log.info("Listening to %s again.", self.pool.address)
                    failures = 0
                    await until_deaf(connection, partial(connection.fetchval, "SELECT 1", timeout=ANSWER_SECONDS))
                told = f"{self.pool.address} closed the connection."
            except DibsError as error:
                told = str(error)
            except DRIVER_ERRORS as error:
                told = str(translation(error, str(self.pool.address)))
            failures += 1
            if failures == 2:  # a session may end for many reasons; that there is no other one is worth a line
                log.warning("Can't listen, looking now and then instead: %s", told)
            wait = min(FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 10), LONGEST_RETRY_SECONDS)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator[Connection]:
        """A connection that listens. What was rung before may have been missed: everybody looks once."""
        assert self.lines is not None
        connection = await self.lines.connect()
        try:
            await connection.add_listener(self.channel, self.hear)
            self.local_notifier.notify_all()
            self.loop.call_later(
                REPEAT_AFTER, self.local_notifier.notify_all
            )  # a message may have been sent just before
            yield connection
        finally:
            connection.terminate()

    def hear(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        topics = str(payload).split("\n")
        self.local_notifier.notify(topics)
        self.replay.add(topics)

    # Ringing.

    async def notify(self, topics: Collection[str]) -> None:
        """Wake whoever listens to any of these. Never fails: who does not hear it looks by himself."""
        if not topics:
            return
        self.local_notifier.notify(topics)
        fresh = self.rate.fresh(topics, self.loop.time())
        if fresh and self.may_block():  # nobody drives the loop once the caller has its answer
            await self.send(fresh)
        elif fresh:
            self.send_soon(fresh)

    def send_soon(self, topics: list[str]) -> None:
        task = self.loop.create_task(self.send(topics), name="dibs-notify")
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)

    async def send(self, topics: Collection[str]) -> None:
        try:
            async with self.pool.lend() as connection:
                for payload in payloads(sorted(topics)):
                    await connection.fetchrow(NOTIFY, self.channel, payload, timeout=ANSWER_SECONDS)
        except (*DRIVER_ERRORS, DibsError) as error:
            log.info("could not ring %s: %s", ", ".join(sorted(topics)), error)

    async def close(self) -> None:
        """Send what is on its way, then be silent."""
        listener_thread, self.listener_thread = self.listener_thread, None
        if listener_thread is not None:
            listener_thread.cancel()
            with suppress(asyncio.CancelledError):
                await listener_thread
        if self.sending:
            await asyncio.wait(self.sending, timeout=GOODBYE_SECONDS)


def payloads(topics: list[str]) -> list[str]:
    """Topics in messages that are not too long. No topic has a line break."""
    found: list[str] = []
    for topic in topics:
        if found and len(found[-1]) + len(topic) < LONGEST_PAYLOAD // 4:
            found[-1] += f"\n{topic}"
        else:
            found.append(topic)
    return found
