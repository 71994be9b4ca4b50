"""Connections to the server: a few, bound to the loop that opened them, each statement with a timeout.

Not asyncpg's own pool: it takes 42 µs more for each use, and fails if the server refuses another connection, instead of
waiting for one of those it has (docs/design/postgres.md). No use leaves anything in a session that would have to be
reset; a connection whose state is unknown is dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from dibs.core.options import shown
from dibs.engines.figures import PoolUse
from dibs.engines.postgres.driver_internals import limit_read_buffer
from dibs.engines.postgres.errors import CROWDED, DRIVER_ERRORS, leaves_doubt, translation, words_of
from dibs.errors import Closed, DibsError, InvalidOption, StoreBusy, StoreUnavailable

__all__ = [
    "GOODBYE_SECONDS",
    "LONGEST_SILENCE",
    "READ",
    "WRITE",
    "Address",
    "Connection",
    "Pool",
    "hosts_of",
    "transaction",
]

SERVER_SHARE = 0.9
"""The part of a statement's timeout after which the server ends it."""

LONGEST_SILENCE = 5000
"""Milliseconds that a process may take between two statements of a transaction. Mostly it takes less than one. For so
long, a process that is stopped in the middle of a transaction keeps its locks; one whose loop was blocked for longer
must start over."""

GOODBYE_SECONDS = 2.0
"""How long closing waits for a server that may not answer any more."""

WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""How transactions begin, whatever the server's defaults are."""

Connection = Any
"""A connection of the driver, which is not typed."""


class Address(Struct, frozen=True, kw_only=True):
    """Where the store is, and how to connect to it."""

    dsn: str
    schema: str = "dibs"
    pool_size: int = 8
    timeout: float = 30.0
    connect_timeout: float = 10.0
    statement_cache_size: int = 256
    pooled: bool = False
    """A pooler gives every transaction another session."""
    direct_dsn: str | None = None
    """The URL past the pooler."""
    kept: bool = False
    """For sessions that are kept while idle."""
    read_dsn: str | None = None
    """Another server, for reads that may be a little behind."""

    def direct(self) -> Address | None:
        """The address for sessions that are kept, None if there can be none."""
        if self.pooled and self.direct_dsn is None:
            return None
        return replace(self, dsn=self.direct_dsn or self.dsn, pooled=False, direct_dsn=None, kept=True)

    def reading(self) -> Address | None:
        """The address for reads that may be a little behind, None if it is the same."""
        if self.read_dsn is None:
            return None
        patience = min(self.connect_timeout, 5.0)  # the primary can answer instead
        return replace(self, dsn=self.read_dsn, read_dsn=None, connect_timeout=patience)

    def impatient(self) -> Address:
        """For heartbeats: a stalled connection must be given up before the leases end."""
        return replace(self, timeout=min(self.timeout, 5.0), connect_timeout=min(self.connect_timeout, 5.0))

    def __str__(self) -> str:
        """For people: without the password."""
        parts = urlsplit(self.dsn)
        host = parts.netloc.rpartition("@")[2] or "the local server"
        return f"PostgreSQL at {host}{parts.path} (schema {self.schema})"


KEPT = {
    # The server notices within 25 s that a client's host is gone, and firewalls do not drop an idle connection.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
    "idle_session_timeout": "0",
}


def settings_for(address: Address) -> dict[str, str]:
    """Plans are kept, and the first are made for empty tables: they must not scan whole tables for ever.

    Other defaults of a database or role must not change what statements do. Behind a pooler, which may not know these
    settings, no plan is kept, and `pgbouncer.check_way` checks those that matter.
    """
    named = {"application_name": "dibs"}
    if address.pooled:
        return named
    steady = {"enable_seqscan": "off", "jit": "off", "default_transaction_isolation": "read committed"}
    kept = KEPT if address.kept else {}
    return {**named, **steady, "lock_timeout": "0", **kept, **limits_for(address)}


def limits_for(address: Address) -> dict[str, str]:
    """The server ends what takes too long, a little before we stop waiting: then it is known that nothing was done.

    It does so even when we are gone and can't ask for it. A process that is stopped in the middle of a transaction (a
    laptop that sleeps, a paused machine) keeps its locks for a few seconds only. Through a pooler, the function `begin`
    sets this.
    """
    milliseconds = max(1, round(address.timeout * SERVER_SHARE * 1000))
    idle = min(milliseconds, LONGEST_SILENCE)
    return {"statement_timeout": str(milliseconds), "idle_in_transaction_session_timeout": str(idle)}


def hosts_of(dsn: str) -> list[dict[str, Any]]:
    """The servers in the URL, each as the driver's options; one empty entry if there is at most one."""
    parts = urlsplit(dsn)
    options = dict(parse_qsl(parts.query))
    named = parts.netloc.rpartition("@")[2] or options.get("host", "")
    ports = options.get("port", "").split(",")
    found = [host_of(each, ports[min(place, len(ports) - 1)]) for place, each in enumerate(named.split(","))]
    return found if len(found) > 1 else [{}]


def host_of(named: str, port: str) -> dict[str, Any]:
    host, colon, own_port = unquote(named).rpartition(":")
    if not colon or "]" in own_port:  # the colons are those of an IPv6 address
        host, own_port = unquote(named), port
    if own_port and not (own_port.isdecimal() and 0 < int(own_port) < 65536):
        raise InvalidOption(f"a server's port must be a number from 1 to 65535, not {shown(own_port)}.")
    found: dict[str, Any] = {"host": host.removeprefix("[").removesuffix("]")}
    return {**found, "port": int(own_port)} if own_port else found


