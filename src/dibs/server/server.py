"""One server: its app, who may call it, and the ASGI application that answers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from dibs.client.app import Dibs
from dibs.engines.http.problems import problem_of
from dibs.errors import DibsError
from dibs.server.caller import ANYONE, Caller, caller_of
from dibs.server.guard import Owners, guarded_hub
from dibs.server.http import JSON, Answered, Exchange, HttpError, Nothing, Route, decode_json, problem_response
from dibs.server.http import read_body, read_query
from dibs.server.settings import ServerSettings
from dibs.server.tokens import TokenFile

__all__ = ["Server"]

log = logging.getLogger("dibs.server")

MOST_VIEWS = 1000
REALM = {"WWW-Authenticate": 'Bearer realm="dibs"'}


class Server:
    """Answers requests about one app. An ASGI application: run it, or mount it in another."""

    def __init__(self, app: Dibs, settings: ServerSettings = ServerSettings()) -> None:
        self.app = app
        self.settings = settings
        self.tokens = None if settings.tokens is None else TokenFile(settings.tokens)
        self.owners = Owners()
        self.stopping = asyncio.Event()
        self._views: OrderedDict[Caller, Dibs] = OrderedDict()
        self._asgi = self._made()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._asgi(scope, receive, send)

    # Who calls.

    def caller(self, connection: HTTPConnection) -> Caller:
        """Who calls, by the token; without tokens, anybody on this machine."""
        if self.tokens is None:
            return ANYONE
        kind, _, secret = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise HttpError(401, "token-missing", "A token is needed", "Send Authorization: Bearer TOKEN.", REALM)
        token = self.tokens.find(secret.strip())
        if token is None:
            raise HttpError(401, "token-unknown", "The token is not known", "It was revoked or has expired.", REALM)
        return caller_of(token)

    def view(self, caller: Caller) -> Dibs:
        """The app as a caller may use it."""
        found = self._views.get(caller)
        if found is None:
            found = self._views[caller] = self.app.on(guarded_hub(self.app.hub, caller, self.owners))
            while len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
        return found

    # How requests are answered.

    def _made(self) -> ASGIApp:
        return Starlette(routes=self._routes())

    def _routes(self) -> list[BaseRoute]:
        from dibs.server import engine_calls, wake

        made: list[BaseRoute] = [self._route(route) for route in engine_calls.ROUTES]
        made.append(WebSocketRoute(wake.PATH, wake.endpoint(self)))
        return made

    def _route(self, route: Route) -> HttpRoute:
        async def respond(request: Request) -> Response:
            return await self._respond(route, request)

        return HttpRoute(route.path, respond, methods=[route.method])

    async def _respond(self, route: Route, request: Request) -> Response:
        try:
            exchange = await self._exchange(route, request)
            answer = await route.handler(exchange)
        except HttpError as error:
            return problem_response(error.problem, error.headers)
        except DibsError as error:
            return problem_response(problem_of(error))
        return self._answer(route, exchange, answer)

    async def _exchange(self, route: Route, request: Request) -> Exchange:
        caller = self.caller(request)
        caller.require(route.scope)
        exchange = Exchange(self, request, caller, self.view(caller))
        if route.query is not Nothing or request.scope["query_string"]:
            exchange.query = read_query(request, route.query)
        if route.body is not None:
            body = await read_body(request, self.settings.most_body)
            exchange.body = body if route.body is bytes else decode_json(body, route.body)
        return exchange

    def _answer(self, route: Route, exchange: Exchange, answer: Any) -> Response:
        if isinstance(answer, Response):
            return answer
        status, value = (answer.status, answer.value) if isinstance(answer, Answered) else (route.status, answer)
        body = b"" if status == 204 else msgspec.json.encode(value)
        return Response(body, status, exchange.headers, None if status == 204 else JSON)


def routes_of(*groups: Sequence[Route]) -> list[Route]:
    return [route for group in groups for route in group]
