"""Waking across processes: a connection that listens to the channels of the topics that somebody waits for.

Work is told only while somebody is idle: a claim that finds too little sets a key, in the same step, and the next one
to add work deletes it and tells. So a busy worker is not interrupted, and an idle one is woken at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from dibs.engines.base import MayBlock
from dibs.engines.redis.connecting import Address, connect
from dibs.engines.redis.connection import Connection, ReplyError
from dibs.engines.redis.errors import NETWORK, translation
from dibs.engines.redis.keys import Keys
from dibs.engines.wake import Listener, LocalNotifier
from dibs.errors import DibsError

__all__ = ["Notifier", "Subscriber"]

log = logging.getLogger("dibs.engines.redis")

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.05, 1.0
PING_SECONDS = 10.0
"""A connection that is silent for longer is asked whether it is still there."""


class Subscriber:
    """A subscription that keeps the engine listening until it is closed."""

    def __init__(self, notifier: Notifier, listener: Listener, channels: list[str]) -> None:
        self._notifier = notifier
        self._listener = listener
        self.channels = channels
        self.is_closed = False

    @property
    def topics(self) -> Collection[str]:
        return self._listener.topics

    async def wait(self, timeout: float) -> bool:
        """Wait until woken, at most `timeout` seconds; a notification since the last wait counts."""
        return await self._listener.wait(timeout)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._listener.close()
            self._notifier.release(self.channels)


class Notifier:
    """Wakes the listeners of one engine."""

    def __init__(
        self,
        address: Address,
        keys: Keys,
        loop: asyncio.AbstractEventLoop,
        may_block: MayBlock,
        local: LocalNotifier | None = None,
    ) -> None:
        self.address = address
        self.keys = keys
        self.loop = loop
        self.may_block = may_block
        self.local = local or LocalNotifier()
        self.wanted: Counter[str] = Counter()
        """By channel, how many want to listen to it."""
        self.heard: set[str] = set()
        """Channels that the server has confirmed."""
        self.confirmed = asyncio.Event()
        """Set whenever the server has confirmed one."""
        self.line: Connection | None = None
        self.listening: asyncio.Task[None] | None = None
        self.last_at = 0.0
        self.has_told = False
        self.failures = 0
        self.refusal: ReplyError | None = None
        """Why the server does not let this user listen."""

    def subscribe(self, topics: Collection[str], loop: asyncio.AbstractEventLoop) -> Subscriber:
        listener = self.local.subscribe(topics, loop)
        channels = [self.keys.channel(topic) for topic in topics]
        self.listen_to(channels)
        return Subscriber(self, listener, channels)

    def listen_to(self, channels: Collection[str]) -> None:
        new = [each for each in channels if not self.wanted[each]]
        self.wanted.update(channels)
        if self.listening is None:
            self.listening = self.loop.create_task(self.keep_listening(), name="dibs-listen")
        elif self.line is not None and self.line.is_open and new:
            self.line.send_only(("SUBSCRIBE", *new))

    def release(self, channels: Collection[str]) -> None:
        self.wanted.subtract(channels)
        gone = [each for each in channels if self.wanted[each] <= 0]
        for each in gone:
            del self.wanted[each]
        self.heard.difference_update(gone)
        if not self.wanted and self.listening is not None:
            self.listening.cancel()
            self.listening = None
        elif gone and self.line is not None and self.line.is_open:
            self.line.send_only(("UNSUBSCRIBE", *gone))

    async def connect(self) -> Connection:
        return await connect(self.address, self.keys.tag, self.receive)

    # Receiving.

    async def keep_listening(self) -> None:
        """Keep a connection that listens. Logs once that there is none, and once that there is one again."""
        while True:
            try:
                self.line = await self.connect()
                self.refusal = None
                self.line.send_only(("SUBSCRIBE", *self.wanted))
                await self.until_gone(self.line)
                why = f"{self.address} closed the connection."
                why = self.why_refused() or why
            except (*NETWORK, ReplyError, DibsError) as error:
                why = str(translation(error, str(self.address)))
            finally:
                self.hang_up()
            self.failures += 1
            if self.failures >= 2:  # connections end for many reasons; tell only if there is no other
                self.missing(why)
            wait = min(FIRST_RETRY_SECONDS * 2 ** min(self.failures - 1, 10), LONGEST_RETRY_SECONDS)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    def why_refused(self) -> str:
        return "" if self.refusal is None else str(translation(self.refusal, str(self.address)))

    def missing(self, why: str) -> None:
        if not self.has_told:
            self.has_told = True
            log.warning("Can't listen, polling instead: %s", why)

    def back(self) -> None:
        self.failures = 0
        if self.has_told:
            self.has_told = False
            log.info("Listening to %s again.", self.address)

    def hang_up(self) -> None:
        line, self.line = self.line, None
        self.heard.clear()
        if line is not None:
            line.close()

    async def until_gone(self, line: Connection) -> None:
        """Until the connection is gone, or silent for too long."""
        self.last_at = self.loop.time()
        while not line.gone.done():
            await asyncio.wait([line.gone], timeout=PING_SECONDS)
            if self.loop.time() - self.last_at > 2 * PING_SECONDS + self.address.timeout:
                return
            if not line.gone.done():
                line.send_only(("PING",))

    def receive(self, message: Any) -> None:
        self.last_at = self.loop.time()
        if isinstance(message, ReplyError):  # this user may not listen
            self.refusal = message
            if self.line is not None:
                self.line.close()
            return
        kind = message[0]
        if kind == b"message":
            self.local.notify(self.topics(message[1]))
        elif kind == b"subscribe":
            self.back()
            self.heard.add(message[1].decode())
            self.confirmed.set()
            self.confirmed.clear()
            self.local.notify(self.topics(message[1]))  # something may have happened before

    def topics(self, channel: bytes) -> list[str]:
        return [channel.decode().removeprefix(self.keys.channel(""))]

    async def until_heard(self, channel: str, timeout: float) -> bool:
        """Wait until the server has confirmed that this connection listens to a channel."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while channel not in self.heard:
                    await self.confirmed.wait()
        return channel in self.heard

    async def close(self) -> None:
        listening, self.listening = self.listening, None
        if listening is not None:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
        self.hang_up()
        self.local.notify_all()