@asynccontextmanager
async def transaction(connection: Connection, begin: str) -> AsyncIterator[None]:
    """All or nothing.

    Not the driver's own: if a connection stalls, or its caller stops waiting, that would wait again for the rollback.
    Here such a connection is dropped, and the server rolls back by itself.
    """
    await connection.execute(begin)
    try:
        yield
    except BaseException as error:
        if leaves_doubt(error):
            connection.terminate()
        elif not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


class Pool:
    """Connections that are lent one at a time; the one that was used last is lent first."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.idle: list[Connection] = []
        self.lent: set[Connection] = set()
        self.headroom = asyncio.Semaphore(address.pool_size)
        self.connecting = 0
        self.given_back = asyncio.Event()
        self.hosts = hosts_of(address.dsn)
        self.is_closed = False
        self.waiting = self.waits = self.exhausted = 0
        self.waited = 0.0

    def use(self) -> PoolUse:
        """What it does now, and what callers have waited for."""
        return PoolUse(
            size=self.address.pool_size,
            busy=len(self.lent),
            idle=len(self.idle),
            waiting=self.waiting,
            waits=self.waits,
            waited=self.waited,
            exhausted=self.exhausted,
        )

    async def connect(self) -> Connection:
        """A new connection, which the caller must close."""
        try:
            return await self.connect_somewhere()
        except DRIVER_ERRORS as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: BaseException) -> DibsError:
        """Why there is no connection."""
        if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
            return InvalidOption(f"the URL of {self.address} can't be used: {words_of(error)}.")
        if isinstance(error, TimeoutError):
            wait = f"{self.address.connect_timeout:g} s"
            return StoreUnavailable(f"{self.address} did not answer in time ({wait}). It may be repeated.")
        return translation(error, str(self.address))

    async def connect_somewhere(self) -> Connection:
        """To the server that accepted us last, else to the next one; each has the whole timeout to answer.

        The driver would give all of them one timeout, which a first one that does not answer would use up.
        """
        failure: BaseException | None = None
        for host in [*self.hosts]:
            try:
                connection = await asyncpg.connect(self.address.dsn, **host, **self.options())
            except DRIVER_ERRORS as error:
                failure = more_telling(failure, error)
                continue
            self.hosts.remove(host)
            self.hosts.insert(0, host)
            limit_read_buffer(connection)
            return connection
        assert failure is not None
        raise failure

    def options(self) -> dict[str, Any]:
        address = self.address
        found: dict[str, Any] = {
            "timeout": address.connect_timeout,
            "command_timeout": address.timeout,
            "statement_cache_size": address.statement_cache_size,
            "max_cached_statement_lifetime": 0,
            "server_settings": settings_for(address),
        }
        if len(self.hosts) > 1 and "target_session_attrs=" not in address.dsn:
            found["target_session_attrs"] = "read-write"
        return found

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """Lend a connection."""
        await self.wait_for_room()
        try:
            connection = await self.take()
            try:
                yield connection
            except BaseException as error:
                if leaves_doubt(error):
                    connection.terminate()
                raise
            finally:
                self.give_back(connection)
        finally:
            self.headroom.release()

    async def wait_for_room(self) -> None:
        if not self.headroom.locked():
            await self.headroom.acquire()
            return
        self.waits += 1
        self.waiting += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.address.timeout):
                await self.headroom.acquire()
        except TimeoutError:
            self.exhausted += 1
            raise StoreBusy(
                f"all {self.address.pool_size} connections to {self.address} were in use for "
                f"{self.address.timeout:g} s. Raise pool_size, or do less at once."
            ) from None
        finally:
            self.waiting -= 1
            self.waited += time.monotonic() - began

    async def take(self) -> Connection:
        connection = self.usable()
        while connection is None:
            if self.is_closed:
                raise Closed(f"the engine on {self.address} has been closed.")
            self.connecting += 1
            try:
                connection = await self.connect_somewhere()
            except DRIVER_ERRORS as error:
                has_others = self.lent or self.idle or self.connecting > 1
                if not (isinstance(error, CROWDED) and has_others):
                    raise self.unreachable(error) from error
            finally:
                self.connecting -= 1
                self.given_back.set()
            if connection is None:
                connection = await self.next_given_back()
        self.lent.add(connection)
        return connection

    def usable(self) -> Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def next_given_back(self) -> Connection | None:
        """The server refuses more connections: wait for one that the pool has lent."""
        try:
            async with asyncio.timeout(self.address.timeout):
                while (self.lent or self.connecting) and not self.idle:
                    self.given_back.clear()
                    await self.given_back.wait()
        except TimeoutError:
            raise StoreBusy(
                f"{self.address} has no connection left for us, and those that we have were in use for "
                f"{self.address.timeout:g} s. Raise max_connections, or do less at once."
            ) from None
        return self.usable()

    def give_back(self, connection: Connection) -> None:
        self.lent.discard(connection)
        self.given_back.set()
        if connection.is_closed():
            return
        if self.is_closed or connection.is_in_transaction():
            connection.terminate()
        else:
            self.idle.append(connection)

    def drop_idle(self) -> None:
        """One connection was found dead: most likely all of them are."""
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.terminate()

    async def close(self) -> None:
        """Close all connections; what is under way on them fails."""
        self.is_closed = True
        for connection in [*self.lent]:
            connection.terminate()
        idle, self.idle = self.idle, []
        await asyncio.gather(*(self.hang_up(connection) for connection in idle))

    async def hang_up(self, connection: Connection) -> None:
        """Close a connection cleanly, or drop it if the server does not answer."""
        try:
            await connection.close(timeout=min(self.address.connect_timeout, GOODBYE_SECONDS))
        except DRIVER_ERRORS:
            connection.terminate()


def more_telling(failure: BaseException | None, other: BaseException) -> BaseException:
    """The more useful of two servers' failures: what a server said, rather than no answer."""
    return failure if failure is not None and isinstance(other, OSError) else other
