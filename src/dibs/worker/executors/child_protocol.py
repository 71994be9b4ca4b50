"""What a worker and its executor processes say to each other: frames of a length and a msgpack value."""

from __future__ import annotations

import struct

import msgspec
from msgspec import Struct

from dibs.core.task import Failure, LeasedTask
from dibs.core.times import Duration

__all__ = [
    "HEADER",
    "Completing",
    "Done",
    "Failed",
    "FromChild",
    "Keep",
    "Kept",
    "Progress",
    "Ready",
    "Start",
    "ToChild",
    "frame",
    "from_child",
    "to_child",
]

HEADER = struct.Struct(">I")


class Start(Struct, tag="start", frozen=True, kw_only=True):
    """Run this. Functions and exception classes travel by name; spans of time are relative, as clocks may differ."""

    task: LeasedTask
    args: bytes
    function: str
    takes_context: bool
    retry_on: list[str]
    no_retry: list[str]
    valid_for: float
    time_left: float | None
    memory_limit: int | None


class Kept(Struct, tag="kept", frozen=True):
    """The lease now lasts so many seconds."""

    valid_for: float


class Ready(Struct, tag="ready", frozen=True):
    """The child has started."""


class Progress(Struct, tag="progress", frozen=True):
    fraction: float
    message: str


class Keep(Struct, tag="keep", frozen=True):
    """The task asks for a lease of so many seconds."""

    seconds: float


class Completing(Struct, tag="completing", frozen=True):
    """The task's completion is in a transaction of its own."""


class Done(Struct, tag="done", frozen=True):
    """The result as JSON; None for None."""

    result: bytes | None


class Failed(Struct, tag="failed", frozen=True, kw_only=True):
    """The task failed; `spoiled`: this child should not run another one."""

    failure: Failure
    retry: bool
    delay: Duration | None = None
    spoiled: bool = False


ToChild = Start | Kept
FromChild = Ready | Progress | Keep | Completing | Done | Failed

encoder = msgspec.msgpack.Encoder()
to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


def frame(message: ToChild | FromChild) -> bytes:
    """A message with its length in front."""
    body = encoder.encode(message)
    return HEADER.pack(len(body)) + body
