"""asyncpg: its connections already have the methods that verbs use."""

from __future__ import annotations

from typing import Any

import asyncpg

from dibs.engines.postgres.driver_internals import unproxied
from dibs.engines.postgres.user_connections.base import NO_TRANSACTION, DriverConnection, closed, unsuitable
from dibs.engines.user_connections import UserConnection
from dibs.errors import UsageError


class Own:
    """A connection, or one that a pool has lent. Only the server knows whether its transaction has failed."""

    errors: tuple[type[BaseException], ...] = (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        TimeoutError,
    )

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.key: object = unproxied(connection)
        self.fetch = connection.fetch
        self.fetchrow = connection.fetchrow
        self.fetchval = connection.fetchval
        self.execute = connection.execute

    def check(self) -> None:
        try:
            is_closed, has_transaction = self.connection.is_closed(), self.connection.is_in_transaction()
        except asyncpg.InterfaceError:  # it was returned to its pool
            raise closed() from None
        if is_closed:
            raise closed()
        if not has_transaction:
            raise UsageError(NO_TRANSACTION)


def user_connection(connection: Any) -> UserConnection[DriverConnection]:
    if not hasattr(type(connection), "is_in_transaction"):  # a pool has the other methods, too
        raise unsuitable(connection, "give a connection, which has a transaction")

    async def opened() -> DriverConnection:
        return Own(connection)

    return UserConnection(True, opened)
