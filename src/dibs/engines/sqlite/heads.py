"""The pending index, read in chunks: entries of one share of a track, or of a partition, and the turns of a track."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from dibs.core.times import Instant
from dibs.engines.decisions.partition import Partition
from dibs.engines.sqlite.row_decoder import BATCH_ERRORS, RowDecoder, TaskDecoder, is_spoiled
from dibs.engines.sqlite.statements import row_by_row
from dibs.engines.sqlite.transaction import Snapshot

__all__ = ["LARGEST_CHUNK", "Head", "Turn", "read_group", "read_track", "read_turns"]

LARGEST_CHUNK = 1000
LOWEST = -(2**62)
"""Below every rank."""


class Head(Struct, array_like=True, frozen=True, order=True):
    """An entry of the pending index; entries compare in claim order within a lane."""

    rank: int
    id: str
    ready_at: Instant
    track: int
    partition_key: str | None = None

    @property
    def partition(self) -> Partition | None:
        return None if self.partition_key is None else Partition.parse(self.partition_key)


class Turn(Struct, array_like=True, frozen=True):
    """A row of dibs_turns, and the best task that it stands for, if any."""

    virtual_time: int
    share: str
    head: Head | None
    is_kept: bool = False
    """There are tasks, but all of them are set aside."""


HEADS = TaskDecoder(Head, "task", 1)
VIRTUAL_TIMES = RowDecoder(tuple[int, str], "turn of tag")
turns_decoder = msgspec.json.Decoder(list[Turn])

SMALL_CHUNK = 8


def ignore(_: list[Head]) -> None:
    """Do nothing with the entries that are about to be read."""


def read_track(
    snapshot: Snapshot,
    track: int,
    share: str,
    gated: bool,
    chunk: int,
    after: Head | None = None,
    foretell: Callable[[list[Head]], None] = ignore,
) -> Iterator[Head]:
    """The entries of one share of one track in order; `foretell` is called with each chunk first."""
    rank, task_id = (LOWEST, "") if after is None else (after.rank, after.id)
    while True:
        heads, last = read_chunk(snapshot, chunk, "read_track", track, int(gated), share, rank, task_id)
        foretell(heads)
        yield from heads
        if last is None:
            return
        rank, task_id = last
        chunk = min(2 * chunk, LARGEST_CHUNK)


def read_group(snapshot: Snapshot, after: Head, share: str, chunk: int) -> Iterator[Head]:
    """What comes after a task in its partition, of the same track and share, gated or not."""
    rank, task_id = after.rank, after.id
    while True:
        heads, last = read_chunk(snapshot, chunk, "read_group", after.partition_key, after.track, share, rank, task_id)
        yield from heads
        if last is None:
            return
        rank, task_id = last


def read_chunk(
    snapshot: Snapshot, chunk: int, name: str, *parameters: object
) -> tuple[list[Head], tuple[int, str] | None]:
    """Some entries, without those that are set aside; and where to continue, if there may be more."""
    heads, last = snapshot.page(HEADS, name, *parameters, chunk)
    if aside := snapshot.aside.tasks:
        heads = [head for head in heads if head.id not in aside]
    return heads, None if last is None else (last[0], last[1])


def read_turns(snapshot: Snapshot, track: int, chunk: int) -> Iterator[list[Turn]]:
    """The turns of a track in order, in chunks."""
    virtual_time, share = -1, ""
    while True:
        turns, last = read_some_turns(snapshot, track, virtual_time, share, chunk)
        yield turns
        if last is None:
            return
        virtual_time, share = last[:2]
        chunk = min(2 * chunk, LARGEST_CHUNK)


def read_some_turns(
    snapshot: Snapshot, track: int, virtual_time: int, share: str, chunk: int
) -> tuple[list[Turn], tuple[Any, ...] | None]:
    """Some turns, and where to continue, if there may be more.

    The best task of each is read in the same statement, unless tasks may be set aside.
    """
    asked = (track, virtual_time, share, chunk)
    if not snapshot.aside.tasks:
        try:
            turns = turns_decoder.decode(snapshot.value("read_turns", *asked))
        except BATCH_ERRORS as error:
            if not is_spoiled(error):
                raise
        else:
            return turns, (turns[-1].virtual_time, turns[-1].share) if len(turns) == chunk else None
    virtual_times, last = snapshot.page(VIRTUAL_TIMES, "turn_order", *asked)
    return [turn_of(snapshot, track, *each) for each in virtual_times], last


def turn_of(snapshot: Snapshot, track: int, virtual_time: int, share: str) -> Turn:
    head = next(read_track(snapshot, track, share, False, SMALL_CHUNK), None)
    first = (track, 0, share, LOWEST, "", 1)
    return Turn(
        virtual_time, share, head, is_kept=head is None and bool(snapshot.each(row_by_row("read_track"), first))
    )
