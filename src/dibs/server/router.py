"""From a path and a method to the route that answers: literal paths by one look-up, others by their segments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from dibs.server.http import HttpError, Route, problem_response

__all__ = ["Router", "route_path"]

Respond = Callable[[Route, Scope, Receive, Send], Awaitable[None]]


class Router:
    """Answers with `respond`; paths that no route has go to `others`."""

    def __init__(self, routes: tuple[Route, ...], respond: Respond, others: ASGIApp) -> None:
        self._respond = respond
        self._others = others
        self._literal: dict[str, dict[str, Route]] = {}
        self._patterns: dict[int, list[tuple[list[str], dict[str, Route]]]] = {}
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        methods = {route.method: route} | ({"HEAD": route} if route.method == "GET" else {})
        if "{" not in route.path:
            self._literal.setdefault(route.path, {}).update(methods)
            return
        parts = route.path.split("/")
        same_length = self._patterns.setdefault(len(parts), [])
        for known, there in same_length:
            if known == parts:
                there.update(methods)
                return
        same_length.append((parts, dict(methods)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        methods, found = self._find(scope)
        if methods is None:
            await self._others(scope, receive, send)
            return
        route = methods.get(scope["method"])
        if route is None:
            error = HttpError(405, "method-not-allowed", "Method not allowed", headers={"Allow": ", ".join(methods)})
            await problem_response(error.problem, error.headers)(scope, receive, send)
            return
        scope["path_params"] = found
        await self._respond(route, scope, receive, send)

    def _find(self, scope: Scope) -> tuple[dict[str, Route] | None, dict[str, Any]]:
        """The methods of a path, and what its variable parts are. A slash in one of these comes as %2F."""
        path = route_path(scope)
        methods = self._literal.get(path)
        if methods is not None:
            return methods, {}
        raw: bytes = scope.get("raw_path") or b""
        is_raw = b"%2f" in raw.lower()
        parts = (raw.decode("latin-1").removeprefix(scope.get("root_path", "")) if is_raw else path).split("/")
        for pattern, there in self._patterns.get(len(parts), ()):
            if fits(pattern, parts):
                names = [(name[1:-1], part) for name, part in zip(pattern, parts, strict=True) if name[:1] == "{"]
                return there, {name: unquote(part) if is_raw else part for name, part in names}
        return None, {}


def route_path(scope: Scope) -> str:
    """The path below the place where the server is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path


def fits(pattern: list[str], parts: list[str]) -> bool:
    return all(
        part == wanted or (wanted[:1] == "{" and part != "") for wanted, part in zip(pattern, parts, strict=True)
    )
