"""Requests and answers: what a route is, what its handler gets, and how both become HTTP and OpenAPI."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from inspect import cleandoc
from typing import Any, get_origin

import msgspec
from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from dibs.client.app import Dibs
from dibs.engines.http.problems import MEDIA_TYPE as PROBLEM_TYPE
from dibs.engines.http.problems import Problem
from dibs.engines.http.protocol import Scope, decompressed
from dibs.errors import DibsError
from dibs.server.caller import Caller

__all__ = [
    "JSON",
    "Answered",
    "Budget",
    "Exchange",
    "HttpError",
    "Route",
    "Routes",
    "decode_json",
    "problem_response",
    "read_body",
    "read_query",
]

JSON = "application/json"
TEXTS = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(\s*+:)?+', re.DOTALL)
"""Every text of a document, and whether it is a key. None is left out, so that the search never begins inside one."""


LARGE = 2000
BODY_SECONDS = 60.0
"""How long a client may take to send a body."""
RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class HttpError(Exception):
    """A request that is wrong as HTTP: it never reached the queue."""

    def __init__(
        self, status: int, slug: str, title: str, detail: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail or title)
        self.problem = Problem(type=f"about:blank#{slug}", title=title, status=status, detail=detail)
        self.headers = dict(headers or {})


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters."""


class Exchange:
    """One request, and what its handler needs."""

    __slots__ = ("app", "body", "caller", "headers", "query", "request", "server")

    def __init__(self, server: Any, request: Request, caller: Caller, app: Dibs) -> None:
        self.server = server
        self.request = request
        self.caller = caller
        self.app = app
        self.body: Any = None
        self.query: Any = Nothing()
        self.headers: dict[str, str] = {}
        """Of the answer."""

    def path(self, name: str) -> str:
        found: str = self.request.path_params[name]
        return found


class Answered(Struct, frozen=True):
    """An answer with another status than the route's."""

    status: int
    value: Any


Handler = Callable[[Exchange], Awaitable[Any]]
Decorator = Callable[[Handler], Handler]


class Route(Struct, frozen=True, kw_only=True):
    """One route: everything that the server does with it and that the OpenAPI document says of it."""

    method: str
    path: str
    handler: Handler
    scope: Scope | None
    tag: str
    answer: Any = None
    status: int = 200
    body: Any = None
    query: type[Struct] = Nothing
    refusals: tuple[int, ...] = ()
    """Statuses of problems besides those of every route."""
    others: tuple[int, ...] = ()
    """Other statuses with the same answer."""
    is_open: bool = False
    """Whether it is answered without a token."""
    asks_store: bool = True
    """Whether it fails while the store is away."""
    waits: float = 0.0
    """Seconds for which it may wait on purpose."""

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").strip().split("\n")[0].removesuffix(".")

    @property
    def description(self) -> str:
        return "\n".join(line.strip() for line in (self.handler.__doc__ or "").strip().split("\n")[1:]).strip()

    @property
    def operation(self) -> str:
        return self.handler.__name__


class Routes:
    """A table of routes about one kind of thing, filled by decorators: ``@routes.get(path, scope, answer, 404)``."""

    def __init__(self, tag: str, words: str = "") -> None:
        self.tag = tag
        self.words = cleandoc(words)
        self.table: list[Route] = []

    def add(
        self,
        method: str,
        path: str,
        scope: Scope | None,
        answer: Any,
        *refusals: int,
        body: Any = None,
        query: type[Struct] = Nothing,
        status: int = 200,
        others: tuple[int, ...] = (),
        is_open: bool = False,
        asks_store: bool = True,
        waits: float = 0.0,
    ) -> Callable[[Handler], Handler]:
        def decorate(handler: Handler) -> Handler:
            self.table.append(
                Route(
                    method=method,
                    path=path,
                    handler=handler,
                    scope=scope,
                    tag=self.tag,
                    answer=answer,
                    status=status,
                    body=body,
                    query=query,
                    refusals=refusals,
                    others=others,
                    is_open=is_open,
                    asks_store=asks_store,
                    waits=waits,
                )
            )
            return handler

        return decorate

    def get(self, path: str, scope: Scope | None, answer: Any, *refusals: int, **more: Any) -> Decorator:
        return self.add("GET", path, scope, answer, *refusals, **more)

    def post(self, path: str, scope: Scope | None, answer: Any, *refusals: int, **more: Any) -> Decorator:
        return self.add("POST", path, scope, answer, *refusals, **more)

    def put(self, path: str, scope: Scope | None, answer: Any, *refusals: int, **more: Any) -> Decorator:
        return self.add("PUT", path, scope, answer, *refusals, **more)

    def patch(self, path: str, scope: Scope | None, answer: Any, *refusals: int, **more: Any) -> Decorator:
        return self.add("PATCH", path, scope, answer, *refusals, **more)

    def delete(self, path: str, scope: Scope | None, answer: Any, *refusals: int, **more: Any) -> Decorator:
        return self.add("DELETE", path, scope, answer, *refusals, **more)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    given = dict(headers or {})
    if problem.retry_after is not None:
        given["Retry-After"] = str(max(1, round(problem.retry_after + 0.499)))
    return Response(msgspec.json.encode(problem), problem.status, given, PROBLEM_TYPE)


