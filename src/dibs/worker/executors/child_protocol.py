"""The messages between a worker and its executor processes: frames of a length and a msgpack value."""

from __future__ import annotations

import struct

import msgspec
from msgspec import Struct

from dibs.core.task import LeasedTask, Settlement

HEADER = struct.Struct(">I")


class Start(Struct, tag="start", frozen=True, kw_only=True):
    """Run this task, which importing `module` defines. `args` is JSON; times are in seconds from now."""

    task: LeasedTask
    args: bytes
    module: str
    valid_for: float
    time_left: float | None


class Kept(Struct, tag="kept", frozen=True):
    """The lease was extended and lasts this many seconds."""

    valid_for: float


class Ready(Struct, tag="ready", frozen=True):
    """The child has started."""


class Progress(Struct, tag="progress", frozen=True):
    fraction: float
    message: str


class Keep(Struct, tag="keep", frozen=True):
    """The task asks for a lease of this many seconds."""

    seconds: float


class Completing(Struct, tag="completing", frozen=True):
    """The task's completion is in a transaction of its own."""


class Waiting(Struct, tag="waiting", frozen=True):
    """The task begins to wait for a task of this queue, or no longer does."""

    queue: str
    begins: bool


class Ended(Struct, tag="ended", frozen=True):
    """The task completed or failed; `spoiled`: this child should not run another one."""

    settlement: Settlement
    spoiled: bool = False


ToChild = Start | Kept
FromChild = Ready | Progress | Keep | Completing | Waiting | Ended

to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


def frame(message: ToChild | FromChild) -> bytes:
    """A message with its length in front."""
    body = msgspec.msgpack.encode(message)
    return HEADER.pack(len(body)) + body
