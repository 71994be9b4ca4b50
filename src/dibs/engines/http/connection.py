"""Requests to Dibs servers: one of several, with failover and backoff, and one WebSocket that wakes."""

from __future__ import annotations

import asyncio
import atexit
import random
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import Protocol

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from dibs.engines.http.problems import error_of
from dibs.engines.http.protocol import MEDIA_TYPE, WAKE, compressed
from dibs.errors import Closed, DibsError, InvalidOption, StoreBusy, StoreUnavailable
from dibs.version import __version__

__all__ = ["Address", "Connection", "HttpConnection", "Reply", "Servers"]

SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
NOT_DONE = (502, 503, 504)
"""Answers that say nothing of the request itself: of a proxy, of a server that stops, or whose store is away."""


class Address(Struct, frozen=True, kw_only=True):
    """Where the servers are, and how to speak to them."""

    urls: tuple[str, ...]
    token: str | None = None
    timeout: float = 10.0
    patience: float = 2.0
    """Seconds for which a request is tried again while no server answers it."""
    tls_ca: str | None = None

    def __str__(self) -> str:
        return f"the Dibs server at {', '.join(self.urls)}"


class Reply(Struct, frozen=True):
    status: int
    body: bytes


class Connection(Protocol):
    """One way to servers. A test has one without sockets."""

    async def post(self, path: str, body: bytes) -> Reply:
        """Send once, to the server whose turn it is. Raises `OSError` or `TimeoutError` if there is no answer."""
        ...

    def wakes(self, topics: asyncio.Queue[Collection[str]]) -> AsyncIterator[Collection[str]]:
        """What is woken, from the moment that the server listens to the topics last put in the queue, until it ends."""
        ...

    def next(self) -> None:
        """Let it be the turn of another server."""
        ...

    async def close(self) -> None: ...


class Servers:
    """Requests that are tried again, on any of the servers, while it is not known that one was done or refused."""

    def __init__(self, address: Address, connection: Connection) -> None:
        self.address = address
        self.connection = connection

    async def post(self, path: str, body: bytes, again: bytes | None = None) -> bytes:
        """The answer's body. `again`: what to send instead if an earlier try may have taken effect."""
        began, pause, sent = time.monotonic(), SHORTEST_PAUSE, body
        while True:
            failure: DibsError
            try:
                reply = await self.connection.post(path, sent)
            except (OSError, TimeoutError, aiohttp.ClientError) as error:
                failure = StoreUnavailable(f"{self.address} does not answer: {described(error)}.")
                sent = body if again is None else again
            else:
                if reply.status < 300:
                    return reply.body
                failure = error_of(reply.status, reply.body)
                if reply.status not in NOT_DONE and not isinstance(failure, StoreBusy):
                    raise failure
            self.connection.next()
            if time.monotonic() - began + pause > self.address.patience:
                raise failure
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)


def described(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({error.certificate_error})"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"it does not speak TLS as expected; if it has none, use http:// ({error.os_error.strerror})"
    if isinstance(error, aiohttp.ClientConnectorError):
        return (error.os_error.strerror or str(error.os_error)).lower()
    return str(error) or type(error).__name__


class HttpConnection:
    """Requests over sockets, on the loop that made it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.turn = 0
        self.headers = {"User-Agent": f"dibs/{__version__}", "Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
        if address.token is not None:
            self.headers["Authorization"] = f"Bearer {address.token}"
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls_of(address), keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=address.timeout, sock_connect=min(5.0, address.timeout)),
            headers=self.headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
        )
        self.loop = asyncio.get_running_loop()
        atexit.register(close_at_exit, weakref.ref(self))

    @property
    def url(self) -> str:
        return self.address.urls[self.turn % len(self.address.urls)]

    def next(self) -> None:
        self.turn += 1

    async def post(self, path: str, body: bytes) -> Reply:
        packed = compressed(body)
        headers = {} if packed is None else {"Content-Encoding": "gzip"}
        url = URL(self.url + path, encoded=True)
        sent = body if packed is None else packed
        try:
            async with self.session.post(url, data=sent, headers=headers, allow_redirects=False) as answer:
                return Reply(answer.status, await answer.read())
        except (AssertionError, RuntimeError) as error:  # the session was closed while this was under way
            raise Closed("the engine was closed while this call was under way.") from error

    async def wakes(self, topics: asyncio.Queue[Collection[str]]) -> AsyncIterator[Collection[str]]:
        async with self.session.ws_connect(self.url + WAKE, heartbeat=10.0) as socket:
            telling = asyncio.get_running_loop().create_task(tell(socket, topics))
            try:
                async for message in socket:
                    yield msgspec.json.decode(message.data, type=list[str])
            finally:
                telling.cancel()

    async def close(self) -> None:
        await self.session.close()
        await asyncio.sleep(0)  # sockets are closed in the next turn of the loop


def close_at_exit(reference: weakref.ref[HttpConnection]) -> None:
    """Not an error: most apps live as long as their process, and are never closed."""
    connection = reference()
    if connection is None or connection.session.closed or connection.loop.is_closed():
        return
    with suppress(Exception):
        if connection.loop.is_running():
            asyncio.run_coroutine_threadsafe(connection.session.close(), connection.loop).result(1.0)
        else:
            connection.loop.run_until_complete(connection.session.close())


async def tell(socket: aiohttp.ClientWebSocketResponse, topics: asyncio.Queue[Collection[str]]) -> None:
    """Tell the server what to listen to, each time that this changes."""
    while True:
        await socket.send_str(msgspec.json.encode(sorted(await topics.get())).decode())


def tls_of(address: Address) -> ssl.SSLContext | bool:
    if address.tls_ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=address.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidOption(f"the TLS file {address.tls_ca} can't be read: {error}.") from None
