"""One server: its app, who may call it, and the ASGI application that answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as HttpRoute
from starlette.routing import Router as Others
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send

from dibs.client.app import Dibs
from dibs.engines.http.problems import problem_of
from dibs.errors import DibsError, StoreUnavailable
from dibs.exporters.names import Names
from dibs.exporters.store_figures import StoreFigures
from dibs.runtime.environment import worker_name
from dibs.server import engine_calls, events, wake
from dibs.server.caller import ANYONE, Caller, caller_of
from dibs.server.depths import Depths
from dibs.server.gate import Buckets, Gate
from dibs.server.guard import Owners, guarded_hub
from dibs.server.http import (
    JSON,
    Answered,
    Budget,
    Exchange,
    HttpError,
    Route,
    decode_json,
    problem_response,
    read_body,
    read_query,
)
from dibs.server.openapi import openapi_document
from dibs.server.poll_queue import PollQueue
from dibs.server.readiness import Readiness
from dibs.server.registrations import Registrations
from dibs.server.request_figures import RequestFigures
from dibs.server.router import Router
from dibs.server.routes import (
    bulk,
    consuming,
    dead,
    figures,
    older,
    queues,
    schedules,
    store,
    tasks,
    workers,
    workflows,
)
from dibs.server.settings import ANY_HOST, ServerSettings, is_loopback
from dibs.server.tokens import TokenFile
from dibs.worker.caretaker import Caretaker

__all__ = ["DOCUMENTED", "OPEN", "ROUTES", "Server"]

log = logging.getLogger("dibs.server")

ROUTES: tuple[Route, ...] = (
    *tasks.routes.table,
    *bulk.routes.table,
    *queues.routes.table,
    *dead.routes.table,
    *workflows.routes.table,
    *schedules.routes.table,
    *workers.routes.table,
    *consuming.routes.table,
    *older.routes.table,
    *figures.routes.table,
    *store.routes.table,
    *engine_calls.routes.table,
)
OPEN: tuple[Route, ...] = tuple(store.open_routes.table)
"""Answered without a token."""

WORDS = {"worker protocol": consuming.routes.words, "older workers": older.routes.words}
"""What tags of the document are about."""
DOCUMENTED = (*(route for route in ROUTES if route.body is not bytes), *OPEN)
"""What is for everyone: the form of engine calls is Dibs's own."""

PAGE = Path(__file__).parent / "docs.html"
PAGE_POLICY = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'"
MOST_VIEWS = 1000
MOST_BODIES = 256 * 1024 * 1024
"""Bytes of bodies that are not complete yet."""
PATIENCE = 15.0
"""Seconds that a request may take besides what it waits for on purpose: then the store counts as away."""
REALM = {"WWW-Authenticate": 'Bearer realm="dibs"'}
WRONG_TOKENS_PER_SECOND = 10.0
"""How often one client may try a token that is not known."""


