"""From the user's object to the driver's own connection, inside the transaction that the framework knows of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from dibs.errors import UsageError

__all__ = ["FAILED", "Refusal", "UserConnection", "packages_of", "unwrap"]

Opened = TypeVar("Opened")
Refusal = Callable[[object, str], UsageError]
"""Makes the error for an object that can't be used, and why: each store names others that can."""

FAILED = (
    "the transaction has failed already, so nothing more can be part of it: roll it back, to its beginning or to a "
    "savepoint, before you go on."
)


class UserConnection(Struct, Generic[Opened], frozen=True):
    """A connection that the user has given.

    `waits`: its methods must be awaited, on the loop it belongs to; None if it may be used from blocking and from async
    code.
    """

    waits: bool | None
    open: Callable[[], Awaitable[Opened]]


def packages_of(thing: object) -> set[str]:
    """The packages that its class and the bases of that come from."""
    return {kind.__module__.partition(".")[0] for kind in type(thing).__mro__}


def unwrap(connection: Any, refusal: Refusal) -> UserConnection[Any] | None:
    """A connection whose `open` gives the driver's; None if this is of no framework. Nothing is sent."""
    packages = packages_of(connection)
    if "sqlalchemy" in packages:
        from dibs.engines.user_connections import sqlalchemy

        return sqlalchemy.user_connection(connection, refusal)
    if "django" in packages:
        from dibs.engines.user_connections import django

        return django.user_connection(connection, refusal)
    return None
