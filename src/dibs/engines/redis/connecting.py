"""Where a Redis server is: a host, a socket, the primary that sentinels name, or a node of a cluster."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from dibs.core.options import shown
from dibs.engines.redis.connection import Command, Connection, Message, ReplyError
from dibs.errors import InvalidOption, StoreUnavailable

__all__ = ["Address", "Kind", "connect", "slot_of"]

Place = tuple[str, int]
"""Host and port."""
SLOTS = 16384
FAILURES = (OSError, TimeoutError, ReplyError, ssl.SSLError)


class Kind(StrEnum):
    """How a server is found."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Address(Struct, frozen=True, kw_only=True):
    """Where the server is, how to get in, and under which prefix the keys of this installation are."""

    kind: Kind = Kind.SERVER
    places: tuple[Place, ...] = (("localhost", 6379),)
    """The server, or the sentinels, or some nodes of the cluster."""
    socket: str | None = None
    service: str = ""
    """What sentinels call the server."""
    user: str | None = None
    password: str | None = None
    sentinel_user: str | None = None
    sentinel_password: str | None = None
    database: int = 0
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_check_hostname: bool = True
    prefix: str = "dibs"
    by_queue: bool = False
    """Each queue has a hash tag, and so a slot of a cluster, of its own."""
    replicas: int = 0
    """How many replicas must have a write before it is acknowledged."""
    timeout: float = 10.0
    connect_timeout: float = 5.0

    def __str__(self) -> str:
        if self.socket is not None:
            return f"Redis at {self.socket}"
        places = ",".join(f"{host}:{port}" for host, port in self.places)
        return f"Redis at {places}" if self.kind is Kind.SERVER else f"the Redis {self.kind} at {places}"


def slot_of(tag: str) -> int:
    """The slot of a cluster that has the keys with this hash tag (CRC16 as in XMODEM)."""
    crc = 0
    for byte in tag.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
    return (crc & 0xFFFF) % SLOTS


async def connect(address: Address, tag: str, on_message: Message | None = None) -> Connection:
    """A connection to the server that takes writes for keys with this hash tag, ready for commands."""
    if address.kind is Kind.SENTINEL:
        places: Sequence[Place] = [await named_by_sentinels(address)]
    elif address.kind is Kind.CLUSTER:
        places = [await node_of(address, slot_of(tag))]
    else:
        places = address.places
    return await first_of(address, places, credentials(address), on_message)


async def first_of(
    address: Address, places: Sequence[Place], greeting: Sequence[Command], on_message: Message | None = None
) -> Connection:
    """A connection to the first of these that answers."""
    failure: BaseException = OSError("no host was given")
    for place in places:
        try:
            async with asyncio.timeout(address.connect_timeout):
                return await greeted(await open_connection(address, place, on_message), greeting)
        except FAILURES as error:
            failure = error
    raise failure


async def open_connection(address: Address, place: Place, on_message: Message | None) -> Connection:
    loop = asyncio.get_running_loop()
    context = tls_context(address)

    def make() -> Connection:
        return Connection(on_message, address.timeout)

    if address.socket is not None:
        _, connection = await loop.create_unix_connection(make, address.socket)
    else:
        host, port = place
        _, connection = await loop.create_connection(make, host, port, ssl=context)
    return connection


async def greeted(connection: Connection, greeting: Sequence[Command]) -> Connection:
    """Log in and choose the database."""
    try:
        on_message, connection.on_message = connection.on_message, None
        *answers, named = connection.send([*greeting, ("CLIENT", "SETNAME", "dibs")])
        for answer in answers:
            reply = await answer
            if isinstance(reply, ReplyError):
                raise reply
        await named  # whether the server lets us have a name does not matter
        connection.on_message = on_message
    except BaseException:
        connection.close()
        raise
    return connection


def credentials(address: Address) -> list[Command]:
    greeting = login(address.user, address.password)
    return [*greeting, ("SELECT", address.database)] if address.database else greeting


def login(user: str | None, password: str | None) -> list[Command]:
    if password is None:
        return []
    return [("AUTH", password) if user is None else ("AUTH", user, password)]


def tls_context(address: Address) -> ssl.SSLContext | None:
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.tls_ca)
        if address.tls_cert is not None:
            context.load_cert_chain(address.tls_cert, address.tls_key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(shown(each) for each in (address.tls_ca, address.tls_cert, address.tls_key) if each)
        raise InvalidOption(f"the TLS files {files} can't be read: {error}.") from None
    context.check_hostname = address.tls_check_hostname
    return context


# Sentinels and clusters.


async def asked(address: Address, greeting: Sequence[Command], command: Command) -> Any:
    """The first useful answer of any of the places of an address; None if none has one."""
    failure: BaseException | None = None
    for place in address.places:
        try:
            async with asyncio.timeout(address.connect_timeout):
                connection = await greeted(await open_connection(address, place, None), greeting)
                try:
                    (answer,) = connection.send([command])
                    reply = await answer
                finally:
                    connection.close()
            if isinstance(reply, ReplyError):
                raise reply
            if reply:
                return reply
        except FAILURES as error:
            failure = error
    if failure is not None:
        raise failure
    return None


async def named_by_sentinels(address: Address) -> Place:
    greeting = login(address.sentinel_user, address.sentinel_password)
    try:
        found = await asked(address, greeting, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service))
    except ReplyError as error:
        raise StoreUnavailable(f"{address} does not answer what it watches: {error}.") from error
    if found is None:
        raise StoreUnavailable(f"{address} knows no server {shown(address.service)}.")
    host, port = found
    return host.decode(), int(port)


async def node_of(address: Address, slot: int) -> Place:
    """The primary that has a slot."""
    greeting = login(address.user, address.password)
    try:
        ranges = await asked(address, greeting, ("CLUSTER", "SLOTS"))
    except ReplyError as error:
        raise StoreUnavailable(f"{address} is not a cluster: {error}. Use redis:// for a single server.") from error
    for first, last, primary, *_ in ranges or ():
        if first <= slot <= last:
            host = primary[0].decode() if primary[0] else address.places[0][0]
            return host, int(primary[1])
    raise StoreUnavailable(f"{address} has no server for slot {slot} just now. Nothing was written; try again.")
