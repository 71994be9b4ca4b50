"""Waking waiters, here and in other processes, by LISTEN and NOTIFY on one channel for each schema.

An accelerator takes the place of NOTIFY while it is up. Everybody goes on listening here: a process may have none, or
have lost it, and a transaction of the user's own can only notify by its commit.

A NOTIFY takes a lock on the whole database when it commits, so none is sent inside the transactions that do the work,
and not one for each change (`notify_rate`). Nothing depends on a notification arriving: workers also poll.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from dibs.engines.accelerator import Accelerator
from dibs.engines.base import MayBlock
from dibs.engines.postgres.errors import DRIVER_ERRORS, translation
from dibs.engines.postgres.notify_rate import REPEAT_AFTER, Rate, Replay
from dibs.engines.postgres.pool import GOODBYE_SECONDS, Connection, Pool
from dibs.engines.postgres.session_log import SessionLog
from dibs.engines.topics import SCHEDULES, TopicKind, parse_topic
from dibs.engines.wake import Listener, LocalNotifier
from dibs.errors import DibsError

__all__ = ["ANSWER_SECONDS", "Notifier", "channel_of", "payloads", "until_closed"]

log = logging.getLogger("dibs.engines.postgres")

FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0
PING_SECONDS = 15.0
"""How often a connection on which nothing happens is pinged."""

ANSWER_SECONDS = 5.0
LONGEST_PAYLOAD = 7000
NOTIFY = (
    # A crash of the server loses only notifications to listeners that lose their connection anyway.
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
)


def channel_of(schema: str) -> str:
    """A channel's name may have 63 bytes."""
    return f"dibs_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"


def poll_seconds(topics: Collection[str]) -> float:
    """How often a subscriber of these topics polls, if it can't listen.

    Polling for work is one statement. Polling for requests to a worker, or for changes of schedules, also writes, so it
    is done less often.
    """
    if set(topics) <= {SCHEDULES}:
        return 5.0
    return 0.95 if all(parse_topic(topic)[0] == TopicKind.WORKER for topic in topics) else 0.5


async def until_closed(connection: Connection, ask: Callable[[], Awaitable[object]]) -> None:
    """Wait until the connection is closed. It is pinged now and then, because a stalled one looks like a quiet one."""
    gone = asyncio.Event()
    connection.add_termination_listener(lambda _: gone.set())
    while not connection.is_closed():
        try:
            async with asyncio.timeout(PING_SECONDS):
                await gone.wait()
        except TimeoutError:
            await ask()


class Subscriber:
    """A subscription that keeps the engine listening until it is closed; if it can't listen, it wakes by itself."""

    def __init__(self, notifier: Notifier, listener: Listener) -> None:
        self._notifier = notifier
        self._listener = listener
        self._closed = False

    async def wait(self, timeout: float) -> bool:
        """Wait until woken, at most `timeout` seconds; a notification since the last wait counts."""
        longest = timeout if self._notifier.hears else min(timeout, poll_seconds(self._listener.topics))
        return await self._listener.wait(longest) or timeout > longest

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._listener.close()
            self._notifier.unsubscribe(self._listener.topics)


