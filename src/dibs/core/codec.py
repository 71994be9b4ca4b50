"""Arguments and results as JSON, decoded by the task's own annotations. Never pickle.

A payload codec (compression, encryption) wraps the JSON in an envelope that is itself JSON and names the codec, so
payloads travel through every engine alike and old ones stay readable while a codec is being rolled out.

The size of a payload doesn't matter here: `dibs.runtime.payloads` decides where it is kept.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import isfinite
from typing import Any, Protocol, get_origin, get_type_hints, runtime_checkable

import msgspec

from dibs.core.humanize import with_article
from dibs.core.options import brief, check_items, check_name, shown
from dibs.core.results import TAKE, Placeholder, PlaceholderMet, Take
from dibs.errors import InvalidArguments, InvalidOption, WrongResult

__all__ = ["ENVELOPE", "REDACTED", "Codec", "PayloadCodec", "Signature", "as_json", "fingerprint"]

NOTHING = type(None)
ENVELOPE = b'{"$dibs":'
REDACTED = b'{"$redacted":true}'
"""What a server gives instead of a payload that its caller may not see."""
RESERVED = ("plain", "blob")
"""Names in envelopes that Dibs uses itself; `blob` is that of `dibs.core.reference`."""


@runtime_checkable
class PayloadCodec(Protocol):
    """Turns payload bytes into others and back. `name` is stored with each payload."""

    @property
    def name(self) -> str: ...
    def encode(self, payload: bytes, /) -> bytes: ...
    def decode(self, payload: bytes, /) -> bytes: ...


class Plain:
    """Wraps payloads that would be mistaken for an envelope."""

    name = "plain"

    def encode(self, payload: bytes) -> bytes:
        return payload

    def decode(self, payload: bytes) -> bytes:
        return payload


def to_builtin(value: Any) -> Any:
    """Encodes what msgspec does not know: pydantic models, and anything else with a `model_dump`."""
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return dump(value, mode="json")
    if isinstance(value, Placeholder):
        raise PlaceholderMet
    raise NotImplementedError(f"JSON can't carry {with_article(type(value).__qualname__)}")


def from_builtin(wanted: type, value: Any) -> Any:
    """The inverse of `to_builtin`."""
    validate = getattr(wanted, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(value, get_origin(wanted) or wanted):
        return value
    raise NotImplementedError(
        f"{getattr(wanted, '__qualname__', wanted)} is not a type that JSON can be turned into: "
        "annotate with a dataclass, a msgspec Struct, a pydantic model or a plain type"
    )


encoder = msgspec.json.Encoder(enc_hook=to_builtin)
sorted_encoder = msgspec.json.Encoder(enc_hook=to_builtin, order="sorted")


def to_json(value: object) -> bytes:
    """A value as JSON. NaN and the infinities, which msgspec would silently make null, are refused."""
    payload = encoder.encode(value)
    if b"null" in payload:  # rare enough that looking again costs nothing
        refuse_non_finite(msgspec.to_builtins(value, enc_hook=to_builtin))
    return payload


def refuse_non_finite(value: object) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"JSON has no {value}")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            refuse_non_finite(item)


def as_json(value: object, what: str) -> bytes:
    """A value as JSON; `what` names it in the error."""
    try:
        return to_json(value)
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError) as error:
        raise InvalidArguments(f"{what} can't be carried as JSON: {cause(error)}.") from error


def cause(error: Exception) -> str:
    """The message of an encoder or decoder, as a part of a sentence."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else brief(str(error), 200)


class Envelope(msgspec.Struct):
    codec: str = msgspec.field(name="$dibs")
    data: str = ""


