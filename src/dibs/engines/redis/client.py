"""An engine's way to its server: one connection, made again when it breaks."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from dibs.engines.redis.connecting import Address, connect
from dibs.engines.redis.connection import Argument, Command, Connection, ReplyError
from dibs.engines.redis.errors import NETWORK, ConnectionLost, NoAnswer, is_elsewhere, is_unknown_script, translation
from dibs.engines.redis.scripts import script
from dibs.errors import Closed, StoreUnavailable

__all__ = ["Client"]

Answer = TypeVar("Answer")

PATIENCE_SECONDS = 1.0
"""How long a call goes on trying to get a connection before it fails: its caller knows better how long to wait."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.1


class Client:
    """Commands and scripts on one server."""

    def __init__(self, address: Address, tag: str) -> None:
        self.address = address
        self.tag = tag
        self.line: Connection | None = None
        self.connecting: asyncio.Task[Connection] | None = None
        self.is_closed = False
        self.allows_full = False
        """Whether the server lets some scripts write though it has no memory left."""

    async def connection(self) -> Connection:
        if self.connecting is not None and self.connecting.done():
            self.connected(self.connecting)  # its callback comes only in the next turn of the loop
        line = self.line
        if line is not None and line.is_open:
            return line
        if self.is_closed:
            raise Closed(f"the engine on {self.address} has been closed.")
        if self.connecting is None:
            self.connecting = asyncio.get_running_loop().create_task(connect(self.address, self.tag))
            self.connecting.add_done_callback(self.connected)
        connecting = self.connecting
        try:
            line = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled() and self.is_closed:
                raise Closed(f"the engine on {self.address} has been closed.") from None
            raise
        except TimeoutError as error:
            how = " by TLS (does it speak TLS? If not, use redis://)" if self.address.tls else ""
            raise ConnectionLost(NoAnswer(f"it did not answer in time{how}"), unwritten=True) from error
        except (*NETWORK, ReplyError) as error:
            raise ConnectionLost(error, unwritten=True) from error
        return line

    def connected(self, connecting: asyncio.Task[Connection]) -> None:
        """Even if the caller that wanted the connection has given up. What is done already is not done again."""
        if self.connecting is not connecting:
            return
        self.connecting = None
        if not connecting.cancelled() and connecting.exception() is None:
            if self.is_closed:
                connecting.result().close()
            else:
                self.line = connecting.result()

    def close(self) -> None:
        self.is_closed = True
        if self.connecting is not None and not self.connecting.done():
            self.connecting.cancel()
        elif self.connecting is not None:
            self.connected(self.connecting)
        if self.line is not None:
            self.line.close()
            self.line = None

    def drop(self) -> None:
        """The next call gets another connection."""
        line, self.line = self.line, None
        if line is not None:
            line.close()

    # Commands. Errors of the server are raised; those that name another server, and those of the network, are
    # `ConnectionLost`.

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        line = await self.connection()
        try:
            replies = [await answer for answer in line.send(commands)]
        except NETWORK as error:
            if self.is_closed:
                raise Closed(f"the engine on {self.address} has been closed.") from error
            if self.line is line:
                self.drop()
            raise ConnectionLost(error) from error
        for reply in replies:
            if isinstance(reply, ReplyError):
                self.refuse(reply, line)
        return replies

    def refuse(self, error: ReplyError, line: Connection) -> None:
        if is_elsewhere(error):
            if self.line is line:
                self.drop()
            raise ConnectionLost(error, unwritten=True)
        if is_unknown_script(error):
            raise error
        raise translation(error, str(self.address)) from error

    async def call(self, *command: Argument) -> Any:
        return (await self.pipeline([command]))[0]

    async def run(self, name: str, key: str, *arguments: Argument, writes: bool = True, when_full: bool = False) -> Any:
        """Run a script. With `replicas`, what it writes is done only when so many have it."""
        found = script(name, when_full and self.allows_full)
        waits: list[Command] = [("WAIT", self.address.replicas, 1000)] if writes and self.address.replicas else []
        try:
            replies = await self.pipeline([("EVALSHA", found.hash, 1, key, *arguments), *waits])
        except ReplyError:
            replies = await self.pipeline([("EVAL", found.text, 1, key, *arguments), *waits])
        if waits and replies[-1] < self.address.replicas:
            raise StoreUnavailable(
                f"{self.address} wrote it, but only {replies[-1]} of {self.address.replicas} replicas have it. "
                "It may be repeated."
            )
        return replies[0]

    # Trying again.

    async def persist(self, attempt: Callable[[], Awaitable[Answer]], *, repeats: bool = True) -> Answer:
        """Try again while there is no connection. `repeats`: also if it is not known whether the last one was done."""
        began, pause = time.monotonic(), SHORTEST_PAUSE
        while True:
            try:
                return await attempt()
            except ConnectionLost as error:
                is_late = time.monotonic() - began >= PATIENCE_SECONDS
                if is_late or self.is_closed or error.is_final or not (repeats or error.unwritten):
                    raise translation(error.cause, str(self.address)) from error.cause
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)
