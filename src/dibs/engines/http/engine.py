"""The engine that asks a Dibs server. Its verbs are made from the type hints of the seam."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec
from msgspec import structs

from dibs.core.times import Instant
from dibs.engines.base import Engine, Joined, MayBlock, Subscription, never
from dibs.engines.figures import PoolUse
from dibs.engines.http.connection import Address, Connection, HttpConnection, Servers
from dibs.engines.http.notifier import Notifier
from dibs.engines.http.protocol import VERBS, Verb
from dibs.engines.values import About, ChoreRecord, ClaimRequest, Feature, Fired, Rescued, Term
from dibs.errors import Closed, UsageError

__all__ = ["HttpEngine", "as_engine"]

FEATURES = frozenset({Feature.DURABLE, Feature.SHARED, Feature.CROSS_QUEUE})
"""What a server lets others do. What its store can't do is refused by the server."""


class HttpEngine:
    """A store behind one or more servers. The verbs of `Keeping` do nothing: the servers do that."""

    features = FEATURES

    def __init__(self, address: Address, connect: Callable[[Address], Connection] = HttpConnection) -> None:
        self.address = address
        self._connect = connect
        self._servers: Servers | None = None
        self._notifier: Notifier | None = None

    def _opened(self) -> Servers:
        if self._servers is None:
            raise Closed(f"the engine on {self.address} is not open.")
        return self._servers

    # Lifecycle.

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        if self._servers is not None:
            return
        servers = Servers(self.address, self._connect(self.address))
        try:
            await ask(servers, VERBS["about"], {})
        except BaseException:
            await servers.connection.close()
            raise
        self._servers = servers
        self._notifier = Notifier(servers.connection, str(self.address))

    async def close(self) -> None:
        servers, notifier = self._servers, self._notifier
        self._servers = self._notifier = None
        if servers is not None and notifier is not None:
            await notifier.close()
            await servers.connection.close()

    def forget(self) -> None:
        self._servers = self._notifier = None

    def sibling(self) -> Engine:
        return as_engine(type(self)(self.address, self._connect))

    def subscribe(self, topics: Collection[str]) -> Subscription:
        self._opened()
        assert self._notifier is not None
        return self._notifier.subscribe(topics)

    def pool_use(self) -> PoolUse | None:
        return None

    async def about(self) -> About:
        """The server's store, with what can be done from here."""
        about: About = await ask(self._opened(), VERBS["about"], {})
        return structs.replace(about, features=self.features)

    # What stays with the servers and their store.

    def join(self, connection: Any) -> Joined:
        raise UsageError(
            "a Dibs server has no transactions to join: leave connection= out, or enqueue after the commit."
        )

    async def rescue(
        self, *, ended_by: Instant | None = None, not_after: Instant | None = None, now: Instant | None = None
    ) -> Rescued:
        return Rescued()

    async def fire(self, *, now: Instant | None = None) -> Fired:
        return Fired()

    async def lead(self, worker: str, *, now: Instant | None = None) -> Term | None:
        return None

    async def resign(self, term: Term) -> None:
        """There is no term to give up."""

    async def chore(self, name: str, term: Term, *, now: Instant | None = None) -> ChoreRecord:
        return ChoreRecord(name=name, refused=True)

    async def backup(self, target: Any) -> None:
        raise UsageError("a store behind a Dibs server is backed up where it is: run dibs backup with its own URL.")

    async def migrations(self, *, sql: bool = False) -> list[str]:
        raise UsageError("a store behind a Dibs server is migrated where it is: run dibs migrate with its own URL.")

    def at(self, now: Instant) -> None:
        """What time it is was given: only tests do that, and they turn the server's clock."""
        raise UsageError("a store behind a Dibs server has a clock of its own: now= can't be given.")


async def ask(servers: Servers, verb: Verb, given: dict[str, Any], *values: Any) -> Any:
    arguments = verb.arguments(*values, **given)
    again = None
    if values and isinstance(values[0], ClaimRequest):
        again = msgspec.msgpack.encode(verb.arguments(structs.replace(values[0], repeat=True)))
    body = await servers.post(verb.path, msgspec.msgpack.encode(arguments), again)
    return verb.answers.decode(body)


def method_of(verb: Verb) -> Callable[..., Awaitable[Any]]:
    async def call(self: HttpEngine, *values: Any, now: Instant | None = None, **given: Any) -> Any:
        if now is not None:
            self.at(now)
        return await ask(self._opened(), verb, given, *values)

    call.__name__ = call.__qualname__ = verb.name
    return call


for each in VERBS.values():
    if each.name not in vars(HttpEngine):
        setattr(HttpEngine, each.name, method_of(each))


def as_engine(engine: HttpEngine) -> Engine:
    """The same; its verbs are made when this module is imported, which type checkers can't see."""
    return engine  # type: ignore[return-value]