class Codec:
    """JSON, and around it the payload codec of this app."""

    def __init__(self, payload_codec: PayloadCodec | None = None, also_reads: Iterable[PayloadCodec] = ()) -> None:
        self.writes = payload_codec
        given = check_items(also_reads, "also_reads", PayloadCodec, "payload codecs")  # type: ignore[type-abstract]
        if payload_codec is not None:
            if not isinstance(payload_codec, PayloadCodec):
                raise InvalidOption(
                    f"payload_codec must have a name, encode() and decode(), and {shown(payload_codec)} has not."
                )
            given.append(payload_codec)
        for codec in given:
            check_name(codec.name, "a payload codec's name")
        if taken := [codec.name for codec in given if codec.name in RESERVED]:
            raise InvalidOption(f"a payload codec can't be called {taken[0]!r}: Dibs uses that name itself.")
        self.reads: dict[str, PayloadCodec] = {codec.name: codec for codec in (Plain(), *given)}

    def encode(self, value: object, what: str) -> bytes:
        """A value as payload; `what` names it in errors."""
        return self.wrap(as_json(value, what))

    def wrap(self, payload: bytes) -> bytes:
        """The payload that carries this JSON."""
        writer: PayloadCodec | None = self.writes
        if writer is None and payload.startswith(ENVELOPE):
            writer = self.reads["plain"]
        if writer is None:
            return payload
        data = base64.b64encode(writer.encode(payload)).decode()
        return encoder.encode(Envelope(writer.name, data))

    def unwrap(self, payload: bytes) -> bytes:
        """The JSON inside a payload."""
        if not payload.startswith(ENVELOPE):
            return payload
        envelope = msgspec.json.decode(payload, type=Envelope)
        codec = self.reads.get(envelope.codec)
        if codec is None:
            raise InvalidArguments(
                f"the payload was written with the codec {envelope.codec!r}, which this app does not have: "
                "pass it as payload_codec or in also_reads."
            )
        return codec.decode(base64.b64decode(envelope.data))

    def decode(self, payload: bytes) -> Any:
        """A payload as plain JSON values."""
        return msgspec.json.decode(self.unwrap(payload))


def fingerprint(name: str, bound: Mapping[str, object]) -> str:
    """What an idempotency key stands for: the task's name and all its arguments, defaults included."""
    return hashlib.sha256(name.encode() + b"\0" + sorted_encoder.encode(bound)).hexdigest()[:32]


