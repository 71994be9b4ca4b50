"""From what the user has handed over to a guest, by the package that it comes from."""

from __future__ import annotations

from typing import Any

from dibs.engines.postgres.guests.base import Guest, unsuitable

__all__ = ["guest_of"]


def guest_of(connection: Any) -> Guest:
    """The guest for a connection; `UsageError` for what is none. Nothing is sent."""
    packages = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    if "psycopg" in packages:
        from dibs.engines.postgres.guests import on_psycopg

        return on_psycopg.guest(connection)
    if "asyncpg" in packages:
        from dibs.engines.postgres.guests import on_asyncpg

        return on_asyncpg.guest(connection)
    if "sqlalchemy" in packages:
        from dibs.engines.postgres.guests import on_sqlalchemy

        return on_sqlalchemy.guest(connection)
    if "django" in packages:
        from dibs.engines.postgres.guests import on_django

        return on_django.guest(connection)
    raise unsuitable(connection)
