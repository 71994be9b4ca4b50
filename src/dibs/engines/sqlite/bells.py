"""Waking waiters in this process and in others.

Every process that listens binds a datagram socket in a directory beside the store; whoever has committed sends the
topics to each socket there. Nothing depends on a datagram arriving: while somebody waits, a thread also looks at
`data_version` every 50 ms, which tells that some other connection has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import select
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from dibs.engines.bell import Bell, Listener
from dibs.engines.sqlite.presence import share_rights

__all__ = ["Bells", "Subscriber"]

NET_SECONDS = 0.05
LONGEST_NAME = 100
"""Bytes that a socket's path may have everywhere."""
LONGEST_MESSAGE = 4096
EVERYTHING = b"*"
FRESH_NANOSECONDS = 50_000_000
AVAILABLE = hasattr(socket, "AF_UNIX")


class Subscriber:
    """A subscription that keeps the process listening until it is closed."""

    def __init__(self, bells: Bells, listener: Listener) -> None:
        self._bells = bells
        self._listener = listener
        self._closed = False

    async def wait(self, timeout: float) -> bool:
        """Until rung, at most `timeout` seconds; a ring since the last wait counts."""
        with self._bells.somebody_waits():
            return await self._listener.wait(timeout)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._listener.close()
            self._bells.stop_listening()


class Bells:
    """The bells of one store: the listeners of this process, and the sockets of the others."""

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self.bell = Bell()
        self.directory = socket_directory(path)
        self.connect = connect
        self.mode = 0o600
        self.lock = threading.Lock()
        self.listeners = 0
        self.waiters = 0
        self.thread: threading.Thread | None = None
        self.socket: socket.socket | None = None
        self.name: Path | None = None
        self.sender: socket.socket | None = None
        self.others: list[str] = []
        self.looked_at = -1

    def subscribe(self, topics: Collection[str], loop: asyncio.AbstractEventLoop) -> Subscriber:
        listener = self.bell.subscribe(topics, loop)
        with self.lock:
            self.listeners += 1
            if self.thread is None:
                self.start()
        return Subscriber(self, listener)

    def start(self) -> None:
        """Bind a socket that others can find, and listen to it."""
        receiver, self.name = bind(self.directory, self.mode)
        self.socket = receiver
        self.thread = threading.Thread(target=self.listen, args=(receiver,), name="dibs-bells", daemon=True)
        self.thread.start()

    def stop_listening(self) -> None:
        with self.lock:
            self.listeners -= 1
            if self.listeners == 0:
                self.close_socket()

    def close_socket(self) -> None:
        """End the listening thread; its socket disappears first, so that nobody rings it any more."""
        if self.name is not None:
            self.name.unlink(missing_ok=True)
        if self.socket is not None:
            wake(self.socket)
        self.thread = self.socket = self.name = None

    def forget(self) -> None:
        """In a forked child: threads and sockets are the parent's."""
        self.__init__(self.directory, self.connect)  # type: ignore[misc]

    @contextlib.contextmanager
    def somebody_waits(self):  # type: ignore[no-untyped-def]
        with self.lock:
            self.waiters += 1
            first = self.waiters == 1
            receiver = self.socket
        if first and receiver is not None:
            wake(receiver)
        try:
            yield
        finally:
            with self.lock:
                self.waiters -= 1