class Signature:
    """A task function's parameters: binds a call by name, encodes it, and decodes it by the annotations."""

    def __init__(self, function: Callable[..., Any], name: str, takes_context: bool) -> None:
        self.function = function
        self.name = name
        parameters = list(inspect.signature(function).parameters.values())[1 if takes_context else 0 :]
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
                raise InvalidOption(
                    f"task {name} takes {stars}{parameter.name}: "
                    "arguments are stored by name, so each needs one of its own."
                )
        self.parameters = parameters
        self.names = [p.name for p in parameters]
        self.known = frozenset(self.names)
        self.positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self.positional_only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        self.required = [p.name for p in parameters if p.default is p.empty]
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.untyped = [p.name for p in parameters if p.annotation is p.empty]
        self._what = f"the arguments of {name}"
        self.parameter_names = brief(", ".join(self.names), 120) or "none"

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments by name, without defaults."""
        if len(args) > len(self.positional):
            raise InvalidArguments(
                f"{self.name} takes {len(self.positional)} positional argument(s), and {len(args)} were given. "
                f"Its parameters: {self.parameter_names}."
            )
        bound = dict(zip(self.positional, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.known:
                raise InvalidArguments(
                    f"{self.name} has no parameter {shown(name)}. Its parameters: {self.parameter_names}. "
                    "Options such as priority or delay go into .using(…)."
                )
            if name in bound:
                raise InvalidArguments(f"{self.name} got {name!r} twice, by position and by name.")
            if name in self.positional_only:
                raise InvalidArguments(f"{self.name} takes {name!r} by position only.")
            bound[name] = value
        for name in self.required:
            if name not in bound:
                raise InvalidArguments(f"{self.name} needs an argument {name!r}.")
        return bound

    def encode(self, bound: Mapping[str, Any], codec: Codec) -> bytes:
        """The payload of a call, checked to be what the task will be able to read."""
        for name in self.untyped:
            if isinstance(bound.get(name), bytes | bytearray | memoryview):
                raise InvalidArguments(
                    f"{self.name} got bytes as {name!r}, which would arrive as a text in base64: annotate that "
                    f"parameter ({name}: bytes), and they arrive as bytes."
                )
        json = as_json(bound, self._what)
        if json != b"{}" or self.required:
            self._read(json, None)
        return codec.wrap(json)

    def encode_taking(self, lifted: Mapping[str, Any], takes: Sequence[Take], codec: Codec) -> bytes:
        """The payload of a call that takes results. Arguments that contain results are checked when it runs."""
        what = f"the arguments of {self.name}"
        waiting = {take.at[0] for take in takes}
        self.parse(as_json({name: lifted[name] for name in lifted if name not in waiting}, what), self.lenient_decoder)
        return codec.wrap(as_json({**lifted, TAKE: takes}, what))

    def decode(self, json: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for the function, as its annotations declare them."""
        values = self.parse(json)
        if not self.positional_only:
            return [], values
        given = [values.pop(name) for name in self.positional_only if name in values]
        return given, values

    def parse(self, payload: bytes, decoder: msgspec.json.Decoder[Any] | None = None) -> dict[str, Any]:
        if payload == b"{}" and not self.required:
            return {}
        parsed, unset = self._read(payload, decoder), msgspec.UNSET
        return {name: value for name in self.names if (value := getattr(parsed, name)) is not unset}

    def _read(self, payload: bytes, decoder: msgspec.json.Decoder[Any] | None) -> Any:
        """The payload as the task will see it; `InvalidArguments` if it does not fit."""
        decoder = decoder or self.decoder  # outside the try: a bad annotation is another error than a bad argument
        try:
            return decoder.decode(payload)
        except (msgspec.ValidationError, ValueError, TypeError, NotImplementedError, RecursionError) as error:
            raise InvalidArguments(f"{self._what} don't fit its signature: {cause(error)}.") from error

    def fingerprint(self, bound: Mapping[str, Any]) -> str:
        """The idempotency hash of a call."""
        try:
            return fingerprint(self.name, {**self.defaults, **bound})
        except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError) as error:
            raise InvalidArguments(
                f"an argument or default of {self.name} can't be carried as JSON: {cause(error)}."
            ) from error

    @cached_property
    def hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.function, include_extras=True)
        except NameError as error:
            raise InvalidOption(
                f"an annotation of {self.name} can't be resolved: {error}. Define or import that name at module level."
            ) from error

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        return self._decoder(set(self.required))

    @cached_property
    def lenient_decoder(self) -> msgspec.json.Decoder[Any]:
        """For calls some of whose arguments are not known yet."""
        return self._decoder(set())

    def _decoder(self, required: set[str]) -> msgspec.json.Decoder[Any]:
        fields = []
        for p in self.parameters:
            hint = self.hints.get(p.name, Any)
            if p.name in required:
                fields.append((p.name, hint))
            else:
                fields.append((p.name, hint | msgspec.UnsetType if hint is not Any else Any, msgspec.UNSET))  # type: ignore[arg-type]
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        try:
            return msgspec.json.Decoder(struct, dec_hook=from_builtin)
        except TypeError as error:
            raise InvalidOption(f"the annotations of {self.name} can't be read from JSON: {error}.") from error

    @cached_property
    def returns(self) -> Any:
        """The annotation of the result; Any if there is none, or none that JSON can be turned into.

        None counts as none: such a task may still have a result, by `ctx.complete_in(…, result=…)`.
        """
        try:
            hint = get_type_hints(self.function, include_extras=True).get("return", Any)
            msgspec.json.Decoder(hint, dec_hook=from_builtin)
        except (NameError, TypeError):
            return Any
        return Any if hint is NOTHING else hint

    @cached_property
    def result_decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.returns, dec_hook=from_builtin)

    def decode_result(self, payload: bytes | None, codec: Codec, task_id: str) -> Any:
        """A task's result as its return annotation declares it."""
        return None if payload is None else self._result(codec.unwrap(payload), task_id)

    def encode_result(self, value: object, codec: Codec, task_id: str) -> bytes | None:
        """The payload of a result, checked to be what the return annotation declares."""
        if value is None and self.returns is Any:
            return None
        json = as_json(value, f"the result of {self.name}")
        if self.returns is not Any:
            self._result(json, task_id)
        return None if value is None else codec.wrap(json)

    def _result(self, json: bytes, task_id: str) -> Any:
        try:
            return self.result_decoder.decode(json)
        except NotImplementedError:  # a class of the user's own, which JSON can carry but not give back
            return msgspec.json.decode(json)
        except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
            declared = getattr(self.returns, "__name__", None) or str(self.returns)
            raise WrongResult(
                f"the result of {self.name} is not of the type that it declares ({brief(declared, 80)}): "
                f"{cause(error)}.",
                task_id=task_id,
            ) from error
