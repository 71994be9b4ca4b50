"""Connections to the server: a few, bound to the loop that opened them, each statement with a timeout.

Not asyncpg's own pool, which sends a statement after every use to undo what sessions may leave behind. Nothing here
leaves anything behind; a connection whose state is not known is dropped instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from msgspec import Struct

from dibs.engines.postgres.faults import DRIVER_ERRORS, translation
from dibs.errors import Closed, StoreBusy

__all__ = ["Address", "Connection", "Pool"]

Connection = Any
"""A connection of the driver, which is not typed."""


class Address(Struct, frozen=True, kw_only=True):
    """Where the store is, and how to talk to it."""

    dsn: str
    schema: str = "dibs"
    pool_size: int = 8
    timeout: float = 30.0
    connect_timeout: float = 10.0
    statement_cache_size: int = 256

    def __str__(self) -> str:
        """As people may see it: without the password."""
        parts = urlsplit(self.dsn)
        host = parts.netloc.rpartition("@")[2] or "the local server"
        return f"PostgreSQL at {host}{parts.path} (schema {self.schema})"


def settings_for(address: Address) -> dict[str, str]:
    """Plans are kept, and tables are empty when the first are made: those must not scan whole tables for ever.

    Behind a pooler, which may not know these settings, no plan is kept.
    """
    named = {"application_name": "dibs"}
    return named if address.statement_cache_size == 0 else {**named, "enable_seqscan": "off", "jit": "off"}


class Pool:
    """Connections that are lent one at a time; the one that was used last is lent first."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.idle: list[Connection] = []
        self.lent: set[Connection] = set()
        self.room = asyncio.Semaphore(address.pool_size)
        self.is_closed = False

    async def connect(self) -> Connection:
        """A new connection, which the caller has to close."""
        address = self.address
        options: dict[str, Any] = {
            "timeout": address.connect_timeout,
            "command_timeout": address.timeout,
            "statement_cache_size": address.statement_cache_size,
            "max_cached_statement_lifetime": 0,
            "server_settings": settings_for(address),
        }
        try:
            return await asyncpg.connect(address.dsn, **options)
        except DRIVER_ERRORS as error:
            raise translation(error, str(address)) from error

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """A connection for a while."""
        await self.wait_for_room()
        try:
            connection = await self.take()
            try:
                yield connection
            finally:
                self.give_back(connection)
        finally:
            self.room.release()

    async def wait_for_room(self) -> None:
        if not self.room.locked():
            await self.room.acquire()
            return
        try:
            async with asyncio.timeout(self.address.timeout):
                await self.room.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"all {self.address.pool_size} connections to {self.address} were in use for "
                f"{self.address.timeout:g} s. Raise pool_size, or do less at once."
            ) from None

    async def take(self) -> Connection:
        while self.idle:
            connection = self.idle.pop()
            if not connection.is_closed():
                self.lent.add(connection)
                return connection
        if self.is_closed:
            raise Closed(f"the engine on {self.address} has been closed.")
        connection = await self.connect()
        self.lent.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        self.lent.discard(connection)
        if connection.is_closed():
            return
        if self.is_closed or connection.is_in_transaction():
            connection.terminate()
        else:
            self.idle.append(connection)

    def drop_idle(self) -> None:
        """One connection was found dead: most likely they all are."""
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.terminate()

    async def close(self) -> None:
        """Let go of all connections; what is under way on them fails."""
        self.is_closed = True
        for connection in [*self.lent]:
            connection.terminate()
        idle, self.idle = self.idle, []
        for connection in idle:
            try:
                await connection.close(timeout=self.address.connect_timeout)
            except DRIVER_ERRORS:
                connection.terminate()
