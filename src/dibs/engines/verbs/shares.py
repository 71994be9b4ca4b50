"""Shares of fair queues whose tasks a transaction has moved without the lock of their queue."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from dibs.engines.decisions.steps import Done, Step
from dibs.engines.port import Port

__all__ = ["MovedShares", "count_shares"]


class MovedShares(Struct):
    """What is left: (queue, share, change of pending tasks), and (track, share) of those that get a turn."""

    counts: list[tuple[str, str, int]]
    turns: list[tuple[int, str]]


decode = msgspec.json.Decoder(MovedShares).decode


async def count_shares(port: Port, steps: list[Step], most: int) -> Done:
    """Write the counts and turns that such transactions have left."""
    for step in steps:
        left = decode(step.about)
        for queue, share, change in left.counts:
            port.count_share(queue, share, change)
        for track, share in left.turns:
            port.give_turn(track, share)
    return len(steps), []