class Notifier:
    """Wakes the listeners of one engine, and those of other processes."""

    def __init__(
        self, pool: Pool, loop: asyncio.AbstractEventLoop, may_block: MayBlock, session_log: SessionLog
    ) -> None:
        self.local_notifier = LocalNotifier()
        self.pool = pool
        address = pool.address.direct()
        self.direct = None if address is None else Pool(address)
        """Where connections that listen come from, None if there is only a pooler."""
        self.loop = loop
        self.may_block = may_block
        self.session_log = session_log
        self.channel = channel_of(pool.address.schema)
        self.subscribers = 0
        self.listening: asyncio.Task[None] | None = None
        self.rate = Rate()
        self.replay = Replay(self.local_notifier, loop)
        self.sending: set[asyncio.Task[None]] = set()
        self.accelerator: Accelerator | None = None

    @property
    def hears(self) -> bool:
        """Whether notifications of all others arrive, as far as is known. Others may still use what is away for us."""
        return self.direct is not None and (self.accelerator is None or self.accelerator.is_up)

    def subscribe(self, topics: Collection[str], loop: asyncio.AbstractEventLoop) -> Subscriber:
        listener = self.local_notifier.subscribe(topics, loop)
        self.subscribers += 1
        if self.accelerator is not None:
            self.accelerator.listen_to(listener.topics)
        if self.direct is not None and self.listening is None:
            self.listening = self.loop.create_task(self.listen(), name="dibs-listen")
        return Subscriber(self, listener)

    def unsubscribe(self, topics: Collection[str]) -> None:
        if self.accelerator is not None:
            self.accelerator.release(topics)
        self.subscribers -= 1
        if self.subscribers == 0 and self.listening is not None:
            self.listening.cancel()
            self.listening = None

    # Receiving.

    async def listen(self) -> None:
        """Keep a connection that listens. Logs once that there is none, and once that there is one again."""
        try:
            await self.keep_listening()
        finally:
            self.session_log.forget(self)

    async def keep_listening(self) -> None:
        failures = 0
        while True:
            try:
                async with self.listening_connection() as connection:
                    self.session_log.back(self)
                    failures = 0
                    await until_closed(connection, partial(connection.fetchval, "SELECT 1", timeout=ANSWER_SECONDS))
                reason = f"{self.pool.address} closed the connection."
            except DibsError as error:
                reason = str(error)
            except DRIVER_ERRORS as error:
                reason = str(translation(error, str(self.pool.address)))
            failures += 1
            if failures == 2:  # sessions end for many reasons; log only if there is no other
                again = f"Listening to {self.pool.address} again."
                self.session_log.missing(self, f"Can't listen, polling instead: {reason}", again)
            wait = min(FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 10), LONGEST_RETRY_SECONDS)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    @asynccontextmanager
    async def listening_connection(self) -> AsyncIterator[Connection]:
        """A connection that listens. Earlier notifications may have been missed, so every listener is woken once."""
        assert self.direct is not None
        connection = await self.direct.connect()
        try:
            await connection.add_listener(self.channel, self.receive)
            self.local_notifier.notify_all()
            self.loop.call_later(
                REPEAT_AFTER, self.local_notifier.notify_all
            )  # a message may have been sent just before
            yield connection
        finally:
            connection.terminate()

    def receive(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self.hear(str(payload).split("\n"))

    def hear(self, topics: Collection[str]) -> None:
        self.local_notifier.notify(topics)
        self.replay.add(topics)

    # Sending.

    async def notify(self, topics: Collection[str]) -> None:
        """Wake all listeners of any of these topics. Never fails: a listener that is not reached polls."""
        if not topics:
            return
        self.local_notifier.notify(topics)
        fresh = self.rate.fresh(topics, self.loop.time())
        if fresh and self.may_block():  # nothing drives the loop once the caller has its answer
            await self.send(fresh)
        elif fresh:
            self.send_soon(fresh)

    def send_soon(self, topics: list[str]) -> None:
        task = self.loop.create_task(self.send(topics), name="dibs-notify")
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)

    async def send(self, topics: Collection[str]) -> None:
        if self.accelerator is not None:
            topics = await self.accelerator.publish(topics)
        if not topics:
            return
        try:
            async with self.pool.lend() as connection:
                for payload in payloads(sorted(topics)):
                    await connection.fetchrow(NOTIFY, self.channel, payload, timeout=ANSWER_SECONDS)
        except (*DRIVER_ERRORS, DibsError) as error:
            log.debug("could not notify %s: %s", ", ".join(sorted(topics)), error)

    async def close(self) -> None:
        """Stop listening, and wait for notifications that are being sent."""
        listening, self.listening = self.listening, None
        if listening is not None:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
        if self.sending:
            await asyncio.wait(self.sending, timeout=GOODBYE_SECONDS)
        if self.accelerator is not None:
            await self.accelerator.close()


def payloads(topics: list[str]) -> list[str]:
    """Topics in messages that are not too long. No topic has a line break."""
    found: list[str] = []
    for topic in topics:
        if found and len(found[-1]) + len(topic) < LONGEST_PAYLOAD // 4:
            found[-1] += f"\n{topic}"
        else:
            found.append(topic)
    return found
