"""From the user's object to a `DriverConnection`, by the package that it comes from."""

from __future__ import annotations

from typing import Any

from dibs.engines import user_connections
from dibs.engines.postgres.user_connections.base import DriverConnection, unsuitable
from dibs.engines.user_connections import UserConnection, packages_of

__all__ = ["unwrap"]


def unwrap(connection: Any) -> UserConnection[DriverConnection]:
    """The `UserConnection` of a connection; raises `UsageError` for anything else. Nothing is sent."""
    packages = packages_of(connection)
    if "psycopg" in packages:
        from dibs.engines.postgres.user_connections import psycopg

        return psycopg.user_connection(connection)
    if "asyncpg" in packages:
        from dibs.engines.postgres.user_connections import asyncpg

        return asyncpg.user_connection(connection)
    wrapped = user_connections.unwrap(connection, unsuitable)
    if wrapped is None:
        raise unsuitable(connection)

    async def opened() -> DriverConnection:
        return driver_connection(await wrapped.open(), waits=bool(wrapped.waits))

    return UserConnection(wrapped.waits, opened)


def driver_connection(driver: Any, *, waits: bool) -> DriverConnection:
    """The `DriverConnection` for the driver's connection inside a framework's."""
    package = type(driver).__module__.partition(".")[0]
    if package == "psycopg":
        from dibs.engines.postgres.user_connections import psycopg

        found, kind = psycopg.driver_connection(driver), psycopg.Waiting if waits else psycopg.Blocking
        if isinstance(found, kind):
            return found
    elif package == "asyncpg" and waits:
        from dibs.engines.postgres.user_connections import asyncpg

        return asyncpg.Own(driver)
    raise unsuitable(driver, "the driver of this connection")