class Server:
    """Answers requests about one app. An ASGI application: run it, or mount it in another.

    ``async with server:`` lets it take part in leadership and chores, as `dibs serve` does.
    """

    def __init__(self, app: Dibs, settings: ServerSettings | None = None) -> None:
        self.app = app
        self.settings = settings or ServerSettings()
        self.tokens = None if self.settings.tokens is None else TokenFile(self.settings.tokens)
        self.owners = Owners()
        self.stopping = asyncio.Event()
        self.readiness = Readiness(app.hub, self.stopping)
        self.registrations = Registrations(app.hub)
        self.depths = Depths(app.hub)
        self.poll_queue = PollQueue()
        self.budget = Budget(max(MOST_BODIES, 2 * self.settings.most_body))
        self.breaker = app.hub.breaker
        self.breaker.hold_requests()
        self.store_figures = StoreFigures(app.hub)
        self.request_figures = RequestFigures()
        self.names = Names()
        self.buckets = Buckets()
        self._views: OrderedDict[Caller, Dibs] = OrderedDict()
        pages = [
            HttpRoute("/", self._home),
            HttpRoute("/openapi.json", self._openapi),
            HttpRoute("/docs", self._docs),
        ]
        sockets = [WebSocketRoute(wake.PATH, wake.endpoint(self)), *events.routes(self)]
        others = Others([*pages, *sockets], default=no_such_path)
        self._asgi = Gate(Router((*ROUTES, *OPEN), self._respond, others), self.settings)
        self._resources = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._asgi(scope, receive, send)

    async def __aenter__(self) -> Self:
        if self.settings.keeps:
            runner, caretaker = self.app.hub.runner, Caretaker(self.app.hub, f"server-{worker_name()}")
            await runner.arun(begun(caretaker))
            self._resources.push_async_callback(lambda: runner.arun(caretaker.stop()))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        await self._resources.aclose()

    # Who calls.

    def caller(self, connection: HTTPConnection) -> Caller:
        """Who calls, by the token; without tokens, anybody on this machine."""
        if self.tokens is None:
            return self._anyone(connection)
        kind, _, secret = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise HttpError(401, "token-missing", "A token is needed", "Send Authorization: Bearer TOKEN.", REALM)
        return self.caller_of_secret(secret.strip(), connection)

    def _anyone(self, connection: HTTPConnection) -> Caller:
        """Without tokens only this machine is served, also by a server that is mounted in another application.

        Unless that says, with the host `*`, that it decides itself who may call.
        """
        client = connection.client
        if client is None or is_loopback(client.host) or ANY_HOST in self.settings.hosts:
            return ANYONE
        raise HttpError(403, "tokens-missing", "This server has no tokens", "It serves its own machine only.")

    def caller_of_secret(self, secret: str, connection: HTTPConnection) -> Caller:
        """The caller that holds a token."""
        if self.tokens is None:
            return self._anyone(connection)
        token = self.tokens.find(secret)
        if token is not None:
            return caller_of(token)
        self.buckets.take(f"wrong {address_of(connection)}", WRONG_TOKENS_PER_SECOND)
        raise HttpError(
            401, "token-unknown", "The token is not known", "It is mistyped, was revoked, or has expired.", REALM
        )

    def view(self, caller: Caller) -> Dibs:
        """The app as a caller may use it."""
        found = self._views.get(caller)
        if found is None:
            found = self._views[caller] = self.app._on(guarded_hub(self.app.hub, caller, self.owners))
            while len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
        return found

    # How requests are answered.

    async def _respond(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        request, response, began = Request(scope, receive, send), None, time.perf_counter()
        try:
            exchange = await (self._open_exchange if route.is_open else self._exchange)(route, request)
            response = self._answer(route, exchange, await self._handled(route, exchange))
        except HttpError as error:
            response = problem_response(error.problem, error.headers)
        except (DibsError, TimeoutError) as error:
            response = self._refused(error)
        except ClientDisconnect:
            return  # in the middle of its request: there is nobody to answer
        except Exception:  # a bug: the log has it, the client does not
            log.exception("%s %s failed.", scope["method"], route.path)
            response = problem_response(HttpError(500, "broken", "The server failed", "It has been logged.").problem)
        self.request_figures.record(route.path, route.method, response.status_code, time.perf_counter() - began)
        if scope["method"] == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _handled(self, route: Route, exchange: Exchange) -> Any:
        if route.is_open or not route.asks_store:
            return await route.handler(exchange)
        with self.breaker.asking():
            async with asyncio.timeout(PATIENCE + route.waits):
                return await route.handler(exchange)

    async def _exchange(self, route: Route, request: Request) -> Exchange:
        caller = self.caller(request)
        headers = self._limited(caller, request)
        caller.require(route.scope)
        exchange = Exchange(self, request, caller, self.view(caller))
        exchange.headers.update(headers)
        exchange.query = read_query(request, route.query)
        if route.body is not None:
            body = await read_body(request, self.settings.most_body, self.budget)
            exchange.body = body if route.body is bytes else decode_json(body, route.body)
        return exchange

    async def _open_exchange(self, route: Route, request: Request) -> Exchange:
        return Exchange(self, request, ANYONE, self.app)

    def _limited(self, caller: Caller, request: Request) -> dict[str, str]:
        rate = caller.rate or self.settings.rate
        return {} if rate is None else dict(self.buckets.take(caller.name or address_of(request), rate))

    def _refused(self, error: DibsError | TimeoutError) -> Response:
        if isinstance(error, TimeoutError):
            error = StoreUnavailable("the store did not answer in time.")
        return problem_response(problem_of(error))

    def _answer(self, route: Route, exchange: Exchange, answer: Any) -> Response:
        if isinstance(answer, Response):
            return answer
        status, value = (answer.status, answer.value) if isinstance(answer, Answered) else (route.status, answer)
        body = b"" if status == 204 else msgspec.json.encode(value)
        return Response(body, status, exchange.headers, None if status == 204 else JSON)

    # About itself.

    @cached_property
    def _page(self) -> bytes:
        return PAGE.read_bytes()

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/docs")

    async def _openapi(self, request: Request) -> Response:
        document = openapi_document(DOCUMENTED, request.scope.get("root_path", ""), WORDS)
        return Response(msgspec.json.encode(document), media_type=JSON)

    async def _docs(self, request: Request) -> Response:
        return Response(self._page, headers={"Content-Security-Policy": PAGE_POLICY}, media_type="text/html")


async def begun(caretaker: Caretaker) -> None:
    caretaker.start()


def address_of(connection: HTTPConnection) -> str:
    return "?" if connection.client is None else connection.client.host


async def no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": "no such path"})
        return
    error = HttpError(404, "no-such-path", "There is no such path", "See /docs for those that there are.")
    await problem_response(error.problem)(scope, receive, send)
