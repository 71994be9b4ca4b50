"""Roles with few rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from urllib.parse import urlsplit, urlunsplit

from postgres_help import connection

__all__ = ["RIGHTS", "role", "url_as"]

RIGHTS = (
    "GRANT USAGE ON SCHEMA {schema} TO ROLE",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO ROLE",
)
"""What the guide says that workers and producers need."""

numbers = count(1)


@asynccontextmanager
async def role(*grants: str) -> AsyncIterator[str]:
    """A role that may log in, and what it has been granted; its name."""
    async with connection() as own:
        name = f"dibs_role_{await own.fetchval('SELECT pg_backend_pid()')}_{next(numbers)}"
        await own.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
        try:
            for grant in grants:
                await own.execute(grant.replace("ROLE", name))
            yield name
        finally:
            await own.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def url_as(url: str, name: str) -> str:
    """The same, as another role."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{name}:x@{parts.netloc.rpartition('@')[2]}"))