class Budget:
    """Memory for bodies that are not complete yet, of all requests together."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> None:
        if size > self._left:
            raise HttpError(503, "too-many-bodies", "Too many large requests at once", headers={"Retry-After": "1"})
        self._left -= size

    def give_back(self, size: int) -> None:
        self._left += size


async def read_body(request: Request, most: int, budget: Budget) -> bytes:
    """The body, unpacked. Nothing larger is ever held in memory, and no client may take for ever to send it."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await whole_body(request, most, budget)
    except TimeoutError:
        raise HttpError(408, "body-too-slow", "The body did not come to its end in time") from None
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise HttpError(415, "unknown-encoding", "Unknown content encoding", "Send the body as it is, or as gzip.")
    try:
        plain = decompressed(body, most)
    except zlib.error as error:
        raise HttpError(400, "broken-gzip", "The body is not gzip", f"{error}.") from None
    if plain is None:
        raise too_large(most)
    return plain


async def whole_body(request: Request, most: int, budget: Budget) -> bytes:
    length = request.headers.get("content-length")
    if length is not None and length.isdigit() and int(length) > most:
        raise too_large(most)
    parts, size = [], 0
    try:
        async for part in request.stream():
            if size + len(part) > most:
                raise too_large(most)
            budget.take(len(part))
            size += len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        budget.give_back(size)


def too_large(most: int) -> HttpError:
    return HttpError(413, "body-too-large", "The body is too large", f"A body may have {most:,} bytes at most.")


def decode_json(body: bytes, kind: Any) -> Any:
    """A JSON document of a kind. Wrong syntax is a 400, wrong content a 422."""
    if not body:
        body = b"{}"
    try:
        check_keys(body)
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise HttpError(422, "invalid-body", "The body does not fit", f"{error}.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        if isinstance(error, DibsError):
            raise
        raise HttpError(400, "malformed-json", "The body is not JSON", f"{error}."[:500]) from None


def check_keys(body: bytes) -> None:
    """No object has a key twice: two readers of the document would see different things.

    Looking for keys is fast, and mostly none is there twice. If one is, mostly in different objects, as in a list of
    tasks: then the parts of the document are looked at one by one.
    """
    if not are_unique(body):
        json.loads(body, object_pairs_hook=unique)


def are_unique(body: bytes) -> bool:
    """Whether it is sure that no key is there twice."""
    if len(body) > LARGE and len(msgspec.json.encode(msgspec.json.decode(body))) == len(body):
        return True  # it was written without spaces: what is read of it is all that is there
    keys = keys_of(body)
    if any(b"\\" in key for key in keys):
        return False  # it may be written in two ways
    if len(keys) == len(set(keys)):
        return True
    if not body.lstrip().startswith(b"{"):
        return False
    parts = [bytes(part) for part in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).values()]
    items = [bytes(item) for part in parts if part.startswith(b"[") for item in RAW_ITEMS.decode(part)]
    objects = [part for part in parts if part.startswith(b"{")]
    inside = sum(len(keys_of(part)) for part in parts)
    return len(keys) == inside + len(parts) and all(
        len(found) == len(set(found)) for found in map(keys_of, (*items, *objects))
    )


def keys_of(body: bytes) -> list[bytes]:
    return [text for text, colon in TEXTS.findall(body) if colon]


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {json.dumps(name[:100])} is there twice")
        found[name] = value
    return found


def read_query(request: Request, kind: type[Struct]) -> Any:
    """Query parameters as a struct; those of a tuple may be repeated."""
    if not request.scope["query_string"] and (none := empty(kind)) is not None:
        return none
    given: dict[str, Any] = {}
    several = repeatable(kind)
    for name, value in request.query_params.multi_items():
        if name in several:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise HttpError(422, "invalid-query", "A query parameter is there twice", f"{name} can't be repeated.")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HttpError(422, "invalid-query", "A query parameter does not fit", f"{error}.") from None


@cache
def empty(kind: type[Struct]) -> Any:
    """What a query without parameters is, unless some are required."""
    return None if any(field.required for field in structs.fields(kind)) else kind()


@cache
def repeatable(kind: type[Struct]) -> frozenset[str]:
    """The parameters that take several values."""
    return frozenset(field.name for field in structs.fields(kind) if get_origin(field.type) is tuple)
