"""`/ws` and `GET /api/v1/events`: what happens in the store, as WebSocket messages and as Server-Sent Events.

Both send the same messages: `{"type", "timestamp", "data", "cursor"}`, the first one of type `subscribed`. A client
that comes back gives its last cursor (Server-Sent Events: the header Last-Event-ID) and is told what it has missed, or
that there is a `gap`. Over a WebSocket a client may send `{"subscribe": {"topics": […], …}}` and `{"ping": 1}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import Struct
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from dibs.engines.http.problems import problem_of
from dibs.errors import Closed, DibsError, StoreBusy, StoreUnavailable
from dibs.server.broadcast import Broadcaster
from dibs.server.caller import Caller
from dibs.server.event_feed import Feed, Filters
from dibs.server.event_messages import Message, Position
from dibs.server.http import HttpError, problem_response, read_query

__all__ = ["routes"]

SOCKET_PATH = "/ws"
SENT_PATH = "/api/v1/events"

SEND_TIMEOUT = 20.0
"""Seconds after which a client that takes nothing is disconnected."""
KEEP_ALIVE = 15.0
"""Seconds without a message after which it says that it is still there."""
RECHECK = 30.0
"""Seconds after which it is checked again whether a token is still valid."""
CLOSING = 2.0
RETRY_AFTER = {"Retry-After": "5"}
LARGEST_MESSAGE = 64 * 1024

PROTOCOL, TOKEN = "dibs", "token."
"""Browsers can't send headers with a WebSocket: they offer the subprotocols `dibs` and `token.` with the token."""
NOT_TEXT, NOT_ALLOWED, TOO_LARGE, RESTART, TRY_LATER = 1003, 1008, 1009, 1012, 1013


class EventsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events, and after which one. All but the cursor can be repeated."""

    topic: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    task_type: tuple[str, ...] = ()
    task_id: tuple[str, ...] = ()
    cursor: str | None = None

    @property
    def filters(self) -> Filters:
        return Filters(self.topic, self.queue, self.task_type, self.task_id)


class SocketQuery(EventsQuery, frozen=True, forbid_unknown_fields=True):
    """`batch`: each message of the server is a list of events, for clients that want very many."""

    batch: bool = False


class FromClient(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a WebSocket client."""

    subscribe: Filters | None = None
    ping: int | float | str | None = None


class Disconnect(Exception):
    """Close a WebSocket, and say why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Stopping(Exception):
    """The server stops."""


async def first_of(*parts: Coroutine[Any, Any, None]) -> None:
    """Run these until one ends, and end the others."""
    tasks = [asyncio.get_running_loop().create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


class Connection:
    """One client, however it is connected: who it is, and what it is told."""

    def __init__(self, server: Any, broadcaster: Broadcaster, http: HTTPConnection, query: type[EventsQuery]) -> None:
        self.server = server
        self.http = http
        self.caller = self.identified()
        self.query = read_query(cast(Request, http), query)
        wanted = self.query.filters.checked(self.caller)
        cursor = self.query.cursor or http.headers.get("last-event-id") or None
        position = None if cursor is None else Position.parse(cursor)
        if len(broadcaster) >= server.settings.most_connections:
            raise HttpError(
                503, "too-many-clients", "Too many clients listen", "Try again later.", {"Retry-After": "5"}
            )
        self.feed = Feed(broadcaster, self.query.filters, wanted, position)

    def identified(self) -> Caller:
        offered = self.http.scope.get("subprotocols", ())
        secret = next((each.removeprefix(TOKEN) for each in offered if each.startswith(TOKEN)), None)
        by_secret = secret is not None and "authorization" not in self.http.headers
        caller: Caller = self.server.caller_of_secret(secret, self.http) if by_secret else self.server.caller(self.http)
        return caller

    async def oversee(self) -> None:
        """Ends when the server stops, or the caller may not listen any more."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECHECK):
                    await self.server.stopping.wait()
                    raise Stopping
            if self.identified() != self.caller:
                raise HttpError(403, "token-changed", "The token has changed", "Connect again.")

    def texts(self, messages: Sequence[Message]) -> list[str]:
        return [each.text(shows_payloads=self.caller.sees_payloads) for each in messages]


