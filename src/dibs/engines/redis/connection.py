"""One connection to a Redis server: commands go out together, answers come back in their order.

Commands of all coroutines share a connection, so what is sent at the same time is one write and one round trip.
`docs/design/redis-clients.md` has the figures behind this: a lone call costs about half of what it does with a
general client library.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis

__all__ = ["Argument", "Command", "Connection", "Message", "ReplyError"]

Argument = str | bytes | int
Command = Sequence[Argument]
Message = Callable[[Any], None]
"""What is done with a message that nobody asked for, or with the error that a subscription is answered with."""
ReplyError = hiredis.ReplyError
"""What the server answers instead of doing what it was asked."""

FULL_BUFFER = 1 << 20


def pack(command: Command) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its stub says a tuple of one
    return packed


class Connection(asyncio.Protocol):
    """A connection until it breaks. It is used on the loop that made it."""

    def __init__(self, on_message: Message | None = None, timeout: float = 10.0) -> None:
        self.reader = hiredis.Reader(notEnoughData=Ellipsis)
        self.waiting: deque[asyncio.Future[Any]] = deque()
        self.on_message = on_message
        self.loop = asyncio.get_running_loop()
        self.gone = self.loop.create_future()
        """Done when the connection is."""
        self.transport: asyncio.Transport | None = None
        self.timeout = timeout
        self.heard_at = 0.0
        """When the last answer came, or the first command went out that waits for one."""
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return not self.gone.done()

    def send(self, commands: Sequence[Command]) -> list[asyncio.Future[Any]]:
        """Send commands in one write. Errors of the server are results: a pipeline goes on behind one."""
        if self.transport is None or self.gone.done():
            raise ConnectionResetError("the connection is closed")
        answers: list[asyncio.Future[Any]] = [self.loop.create_future() for _ in commands]
        if not self.waiting:
            self.heard_at = self.loop.time()
            if self.timer is None:
                self.timer = self.loop.call_later(self.timeout, self.check)
        self.waiting.extend(answers)
        self.transport.write(b"".join([pack(command) for command in commands]))
        return answers

    def check(self) -> None:
        """One timer for all commands: a server that answers none for so long is taken to be gone."""
        self.timer = None
        if self.waiting:
            left = self.heard_at + self.timeout - self.loop.time()
            if left <= 0:
                self.end(TimeoutError("no answer in time"))
                self.close()
            else:
                self.timer = self.loop.call_later(left, self.check)

    def send_only(self, command: Command) -> None:
        """Send a command that has no answer of its own, such as SUBSCRIBE."""
        if self.transport is None or self.gone.done():
            raise ConnectionResetError("the connection is closed")
        self.transport.write(pack(command))

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        self.end(ConnectionResetError("the connection was closed"))

    def end(self, error: BaseException | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        waiting, self.waiting = self.waiting, deque()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(error or ConnectionResetError("the server closed the connection"))
                answer.exception()  # a pipeline raises the first of its errors, and nobody asks for the others

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has its methods, but is no subclass
        self.transport.set_write_buffer_limits(high=FULL_BUFFER)

    def data_received(self, data: bytes) -> None:
        reader = self.reader
        reader.feed(data)
        if self.timer is not None:
            self.heard_at = self.loop.time()
        try:
            while (reply := reader.gets()) is not Ellipsis:
                if self.on_message is not None and isinstance(reply, list | ReplyError):
                    self.on_message(reply)
                elif self.waiting:
                    answer = self.waiting.popleft()
                    if not answer.done():
                        answer.set_result(reply)
        except hiredis.ProtocolError as error:
            self.end(ConnectionResetError(f"the server does not speak Redis' protocol: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(exc)
