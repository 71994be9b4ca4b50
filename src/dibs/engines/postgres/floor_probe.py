"""Looks at what claims pass over while reading from the beginning is slow (`cursors`), apart from them.

Plain reads on another connection: no claim waits for one. What they find moves a mark back, and whoever waits for work
here is woken: the next claim gives it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from dibs.core.times import SECOND, Duration
from dibs.engines.postgres.catalog import MIXED, Catalog, Track
from dibs.engines.postgres.read_floors import LAG, LONG_AGO, START, Pace, ReadFloors, Window
from dibs.engines.unreadable import UnreadableRows
from dibs.errors import StoreError

__all__ = ["FloorProbe", "arrivals"]

log = logging.getLogger("dibs.engines.postgres")

Rows = Callable[..., Awaitable[list[Any]]]


class FloorProbe:
    """Where the claims of one engine begin, and who sees to what lies before."""

    def __init__(self, rows: Rows, wake: Callable[[], None]) -> None:
        self.cursors = ReadFloors()
        self.window = Window()
        self.rows = rows
        self.wake = wake
        self.looking: asyncio.Task[None] | None = None

    def look(self, catalog: Catalog) -> None:
        """Look at what is due to be looked at, unless somebody does. Returns at once."""
        at = time.monotonic()
        if (self.cursors.is_due(at) or self.window.is_due(at)) and (self.looking is None or self.looking.done()):
            self.looking = asyncio.create_task(self.look_at_all(catalog, at), name="dibs-look")

    async def look_at_all(self, catalog: Catalog, at: float) -> None:
        if self.cursors.is_due(at):
            await self.timed(self.cursors, self.look_at_heads(catalog))
        if self.window.is_due(at):
            await self.timed(self.window, self.look_at_times(catalog.aside))

    async def timed(self, pace: Pace, looking: Awaitable[Duration]) -> None:
        """A look that fails has taken as long as that took, and is made again after the rest."""
        began = time.monotonic()
        try:
            took = await looking
        except StoreError as error:
            log.info("Could not look at what claims have passed over: %s", error)
            took = max(pace.took, round((time.monotonic() - began) * SECOND))
        pace.looked(took, time.monotonic())

    async def look_at_heads(self, catalog: Catalog) -> Duration:
        """Where the streams begin. Where nothing waits, only what arrives from now on can."""
        before = dict(self.cursors.marks)
        tracks = [track for track in catalog.tracks.values() if track.number in before and not track.retired]
        empty = arrivals(catalog, tracks, self.window)
        rows = await self.rows("heads", [track.number for track in tracks])
        heads = {row["track"]: row["rank"] - LAG for row in rows if row["rank"] is not None}
        self.cursors.raise_to({**empty, **heads}, before)
        late = {track: mark for track, mark in heads.items() if mark + LAG < before[track]}
        if late:
            self.cursors.lower_to(late)
            self.wake()
        return max((row["took"] for row in rows), default=0)

    async def look_at_times(self, aside: UnreadableRows) -> Duration:
        """What falls due or expires first."""
        before = self.window.mark
        ((next_at, _, took),) = await self.rows("next_due", START, None, list(aside.tasks), list(aside.follow_ups))
        if next_at is not None and next_at < before:
            self.window.mark = next_at
            self.wake()
        return int(took)

    async def close(self) -> None:
        looking, self.looking = self.looking, None
        if looking is not None:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking


def arrivals(catalog: Catalog, tracks: Iterable[Track], window: Window) -> dict[int, int]:
    """Ranks in banded streams below which nothing will arrive or fall due, unless it is long on its way.

    None for streams that are ranked by earlier settings: what falls due there keeps its rank.
    `window` knows until when nothing was due that had not been promoted.
    """
    found = {}
    for track in tracks:
        queue = catalog.queues.get(track.queue)
        if queue is not None and track.band != MIXED and not catalog.is_stale(track):
            found[track.number] = window.mark - LONG_AGO + catalog.ranking(queue, track.band).offset
    return found
