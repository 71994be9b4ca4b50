"""The verbs that go over HTTP, made from the type hints of the seam: what each takes, what it answers, its scope.

A verb is `POST /api/v1/engine/{verb}`. Arguments and answers are MessagePack, because payloads are bytes. `now` is not
among the arguments: a store behind a server has that server's clock.
"""

from __future__ import annotations

import gzip
import inspect
import zlib
from enum import StrEnum
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from dibs.engines.base import Caring, Consuming, Engine, Operating, Producing, Viewing

__all__ = ["COMPRESS_OVER", "MEDIA_TYPE", "PREFIX", "VERBS", "WAKE", "Scope", "Verb", "compressed", "decompressed"]

PREFIX = "/api/v1/engine/"
WAKE = "/api/v1/engine/wake"
"""The path of the WebSocket that tells what subscriptions are woken by."""
MEDIA_TYPE = "application/msgpack"
COMPRESS_OVER = 16 * 1024
"""Bytes of a body from which on it is compressed."""


class Scope(StrEnum):
    """What a token may do: the protocols of the seam, and two rights beside them."""

    PRODUCE = "produce"
    CONSUME = "consume"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"
    PAYLOADS = "payloads"


PROTOCOLS = {
    Producing: Scope.PRODUCE,
    Consuming: Scope.CONSUME,
    Viewing: Scope.READ,
    Operating: Scope.OPERATE,
    Caring: Scope.ADMIN,
}
LOCAL = frozenset({"backup", "migrations"})
"""Verbs about the files and the layout of a store: they run where it is."""


class Verb(Struct, frozen=True):
    """One verb on the wire. `scope` is None if any caller may ask."""

    name: str
    scope: Scope | None
    arguments: type[Struct]
    decoder: msgspec.msgpack.Decoder[Any]
    """Of the arguments, on the side of the server."""
    answers: msgspec.msgpack.Decoder[Any]
    """Of the answer, on the side of the client."""

    @property
    def path(self) -> str:
        return PREFIX + self.name


def make_verb(name: str, scope: Scope | None) -> Verb:
    function = getattr(Engine, name)
    hints = get_type_hints(function)
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "now"):
            continue
        required = parameter.default is inspect.Parameter.empty
        field = (parameter.name, hints[parameter.name])
        fields.append(field if required else (*field, parameter.default))
    fields.sort(key=len)  # required ones first; those with defaults are given by name
    arguments = msgspec.defstruct(
        f"{name}_arguments", fields, frozen=True, omit_defaults=True, forbid_unknown_fields=True
    )
    decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(arguments)
    return Verb(name, scope, arguments, decoder, msgspec.msgpack.Decoder(hints["return"]))


def make_verbs() -> dict[str, Verb]:
    scopes: dict[str, Scope | None] = {"about": None}
    for protocol, scope in PROTOCOLS.items():
        for name, member in vars(protocol).items():
            if inspect.iscoroutinefunction(member) and name not in LOCAL:
                scopes[name] = scope
    return {name: make_verb(name, scope) for name, scope in scopes.items()}


VERBS = make_verbs()


def compressed(body: bytes) -> bytes | None:
    """A large body in gzip's form; None if it is not worth it."""
    return gzip.compress(body, 1) if len(body) > COMPRESS_OVER else None


def decompressed(body: bytes, most: int) -> bytes | None:
    """A body out of gzip's form; None if it would be larger than `most` bytes. Raises `zlib.error` if it is broken."""
    inflater = zlib.decompressobj(wbits=31)
    plain = inflater.decompress(body, most + 1)
    if len(plain) > most or inflater.unconsumed_tail:
        return None
    if not inflater.eof:
        raise zlib.error("the body ends in the middle")
    return plain
