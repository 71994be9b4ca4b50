"""From what the user has handed over to a guest, by the package that it comes from."""

from __future__ import annotations

from typing import Any

from dibs.engines.postgres.user_connections.base import UserConnection, unsuitable

__all__ = ["unwrap"]


def unwrap(connection: Any) -> UserConnection:
    """The guest for a connection; `UsageError` for what is none. Nothing is sent."""
    packages = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    if "psycopg" in packages:
        from dibs.engines.postgres.user_connections import psycopg

        return psycopg.guest(connection)
    if "asyncpg" in packages:
        from dibs.engines.postgres.user_connections import asyncpg

        return asyncpg.guest(connection)
    if "sqlalchemy" in packages:
        from dibs.engines.postgres.user_connections import sqlalchemy

        return sqlalchemy.guest(connection)
    if "django" in packages:
        from dibs.engines.postgres.user_connections import django

        return django.guest(connection)
    raise unsuitable(connection)