class Socket:
    """A client's WebSocket."""

    def __init__(self, socket: WebSocket, connection: Connection) -> None:
        self.socket = socket
        self.connection = connection
        self.feed = connection.feed

    async def run(self) -> None:
        try:
            await self.feed.open()
            await first_of(self.send(), self.receive(), self.connection.oversee())
        except Stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await self.send_some([self.feed.stopping()])
            raise
        finally:
            self.feed.close()

    async def send(self) -> None:
        while True:
            if messages := await self.feed.next(KEEP_ALIVE):
                async with asyncio.timeout(SEND_TIMEOUT):
                    await self.send_some(messages)

    async def send_some(self, messages: list[Message]) -> None:
        texts = self.connection.texts(messages)
        if self.connection.query.batch:
            await self.socket.send_text(f"[{','.join(texts)}]")
            self.feed.sent(messages)
            return
        for text, message in zip(texts, messages, strict=True):
            await self.socket.send_text(text)
            self.feed.sent([message])

    async def receive(self) -> None:
        while (message := await self.socket.receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                raise Disconnect(NOT_TEXT, "messages are JSON texts")
            if len(text) > LARGEST_MESSAGE or len(text.encode()) > LARGEST_MESSAGE:
                raise Disconnect(TOO_LARGE, f"a message may have {LARGEST_MESSAGE:,} bytes at most")
            await self.received(text)

    async def received(self, text: str) -> None:
        try:
            given = msgspec.json.decode(text, type=FromClient)
        except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
            raise Disconnect(NOT_ALLOWED, f"the message does not fit: {error}") from None
        if given.subscribe is not None:
            await self.feed.change(given.subscribe, given.subscribe.checked(self.connection.caller))
        if given.ping is not None:
            self.feed.pong(given.ping)


def closing(error: Exception) -> Disconnect:
    """How an error ends a WebSocket."""
    match error:
        case Disconnect():
            return error
        case Stopping() | Closed():
            return Disconnect(RESTART, "the server stops")
        case TimeoutError():
            return Disconnect(NOT_ALLOWED, "the client takes no messages")
        case StoreBusy() | StoreUnavailable():
            return Disconnect(TRY_LATER, str(error))
        case HttpError():
            return Disconnect(TRY_LATER if error.problem.status == 503 else NOT_ALLOWED, str(error))
        case _:
            return Disconnect(NOT_ALLOWED, str(error))


EXPECTED = (Disconnect, Stopping, TimeoutError, HttpError, DibsError)


async def serve_socket(server: Any, broadcaster: Broadcaster, socket: WebSocket) -> None:
    """Accepted in any case: a browser is told why it was refused only after that."""
    try:
        await socket.accept(PROTOCOL if PROTOCOL in socket.scope.get("subprotocols", ()) else None)
        try:
            await Socket(socket, Connection(server, broadcaster, socket, SocketQuery)).run()
        except EXPECTED as error:
            reply = closing(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await socket.close(reply.code, reply.reason.encode()[:120].decode(errors="ignore"))
    except WebSocketDisconnect:
        return


class SentEvents(Response):
    """The answer to a request for Server-Sent Events, which ends when the client or the server does."""

    media_type = "text/event-stream"

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.feed = connection.feed
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(text: str, more: bool = True) -> None:
            async with asyncio.timeout(SEND_TIMEOUT):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        last = ""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await first_of(self.tell(write), is_gone(receive), self.connection.oversee())
            except (Stopping, Closed):
                last = f"retry: 1000\n{self.framed([self.feed.stopping()])}"
            except (HttpError, DibsError) as error:
                last = f": {error}\n\n"
            await write(last, more=False)
        except (TimeoutError, OSError):
            return  # it takes nothing, or is gone
        finally:
            self.feed.close()

    async def tell(self, write: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        await write("retry: 1000\n\n")
        while True:
            messages = await self.feed.next(KEEP_ALIVE)
            await write(self.framed(messages) if messages else self.kept_alive())
            self.feed.sent(messages)

    def framed(self, messages: list[Message]) -> str:
        framed = zip(messages, self.connection.texts(messages), strict=True)
        return "".join(f"{numbered(message.cursor)}data: {text}\n\n" for message, text in framed)

    def kept_alive(self) -> str:
        """A comment, with the cursor of now: a client whose events are rare resumes from there."""
        return f":\n{numbered(self.feed.current())}\n"


def numbered(cursor: str | None) -> str:
    return "" if cursor is None else f"id: {cursor}\n"


async def is_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def serve_sent(server: Any, broadcaster: Broadcaster, request: Request) -> Response:
    try:
        if server.stopping.is_set():
            raise HttpError(503, "stopping", "The server stops", "Try again later.", RETRY_AFTER)
        sent = SentEvents(Connection(server, broadcaster, request, EventsQuery))
        if request.method == "HEAD":
            return Response(media_type=SentEvents.media_type)
        await sent.feed.open()
    except HttpError as error:
        return problem_response(error.problem, error.headers)
    except DibsError as error:
        return problem_response(problem_of(error))
    return sent


def routes(server: Any) -> list[BaseRoute]:
    """The routes of a server, and the reader that they share."""
    broadcaster = server.broadcaster = Broadcaster(server.app.hub)

    async def socket_endpoint(socket: WebSocket) -> None:
        await serve_socket(server, broadcaster, socket)

    async def sent_endpoint(request: Request) -> Response:
        return await serve_sent(server, broadcaster, request)

    return [WebSocketRoute(SOCKET_PATH, socket_endpoint), Route(SENT_PATH, sent_endpoint, methods=["GET"])]
