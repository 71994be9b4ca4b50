"""A Dibs server in the process of the test, and the HTTP engine on it, with and without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any, NamedTuple

import msgspec

from dibs import Dibs
from dibs.core.times import Instant
from dibs.engines.base import Engine, MayBlock, never
from dibs.engines.http.connection import Address, Reply
from dibs.engines.http.engine import HttpEngine
from dibs.engines.http.protocol import WAKE
from dibs.runtime.clock import SystemClock
from dibs.server.server import Server
from dibs.server.settings import ServerSettings

__all__ = ["Api", "InProcess", "RemoteEngine", "TurnedClock", "request", "server_here"]

HOST = "127.0.0.1:8642"


class TurnedClock(SystemClock):
    """The server's clock, which a test turns to and fro with each call that names an instant."""

    def __init__(self) -> None:
        self.at: Instant | None = None

    def now(self) -> Instant:
        return super().now() if self.at is None else self.at

    def store_now(self) -> Instant | None:
        return self.at


async def request(
    app: Any,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    query: str = "",
    client: str = "127.0.0.1",
    is_gone: bool = False,
    is_whole: bool = True,
) -> tuple[int, dict[str, str], bytes]:
    """One request without a socket."""
    given = {"host": HOST, **{name.lower(): value for name, value in (headers or {}).items()}}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": (client, 50_000),
        "server": ("127.0.0.1", 8642),
        "scheme": "http",
    }
    messages: list[dict[str, Any]] = []
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent and is_gone:
            return {"type": "http.disconnect"}
        if sent:
            await asyncio.Event().wait()  # the client stays
        sent = True
        return {"type": "http.request", "body": body, "more_body": not is_whole}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start = messages[0]
    answered = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
    return start["status"], answered, b"".join(message.get("body", b"") for message in messages[1:])


def server_here(app: Dibs, **settings: Any) -> Server:
    """A server whose app runs on the loop of the test, as one that `dibs serve` runs does. Its engine is open."""
    app.hub.runner._loop = asyncio.get_running_loop()  # type: ignore[assignment]
    app.hub.runner._started = True
    app.hub.runner._serving.set()
    return Server(app, ServerSettings(keeps=False, **settings))


class Api:
    """Requests to a server in the same process and loop; answers are decoded JSON."""

    def __init__(self, server: Any, token: str | None = None, client: str = "127.0.0.1", is_gone: bool = False) -> None:
        """`is_gone`: its clients leave as soon as they have asked."""
        self.server = server
        self.token = token
        self.client = client
        self.is_gone = is_gone

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, query: str = ""
    ) -> Answer:
        given = dict(headers or {})
        if self.token is not None:
            given.setdefault("Authorization", f"Bearer {self.token}")
        sent = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        status, answered, raw = await request(self.server, method, path, sent, given, query, self.client, self.is_gone)
        is_json = "json" in answered.get("content-type", "")
        return Answer(status, answered, msgspec.json.decode(raw) if is_json and raw else raw)

    async def get(self, path: str, query: str = "", **more: Any) -> Answer:
        return await self("GET", path, query=query, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return await self("POST", path, body, **more)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class InProcess:
    """The connection of an HTTP engine to a server in the same process and loop."""

    def __init__(self, server: Any, token: str | None = None) -> None:
        self.server = server
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}

    async def post(self, path: str, body: bytes) -> Reply:
        status, _, answer = await request(self.server, "POST", path, body, self.headers)
        return Reply(status, answer)

    async def wakes(self, topics: asyncio.Queue[Collection[str]]) -> AsyncIterator[Collection[str]]:
        incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        incoming.put_nowait({"type": "websocket.connect"})
        headers = [(b"host", HOST.encode()), *((n.encode(), v.encode()) for n, v in self.headers.items())]
        scope = {
            "type": "websocket",
            "path": WAKE,
            "raw_path": WAKE.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8642),
            "scheme": "ws",
            "subprotocols": [],
        }
        serving = asyncio.ensure_future(self.server(scope, incoming.get, outgoing.put))

        async def tell() -> None:
            while True:
                wanted = sorted(await topics.get())
                incoming.put_nowait({"type": "websocket.receive", "text": msgspec.json.encode(wanted).decode()})

        telling = asyncio.ensure_future(tell())
        try:
            while (message := await outgoing.get())["type"] != "websocket.close":
                if message["type"] == "websocket.send":
                    yield msgspec.json.decode(message["text"])
        finally:
            telling.cancel()
            incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
            serving.cancel()
            await asyncio.gather(serving, telling, return_exceptions=True)

    def next(self) -> None:
        """There is only one."""

    async def close(self) -> None:
        """There is nothing to close."""


class RemoteEngine(HttpEngine):
    """An HTTP engine with a server of its own on another engine, to which it leaves what is not on the wire.

    Instants that a test gives turn the clock of the server.
    """

    def __init__(self, inner: Engine, clock: TurnedClock | None = None) -> None:
        super().__init__(Address(urls=("http://" + HOST,)), lambda address: InProcess(self.server()))
        self.inner = inner
        self.clock = clock or TurnedClock()
        self.features = inner.features - {"transactions", "inline"}
        for name in ("rescue", "fire", "lead", "resign", "chore", "backup", "migrations"):
            setattr(self, name, getattr(inner, name))

    def server(self) -> Server:
        return server_here(Dibs(engine=self.inner, clock=self.clock))

    def at(self, now: Instant) -> None:
        self.clock.at = now

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        await self.inner.open(create=create)
        await super().open(create=create)

    async def close(self) -> None:
        await super().close()
        await self.inner.close()

    def forget(self) -> None:
        super().forget()
        self.inner.forget()

    def sibling(self) -> Engine:
        return RemoteEngine(self.inner.sibling(), self.clock)  # type: ignore[return-value]
