"""Who asks, and what that caller may do."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from dibs.engines.http.protocol import Scope
from dibs.errors import NotAllowed
from dibs.server.tokens import ALL_SCOPES, Token

__all__ = ["ANYONE", "Caller", "caller_of"]

AT = "@"


class Caller(Struct, frozen=True, kw_only=True):
    """The holder of a token, or with an empty name anybody on this machine. `queues=None`: all of them."""

    name: str = ""
    scopes: frozenset[Scope] = ALL_SCOPES
    queues: frozenset[str] | None = None
    rate: float | None = None

    def may(self, scope: Scope | None) -> bool:
        """Whether it has a scope: to operate is also to read, and to be an admin is everything but seeing payloads."""
        return (
            scope is None
            or scope in self.scopes
            or (scope is Scope.READ and Scope.OPERATE in self.scopes)
            or (scope is not Scope.PAYLOADS and Scope.ADMIN in self.scopes)
        )

    def require(self, scope: Scope | None) -> None:
        if not self.may(scope):
            raise NotAllowed(f"the token {self.name!r} may not do this: it needs the scope {scope}.")

    @property
    def sees_payloads(self) -> bool:
        return self.may(Scope.PAYLOADS)

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def require_queues(self, queues: Iterable[str]) -> None:
        for queue in queues:
            if not self.serves(queue):
                raise NotAllowed(f"the token {self.name!r} may not use the queue {queue!r}.")

    def require_all_queues(self) -> None:
        if self.queues is not None:
            raise NotAllowed(f"the token {self.name!r} is limited to queues, and this concerns all of them.")

    # Workers of a token have its name behind theirs, so that no other token can speak for them.

    def worker(self, name: str) -> str:
        return f"{name}{AT}{self.name}" if self.name else name

    def owns(self, worker: str | None) -> bool:
        return not self.name or (worker is not None and worker.rpartition(AT)[2] == self.name and AT in worker)


ANYONE = Caller()


def caller_of(token: Token) -> Caller:
    return Caller(
        name=token.name,
        scopes=frozenset(token.scopes),
        queues=frozenset(token.queues) if token.queues else None,
        rate=token.rate,
    )
