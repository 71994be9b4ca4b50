"""What every request passes first: whether it was sent here on purpose, from a page that may, and not too often.

A browser sends a page's origin with every request that could do harm. So requests of other origins are refused until
they are allowed, and so are names of this host that it does not know: a name that an attacker lets point to this
machine (DNS rebinding) is one of these.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs.server.http import HttpError, problem_response
from dibs.server.router import route_path
from dibs.server.settings import ANY_HOST, ServerSettings, is_loopback

__all__ = ["Buckets", "Gate"]

log = logging.getLogger("dibs.server")

METHODS = "GET, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"
EXPOSED = "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
MOST_CLIENTS = 10_000
PROBED = ("/health", "/ready")
"""Orchestrators ask these by address; they say nothing that a page could use."""


class Gate:
    """An ASGI application before another one."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self.origins = frozenset(origin.rstrip("/").lower() for origin in settings.origins)
        self.hosts = frozenset(host.lower() for host in (*settings.hosts, settings.host))
        self.any_host = ANY_HOST in settings.hosts or (settings.tokens is not None and not settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            origin = None if route_path(scope) in PROBED else self.checked(headers)
        except HttpError as error:
            await refuse(scope, receive, send, error)
            return
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
        elif origin is not None and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await preflight(origin, send)
        else:
            await self.app(scope, receive, with_headers(send, origin))

    def checked(self, headers: Headers) -> str | None:
        """The origin, if it is another one that is allowed."""
        host = headers.get("host", "")
        if not self.is_ours(host):
            raise HttpError(
                403,
                "unknown-host",
                "The host is not known",
                f"This server is not called {host!r}. Start it with --allow-host to be called so."[:300],
            )
        origin = headers.get("origin")
        if origin is None or is_same(origin, host):
            return None
        if origin.lower() not in self.origins:
            raise HttpError(
                403,
                "origin-not-allowed",
                "The origin is not allowed",
                f"Pages of {origin!r} may not call this server. Start it with --allow-origin to allow it."[:300],
            )
        return origin

    def is_ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "") if "@" not in host else ""
        except ValueError:
            return False
        return bool(name) and (self.any_host or name in self.hosts or is_loopback(name))


def is_same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
    except ValueError:
        return False


async def refuse(scope: Scope, receive: Receive, send: Send, error: HttpError) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": error.problem.title})
    else:
        await problem_response(error.problem, error.headers)(scope, receive, send)


async def preflight(origin: str, send: Send) -> None:
    headers = {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": ALLOWED_HEADERS,
        "access-control-max-age": "600",
        "vary": "Origin",
    }
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 204, "headers": raw})
    await send({"type": "http.response.body", "body": b""})


def with_headers(send: Send, origin: str | None) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *SAFE]
            if origin is not None:
                headers = MutableHeaders(scope=message)
                headers["access-control-allow-origin"] = origin
                headers["access-control-expose-headers"] = EXPOSED
                headers.add_vary_header("Origin")
        await send(message)

    return sending


SAFE = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class Bucket:
    """Tokens of one client: `rate` a second, at most `burst`."""

    __slots__ = ("at", "burst", "rate", "tokens")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.burst = max(1.0, 2 * rate)
        self.tokens = self.burst
        self.at = time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    @property
    def wait(self) -> float:
        """Seconds until there is a token."""
        return max(0.0, (1 - self.tokens) / self.rate)

    def headers(self) -> dict[str, str]:
        full = (self.burst - self.tokens) / self.rate
        return {
            "X-RateLimit-Limit": f"{self.burst:.0f}",
            "X-RateLimit-Remaining": f"{max(0.0, self.tokens):.0f}",
            "X-RateLimit-Reset": f"{full:.0f}",
        }


class Buckets:
    """One for each client that is limited."""

    def __init__(self) -> None:
        self._by_client: OrderedDict[tuple[str, float], Bucket] = OrderedDict()

    def take(self, client: str, rate: float) -> Mapping[str, str]:
        """The headers that tell a client what is left; raises if nothing is."""
        bucket = self._by_client.get((client, rate))
        if bucket is None:
            bucket = self._by_client[client, rate] = Bucket(rate)
            while len(self._by_client) > MOST_CLIENTS:
                self._by_client.popitem(last=False)
        else:
            self._by_client.move_to_end((client, rate))
        if bucket.take():
            return bucket.headers()
        error = HttpError(
            429, "too-many-requests", "Too many requests", f"This client may ask {rate:g} times a second."
        )
        error.problem.retry_after = bucket.wait
        error.headers.update(bucket.headers())
        raise error
