"""SQLAlchemy 2: sessions and connections, blocking and async, down to the driver's own connection.

SQLAlchemy believes that it is outside a transaction until it has sent something, and would not commit what was written
without it. So it is made to send something first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session, scoped_session

from dibs.engines.user_connections.unwrapping import Refusal, UserConnection
from dibs.errors import UsageError

__all__ = ["user_connection"]

ANYTHING = "SELECT 1"
ASYNC = "sqlalchemy.ext.asyncio"
"""Can't be imported without greenlet, which blocking callers don't need."""


def user_connection(connection: Any, refusal: Refusal) -> UserConnection[Any]:
    if any(kind.__module__.startswith(ASYNC) for kind in type(connection).__mro__):
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

        if isinstance(connection, AsyncConnection):
            return UserConnection(True, lambda: open_waiting(connection))
        if isinstance(connection, AsyncSession | async_scoped_session):
            return UserConnection(True, lambda: open_session(connection))
    elif isinstance(connection, Session | scoped_session | Connection):
        return UserConnection(False, lambda: open_blocking(connection))
    raise refusal(connection, "give a session or a connection")


@contextmanager
def complaints() -> Iterator[None]:
    """Translate what SQLAlchemy raises about a session or a connection that can't be used."""
    try:
        yield
    except InvalidRequestError as error:
        raise UsageError(f"SQLAlchemy can't use this connection: {error}") from error


async def open_blocking(given: Any) -> Any:
    with complaints():
        connection = given if isinstance(given, Connection) else given.connection()
        if not connection.in_transaction():
            connection.exec_driver_sql(ANYTHING)
        return connection.connection.driver_connection


async def open_session(session: Any) -> Any:
    with complaints():
        return await open_waiting(await session.connection())


async def open_waiting(connection: Any) -> Any:
    with complaints():
        driver = (await connection.get_raw_connection()).driver_connection
        if not connection.in_transaction() or is_idle(driver):
            await connection.exec_driver_sql(ANYTHING)
    return driver


def is_idle(driver: Any) -> bool:
    """Whether this is asyncpg's, for which SQLAlchemy begins transactions late, and has not begun yet."""
    asks = getattr(driver, "is_in_transaction", None)
    return asks is not None and not asks()
