"""Waking through a server: one WebSocket that listens to all topics that somebody waits for."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Collection

import aiohttp

from dibs.engines.http.connection import Connection
from dibs.engines.wake import Listener, LocalNotifier
from dibs.errors import DibsError

__all__ = ["Notifier", "Subscriber"]

log = logging.getLogger("dibs.engines.http")

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.05, 2.0


class Subscriber:
    """A subscription that keeps the engine listening until it is closed."""

    def __init__(self, notifier: Notifier, listener: Listener) -> None:
        self._notifier = notifier
        self._listener = listener
        self._is_closed = False

    async def wait(self, timeout: float) -> bool:
        return await self._listener.wait(timeout)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._listener.close()
            self._notifier.release(self._listener.topics)


class Notifier:
    """Wakes the listeners of one engine. Without a connection they look again by themselves, at their own intervals."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.local = LocalNotifier()
        self.wanted: Counter[str] = Counter()
        self.topics: asyncio.Queue[Collection[str]] = asyncio.Queue()
        self.listening: asyncio.Task[None] | None = None
        self.has_told = False

    def subscribe(self, topics: Collection[str]) -> Subscriber:
        listener = self.local.subscribe(topics, asyncio.get_running_loop())
        is_new = any(topic not in self.wanted for topic in topics)
        self.wanted.update(topics)
        if self.listening is None:
            self.listening = self.loop.create_task(self.keep_listening(), name="dibs-listen")
        elif is_new:
            self.topics.put_nowait(list(self.wanted))
        return Subscriber(self, listener)

    def release(self, topics: Collection[str]) -> None:
        """Topics that nobody waits for any more are told with the next change: a wake-up too many does no harm."""
        self.wanted.subtract(topics)
        for topic in topics:
            if self.wanted[topic] <= 0:
                del self.wanted[topic]

    async def keep_listening(self) -> None:
        """Logs once that there is no connection, and once that there is one again."""
        failures = 0
        while True:
            why = "the server closed the connection"
            try:
                self.topics = asyncio.Queue()
                self.topics.put_nowait(list(self.wanted))
                async for woken in self.connection.wakes(self.topics):
                    if failures and self.has_told:
                        log.info("Listening to %s again.", self.name)
                    failures, self.has_told = 0, False
                    self.local.notify(woken)
            except (OSError, TimeoutError, aiohttp.ClientError, ValueError, DibsError) as error:
                why = str(error) or type(error).__name__
            failures += 1
            self.connection.next()
            if failures >= 2 and not self.has_told:
                self.has_told = True
                log.warning("Can't listen to %s, polling instead: %s", self.name, why)
            pause = min(FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 10), LONGEST_RETRY_SECONDS)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def close(self) -> None:
        listening, self.listening = self.listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
