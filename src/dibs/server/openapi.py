"""The OpenAPI 3.1 document, made from the table of routes and the types of bodies and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from dibs.engines.http.problems import MEDIA_TYPE as PROBLEM_TYPE
from dibs.engines.http.problems import Problem
from dibs.engines.http.wire import MEDIA_TYPE as WIRE_TYPE
from dibs.server.http import JSON, Route
from dibs.version import __version__

__all__ = ["openapi_document"]

TITLES = {
    400: "The request is malformed",
    401: "A token is needed, or it is not known",
    403: "The token, the origin or the host is not allowed",
    404: "There is no such thing",
    409: "It is not in a state that allows this, or the lease is lost",
    413: "The body or the payload is too large",
    415: "The body is encoded in an unknown way",
    422: "A value does not fit",
    429: "Too fast: try again after Retry-After",
    503: "The store is away, or the server is stopping: try again after Retry-After",
}
EVERYWHERE = (400, 401, 403, 422, 429, 503)
WITH_BODY = (413, 415)
ABOUT = """
Tasks are submitted, followed and controlled here; workers in any language claim and report them here.

Every request needs `Authorization: Bearer TOKEN`, unless the server has no tokens and is called from its own machine.
Errors are problem documents (RFC 9457). Events come from `/ws` (WebSocket) or `/api/v1/events` (Server-Sent Events).
"""


def openapi_document(routes: Sequence[Route], prefix: str = "") -> dict[str, Any]:
    """The document; `prefix` is where the server is mounted."""
    types = kinds(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dibs", "version": __version__, "description": ABOUT.strip()},
        "servers": [{"url": prefix or "/"}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def kinds(routes: Sequence[Route]) -> list[Any]:
    """Every type of a body, an answer or a query parameter, once."""
    found: dict[str, Any] = {repr(Problem): Problem}
    for route in routes:
        for kind in (route.body, route.answer, *(field.type for field in structs.fields(route.query))):
            if kind is not None and kind is not bytes:
                found[repr(kind)] = kind
    return list(found.values())


def operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "responses": responses(route, schemas),
    }
    words = [route.description] if route.description else []
    if route.scope is not None:
        words.append(f"Scope: `{route.scope}`.")
    if words:
        made["description"] = "\n\n".join(words)
    if parameters := path_parameters(route) + query_parameters(route, schemas):
        made["parameters"] = parameters
    if route.body is not None:
        made["requestBody"] = {"required": is_required(route), "content": content(route.body, schemas)}
    return made


def operation_id(route: Route) -> str:
    """A handler that serves two routes has two names."""
    return route.operation if route.method != "DELETE" else f"delete_{route.operation}"


def is_required(route: Route) -> bool:
    fields = structs.fields(route.body) if hasattr(route.body, "__struct_fields__") else ()
    return route.body is bytes or any(field.required for field in fields)


def content(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if kind is bytes:
        return {WIRE_TYPE: {}}
    return {JSON: {"schema": schemas[repr(kind)]}}


def path_parameters(route: Route) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    text = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": text} for name in names]


def query_parameters(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    made = []
    for field in structs.fields(route.query):
        schema = dict(given(schemas[repr(field.type)]))
        if not field.required and field.default not in (None, (), msgspec.NODEFAULT):
            schema["default"] = msgspec.to_builtins(field.default)
        made.append({"name": field.encode_name, "in": "query", "required": field.required, "schema": schema})
    return made


def given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter that is there: null is what it is when it is left out."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not kinds:
        return schema
    return dict(kinds[0]) if len(kinds) == 1 else {**schema, "anyOf": kinds}


def responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for status in (route.status, *route.others):
        made[str(status)] = {"description": route.summary}
        if route.answer is not None:
            made[str(status)]["content"] = content(route.answer, schemas)
    problem = {PROBLEM_TYPE: {"schema": schemas[repr(Problem)]}}
    for status in sorted({*EVERYWHERE, *route.refusals, *(WITH_BODY if route.body is not None else ())}):
        made.setdefault(str(status), {"description": TITLES[status], "content": problem})
    return made
