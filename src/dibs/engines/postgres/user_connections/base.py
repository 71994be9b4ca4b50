"""What the connections of all drivers have in common."""

from __future__ import annotations

from typing import Any, Protocol

from dibs.errors import UsageError

__all__ = ["NO_TRANSACTION", "DriverConnection", "closed", "unsuitable"]

SUITABLE = (
    "psycopg 3 (Connection, AsyncConnection), asyncpg (Connection), SQLAlchemy 2 (Connection, Session, "
    "AsyncConnection, AsyncSession, on psycopg or asyncpg), or Django's connection (on psycopg)"
)

NO_TRANSACTION = (
    "the connection is in autocommit mode and has no open transaction, so nothing would hold your writes and this one "
    "together. Open one first: with conn.transaction() (psycopg, asyncpg), begin() (SQLAlchemy), transaction.atomic() "
    "(Django)."
)


class DriverConnection(Protocol):
    """An open connection, inside the user's transaction. Rows can be read by name and by position, and unpacked."""

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """What statements fail with."""
        ...

    @property
    def key(self) -> object:
        """Identifies this connection, to remember something about it."""
        ...

    def check(self) -> None:
        """`UsageError` unless a statement would be part of an open, sound transaction, as far as is known."""
        ...

    async def fetch(self, sql: str, *parameters: Any) -> list[Any]: ...
    async def fetchrow(self, sql: str, *parameters: Any) -> Any: ...
    async def fetchval(self, sql: str, *parameters: Any) -> Any: ...
    async def execute(self, sql: str, *parameters: Any) -> str:
        """The status, such as "INSERT 0 5"."""
        ...


def unsuitable(thing: object, why: str = "") -> UsageError:
    """The error for an object that can't be used."""
    kind = type(thing)
    told = f" ({why})" if why else ""
    return UsageError(f"connection= can't be a {kind.__module__}.{kind.__qualname__}{told}. It may be of {SUITABLE}.")


def closed() -> UsageError:
    return UsageError("the connection is closed: give one that is open, inside the transaction that this is to join.")
