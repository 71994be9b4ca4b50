"""Waking waiters inside one process, across threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

from dibs.engines.topics import TopicKind, parse_topic


class Listener:
    """One subscription: an event on its own loop, set from anywhere."""

    def __init__(self, local_notifier: LocalNotifier, topics: frozenset[str], loop: asyncio.AbstractEventLoop) -> None:
        self.topics = topics
        self._local_notifier = local_notifier
        self._loop = loop
        self._event = asyncio.Event()

    async def wait(self, timeout: float) -> bool:
        """Wait until woken, at most `timeout` seconds; a notification since the last wait counts."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True

    def wake(self) -> None:
        if asyncio._get_running_loop() is self._loop:  # faster than call_soon_threadsafe
            self._event.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop is closed: nothing can be waiting on it
            self.close()

    def close(self) -> None:
        self._local_notifier.drop(self)


class LocalNotifier:
    """The listeners of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []

    def subscribe(self, topics: Collection[str], loop: asyncio.AbstractEventLoop) -> Listener:
        listener = Listener(self, frozenset(topics), loop)
        with self._lock:
            self._listeners = [*self._listeners, listener]
        return listener

    def drop(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = [each for each in self._listeners if each is not listener]

    def notify(self, topics: Collection[str]) -> None:
        """Wake every listener of any of these topics."""
        if topics:
            for listener in self._listeners:
                if not listener.topics.isdisjoint(topics):
                    listener.wake()

    def notify_kinds(self, *kinds: TopicKind) -> None:
        """Wake every listener of a topic of one of these kinds."""
        for listener in self._listeners:
            if any(parse_topic(topic)[0] in kinds for topic in listener.topics):
                listener.wake()

    def notify_all(self) -> None:
        """Wake every listener: something may have happened."""
        for listener in self._listeners:
            listener.wake()
