"""The OpenAPI 3.1 document, made from the table of routes and the types of bodies and answers."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from textwrap import dedent
from types import MappingProxyType
from typing import Any, get_args

import msgspec
from msgspec import Struct, structs

from dibs.client.info import is_moment
from dibs.engines.http.problems import MEDIA_TYPE as PROBLEM_TYPE
from dibs.engines.http.problems import Problem
from dibs.engines.http.protocol import MEDIA_TYPE as WIRE_TYPE
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
    500: "The server failed, and has logged why",
    503: "The store is away, or the server is stopping: try again after Retry-After",
}
TEXT = {"type": "string", "minLength": 1}
NUMBER = {"schema": {"type": "integer"}}
RETRY = {"Retry-After": {"description": "Seconds after which to try again", **NUMBER}}
LIMITS: dict[str, Any] = {f"X-RateLimit-{name}": NUMBER for name in ("Limit", "Remaining", "Reset")}
HEADERS: dict[int, dict[str, Any]] = {
    401: {"headers": {"WWW-Authenticate": {"schema": {"type": "string"}}}},
    429: {"headers": {**RETRY, **LIMITS}},
    503: {"headers": RETRY},
}
EVERYWHERE = (400, 401, 403, 422, 429, 500, 503)
OLDER = ("older workers",)
WITH_BODY = (413, 415)
ABOUT = """
Tasks are submitted, followed and controlled here; workers in any language claim and report them here.

Every request needs `Authorization: Bearer TOKEN`, unless the server has no tokens and is called from its own machine.
A token has scopes: `produce` submits tasks, `consume` claims and reports them (and sees what it claims), `read` reads
everything but parameters, results and error messages, for which it needs `payloads` as well; `operate` reads and
changes tasks, queues, schedules and workers; `admin` may do all of it but see payloads. It may be limited to queues.

Errors are problem documents (RFC 9457): `type` is `about:blank#` and the kind of error, such as `unknown-task`,
`queue-full`, `lease-lost` or `invalid-option`. Every request may be repeated after a lost answer; submits need a
`task_id` or an idempotency key for that.

Events come from the WebSocket `/ws`, or as Server-Sent Events from `/api/v1/events`; both take `topic`, `queue`,
`task_type`, `task_id` and `cursor` as parameters.
"""


def openapi_document(
    routes: Sequence[Route], prefix: str = "", words: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The document; `prefix` is where the server is mounted, `words` say what tags are about."""
    types = kinds(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    for name, component in components.items():
        describe(component, documented(types).get(name, {}))
    paths: dict[str, dict[str, Any]] = {}
    names = Counter(route.operation for route in routes)
    for route in routes:
        name = route.operation if names[route.operation] == 1 else f"{route.method.lower()}_{route.operation}"
        paths.setdefault(route.path, {})[route.method.lower()] = {"operationId": name, **operation(route, by_type)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dibs", "version": __version__, "description": ABOUT.strip()},
        "servers": [{"url": prefix or "/"}],
        "security": [{"token": []}],
        "tags": [
            {"name": tag, "description": words.get(tag, "")} for tag in dict.fromkeys(route.tag for route in routes)
        ],
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
        "summary": route.summary,
        "tags": [route.tag],
        "responses": responses(route, schemas),
    }
    words = [route.description] if route.description else []
    if route.scope is not None:
        words.append(f"Scope: `{route.scope}`.")
    if words:
        made["description"] = "\n\n".join(words)
    if parameters := path_parameters(route) + query_parameters(route, schemas) + header_parameters(route):
        made["parameters"] = parameters
    if route.is_open:
        made["security"] = []
    if route.tag in OLDER:
        made["deprecated"] = True
    if route.body is not None:
        made["requestBody"] = {"required": is_required(route), "content": content(route.body, schemas)}
    return made


def is_required(route: Route) -> bool:
    fields = structs.fields(route.body) if hasattr(route.body, "__struct_fields__") else ()
    return route.body is bytes or any(field.required for field in fields)


def content(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if kind is bytes:
        return {WIRE_TYPE: {}}
    if kind is str:
        return {"text/plain": {"schema": TEXT}}
    return {JSON: {"schema": schemas[repr(kind)]}}


def path_parameters(route: Route) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in names]


def header_parameters(route: Route) -> list[dict[str, Any]]:
    if route.operation != "submit_task":
        return []
    about = "The task's `idempotency_key`, for clients that send it with every request."
    return [{"name": "Idempotency-Key", "in": "header", "required": False, "schema": TEXT, "description": about}]


def query_parameters(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    made, docs = [], field_docs(route.query)
    for field in structs.fields(route.query):
        schema = dict(if_present(schemas[repr(field.type)]))
        if not field.required and field.default not in (None, (), msgspec.NODEFAULT):
            schema["default"] = msgspec.to_builtins(field.default)
        made.append({"name": field.encode_name, "in": "query", "required": field.required, "schema": schema})
        if field.name in docs:
            made[-1]["description"] = docs[field.name]
        if is_moment(field.name) or field.name in ("start", "end", "since", "created_after", "created_before"):
            schema["format"] = "date-time"
    return made


def if_present(schema: dict[str, Any]) -> dict[str, Any]:
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
        made.setdefault(str(status), {"description": TITLES[status], "content": problem, **HEADERS.get(status, {})})
    return made


# Words.


def documented(types: Sequence[Any]) -> dict[str, dict[str, str]]:
    """By the name of a struct, what its source says of its fields."""
    found: dict[str, dict[str, str]] = {}
    stack, seen = list(types), set[str]()
    while stack:
        kind = stack.pop()
        stack += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, Struct) and kind.__name__ not in seen:
            seen.add(kind.__name__)
            found[kind.__name__] = field_docs(kind)
            stack += [field.type for field in structs.fields(kind)]
    return found


@cache
def field_docs(kind: type[Struct]) -> dict[str, str]:
    """The texts below the fields of a struct, which Python forgets."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        try:
            (tree,) = ast.parse(dedent(inspect.getsource(each))).body
        except (OSError, TypeError, ValueError, SyntaxError):
            continue  # it was made, not written
        if isinstance(tree, ast.ClassDef):
            for field, text in pairwise(tree.body):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (words := text_of(text)):
                    found[field.target.id] = words
    return found


def text_of(node: ast.stmt) -> str:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return " ".join(node.value.value.split()) if is_text else ""  # type: ignore[attr-defined]


def describe(component: dict[str, Any], docs: Mapping[str, str]) -> None:
    """Add what msgspec does not know: texts of fields, and the form of times."""
    if "description" in component:
        component["description"] = inspect.cleandoc(component["description"])
    if "enum" in component:
        component["type"] = "string"
    for name, schema in component.get("properties", {}).items():
        if name in docs and "$ref" not in schema:
            schema["description"] = docs[name]
        if is_moment(name):
            for each in (schema, *schema.get("anyOf", ())):
                if each.get("type") == "string":
                    each["format"] = "date-time"
