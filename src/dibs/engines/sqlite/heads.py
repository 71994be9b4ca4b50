"""The pending index, read in chunks: entries of one share of a stream, or of a partition, and the turns of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from dibs.core.times import Instant
from dibs.engines.sqlite.transaction import Snapshot

__all__ = ["Head", "Turn", "read_group", "read_stream", "read_turns"]

LARGEST_CHUNK = 1000
LOWEST = -(2**62)
"""Below every rank."""


class Head(Struct, array_like=True, frozen=True, order=True):
    """An entry of the pending index; they compare as claims order them within a lane."""

    rank: int
    id: str
    ready_at: Instant
    stream: int
    partition: str | None = None
    """With the queue's name in front."""


class Turn(Struct, array_like=True, frozen=True):
    """A row of dibs_turns, and the best task that it stands for, if there is any."""

    tag: int
    share: str
    head: Head | None


heads_decoder = msgspec.json.Decoder(list[Head])
turns_decoder = msgspec.json.Decoder(list[Turn])


def ignore(_: list[Head]) -> None:
    """Nobody wants to know what is about to come."""


def read_stream(
    snapshot: Snapshot,
    stream: int,
    share: str,
    gated: bool,
    chunk: int,
    after: Head | None = None,
    foretell: Callable[[list[Head]], None] = ignore,
) -> Iterator[Head]:
    """The entries of one share of one stream in order; `foretell` is told of each chunk before."""
    rank, task_id = (LOWEST, "") if after is None else (after.rank, after.id)
    while True:
        text = snapshot.value("read_stream", stream, int(gated), share, rank, task_id, chunk)
        heads = heads_decoder.decode(text)
        foretell(heads)
        yield from heads
        if len(heads) < chunk:
            return
        rank, task_id = heads[-1].rank, heads[-1].id
        chunk = min(2 * chunk, LARGEST_CHUNK)


def read_group(snapshot: Snapshot, after: Head, share: str, chunk: int) -> Iterator[Head]:
    """What comes after a task in its partition, of the same stream and share, gated or not."""
    while True:
        text = snapshot.value("read_group", after.partition, after.stream, share, after.rank, after.id, chunk)
        heads = heads_decoder.decode(text)
        yield from heads
        if len(heads) < chunk:
            return
        after = heads[-1]


def read_turns(snapshot: Snapshot, stream: int, chunk: int) -> Iterator[list[Turn]]:
    """The turns of a stream in order, in chunks."""
    tag, share = -1, ""
    while True:
        turns = turns_decoder.decode(snapshot.value("read_turns", stream, tag, share, chunk))
        yield turns
        if len(turns) < chunk:
            return
        tag, share = turns[-1].tag, turns[-1].share
        chunk = min(2 * chunk, LARGEST_CHUNK)
