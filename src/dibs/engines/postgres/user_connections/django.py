"""Django's connection to a PostgreSQL database, on psycopg 3."""

from __future__ import annotations

from typing import Any

from dibs.engines.postgres.user_connections.base import FAILED, DriverConnection, UserConnection, unsuitable
from dibs.errors import UsageError


def user_connection(connection: Any) -> UserConnection:
    if not hasattr(connection, "ensure_connection"):
        raise unsuitable(connection, "give django.db.connection, or one of django.db.connections")

    async def opened() -> DriverConnection:
        connection.validate_thread_sharing()
        connection.ensure_connection()
        if connection.needs_rollback:
            raise UsageError(FAILED)
        driver = connection.connection
        if type(driver).__module__.partition(".")[0] != "psycopg":
            raise unsuitable(driver, "the driver of this Django connection")
        from dibs.engines.postgres.user_connections import psycopg

        return psycopg.driver_connection(driver)

    return UserConnection(False, opened)
