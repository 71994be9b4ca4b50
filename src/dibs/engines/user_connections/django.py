"""Django's connection to a database."""

from __future__ import annotations

from typing import Any

from dibs.engines.user_connections.unwrapping import FAILED, Refusal, UserConnection
from dibs.errors import UsageError


def user_connection(connection: Any, refusal: Refusal) -> UserConnection[Any]:
    if not hasattr(connection, "ensure_connection"):
        raise refusal(connection, "give django.db.connection, or one of django.db.connections")

    async def opened() -> Any:
        connection.validate_thread_sharing()
        connection.ensure_connection()
        if connection.needs_rollback:
            raise UsageError(FAILED)
        return connection.connection

    return UserConnection(False, opened)
