"""`POST /api/v1/engine/{verb}`: the seam itself, for the HTTP engine of other processes."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from starlette.responses import Response

from dibs.engines.http.protocol import MEDIA_TYPE, PREFIX, VERBS, compressed
from dibs.server.checks import check_arguments
from dibs.server.guard import Guard
from dibs.server.http import Exchange, HttpError, Routes

__all__ = ["routes"]

routes = Routes("engine")


@routes.post(f"{PREFIX}{{verb}}", None, bytes, 404, 409, 413, 429, body=bytes)
async def call_engine(exchange: Exchange) -> Response:
    """Call a verb of the engine.

    For Dibs's own HTTP engine. Arguments and answers are MessagePack, in the form of Dibs's own values, which may
    change with its version.
    """
    verb = VERBS.get(exchange.path("verb"))
    if verb is None:
        raise HttpError(404, "unknown-verb", "No verb is called so", f"Verbs: {', '.join(VERBS)}.")
    exchange.caller.require(verb.scope)
    given = decoded(verb.decoder, exchange.body)
    check_arguments(verb.name, given)
    guard = cast(Guard, exchange.app.hub.engine)
    answer = msgspec.msgpack.encode(await guard.hub.runner.arun(guard.run(verb, given)))
    packed = compressed(answer) if "gzip" in exchange.request.headers.get("accept-encoding", "") else None
    headers = {} if packed is None else {"Content-Encoding": "gzip"}
    return Response(answer if packed is None else packed, 200, headers, MEDIA_TYPE)


def decoded(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise HttpError(422, "invalid-arguments", "The arguments do not fit", f"{error}.") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise HttpError(400, "malformed-body", "The body is not MessagePack", f"{error}."[:500]) from None
