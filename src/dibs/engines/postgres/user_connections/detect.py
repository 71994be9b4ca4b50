"""From the user's object to a `UserConnection`, by the package that it comes from."""

from __future__ import annotations

from typing import Any

from dibs.engines.postgres.user_connections.base import UserConnection, unsuitable


def unwrap(connection: Any) -> UserConnection:
    """The `UserConnection` of a connection; raises `UsageError` for anything else. Nothing is sent."""
    packages = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    if "psycopg" in packages:
        from dibs.engines.postgres.user_connections import psycopg

        return psycopg.user_connection(connection)
    if "asyncpg" in packages:
        from dibs.engines.postgres.user_connections import asyncpg

        return asyncpg.user_connection(connection)
    if "sqlalchemy" in packages:
        from dibs.engines.postgres.user_connections import sqlalchemy

        return sqlalchemy.user_connection(connection)
    if "django" in packages:
        from dibs.engines.postgres.user_connections import django

        return django.user_connection(connection)
    raise unsuitable(connection)
