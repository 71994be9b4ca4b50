"""Keeps claims fast while dead entries pile up at the start of the indexes.

While a transaction holds an old snapshot, the server can't remove claimed tasks from the index, and a claim that starts
at the lowest rank walks over all of them. The tasks of a banded track arrive in the order of their ranks, so the tasks
given so far show, with a little lag, where the remaining ones begin: that rank is the track's read floor.

Claims read from the start while that is quick. Once it is slow, they start at the read floors, and a `FloorProbe` reads
what lies below them, apart from claims, for at most a tenth of the time. A task whose rank lies below a floor, because
its transaction committed late or the task was edited, waits until the next probe. The same holds for the indexes of
due tasks (`DueWindow`) and of leases (`RescueFloor`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dibs.core.times import MINUTE, MS, SECOND, Duration, Instant
from dibs.engines.decisions.facts import Track
from dibs.engines.postgres.catalog import Catalog
from dibs.engines.unreadable import UnreadableRows
from dibs.errors import StoreError

__all__ = [
    "AHEAD",
    "EVERYTHING",
    "LAG",
    "LONG_AGO",
    "START",
    "Bounds",
    "DueWindow",
    "FloorProbe",
    "ReadFloors",
    "RescueFloor",
    "arrivals",
]

log = logging.getLogger("dibs.engines.postgres")

START = -(2**62)
"""Below every rank and every instant."""

SLOW: Duration = 5 * MS
"""Reading from the start is slow if it takes longer. With a clean index it takes a fraction of this."""
LAG: Duration = 2 * SECOND
"""How far out of order commits may come without a task having to wait for a probe."""
AHEAD: Duration = 5 * SECOND
"""How far ahead a claim reads due tasks, if it does not read everything."""
Bounds = tuple[Instant, Duration | None]
"""The instant from which to read tasks that are due or expire, and how far ahead of now (None: without end)."""
EVERYTHING: Bounds = (START, None)
LONG_AGO: Duration = 10 * SECOND
"""How far back each read goes at least: for leases that have ended, and for tracks that gave no task."""
REST = 10
"""A probe is followed by a rest of this many times its duration, and at least a second."""

Rows = Callable[..., Awaitable[list[Any]]]


class Pace:
    """Whether reading from the start is slow, and when to try it again. Instants are of the caller's own clock."""

    def __init__(self) -> None:
        self.took: Duration = 0
        self.rests_until = 0.0

    @property
    def is_slow(self) -> bool:
        return self.took > SLOW

    def is_due(self, at: float) -> bool:
        """Whether a probe should read what claims skip."""
        return self.is_slow and at >= self.rests_until

    def claimed(self, took: Duration) -> None:
        """Note how long a claim took to read. While reading is slow, claims do not begin at the start."""
        if not self.is_slow:
            self.took = took

    def probed(self, took: Duration, at: float) -> None:
        """Note how long a probe took, which begins at the start."""
        self.took = took
        self.rests_until = at + max(1.0, REST * took / SECOND)


class ReadFloors(Pace):
    """The read floors of one engine: for each banded track, the rank below which no task is known to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.floors: dict[int, int] = {}

    def lows(self, tracks: Sequence[Track]) -> list[int]:
        """The rank to start at in each track."""
        if not self.is_slow:
            return [START] * len(tracks)
        return [self.floors.get(track.number, START) for track in tracks]

    def know(self, tracks: Iterable[Track]) -> None:
        """Give floors to tracks that are claimed from. Mixed tracks get none: they have no order to rely on."""
        for track in tracks:
            if not track.is_mixed:
                self.floors.setdefault(track.number, START)

    def raise_to(self, floors: Mapping[int, int], began: Mapping[int, int]) -> None:
        """Raise floors after a read that started at `began` found nothing below them.

        A floor that was lowered below that start during the read stays: the read has not seen the task it was lowered
        for.
        """
        for track, floor in floors.items():
            if track in self.floors and began[track] <= self.floors[track]:
                self.floors[track] = max(floor, self.floors[track])

    def lower_to(self, floors: Mapping[int, int]) -> None:
        """Lower floors, because tasks wait below them."""
        for track, floor in floors.items():
            self.floors[track] = min(floor, self.floors[track])


class DueWindow(Pace):
    """Between which instants claims read tasks that are due or expire: all of them, while that is quick.

    An old snapshot also keeps the entries of tasks that were promoted, or claimed before they could expire, at the
    start of these indexes. Once reading is slow, claims start at the instant at which nothing was due any more, and
    read a little ahead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.floor: Instant = START

    @property
    def bounds(self) -> Bounds:
        return (self.floor, AHEAD) if self.is_slow else EVERYTHING

    def learn(self, low: Instant, now: Instant, took: Duration, *, due: bool) -> None:
        """Note what a claim that started at `low` found: how long it took, and whether it left something that is due.

        `now` is the store's. A floor that was lowered below `low` during the claim stays.
        """
        self.claimed(took)
        if not due and low <= self.floor:
            self.floor = now - LAG


class RescueFloor:
    """The expiry at which a rescue starts: leases that ended long before were taken back, and no new lease ends there.

    Once a minute a rescue reads all leases, for claims that took long to commit.
    """

    def __init__(self) -> None:
        self.floor: Instant = START
        self.full_at = 0.0

    def low(self, at: float) -> Instant:
        return self.floor if at < self.full_at else START

    def learn(self, now: Instant, at: float, *, ended: bool, full: bool) -> None:
        """Note what a rescue did. If it has not `ended`, leases are left, and the next one starts at the same floor."""
        if ended:
            self.floor = now - LONG_AGO
            if full:
                self.full_at = at + MINUTE / SECOND

    def put_off(self, now: Instant, at: float) -> None:
        """Reading all leases has failed: until the next try, take back those that ended since the floor."""
        self.full_at = at + MINUTE / SECOND
        if self.floor == START:
            self.floor = now - LONG_AGO


class FloorProbe:
    """The floors of one engine's claims, and the background reads of what lies below them.

    Probes are plain reads on another connection, so no claim waits for one. When a probe finds a task, it lowers the
    floor and wakes the workers that wait for work here: the next claim gives the task.
    """

    def __init__(self, rows: Rows, wake: Callable[[], None]) -> None:
        self.floors = ReadFloors()
        self.window = DueWindow()
        self.rows = rows
        self.wake = wake
        self.running: asyncio.Task[None] | None = None

    def start_if_due(self, catalog: Catalog) -> None:
        """Start a probe if one is due and none is running. Returns at once."""
        at = time.monotonic()
        if (self.floors.is_due(at) or self.window.is_due(at)) and (self.running is None or self.running.done()):
            self.running = asyncio.create_task(self.probe(catalog, at), name="dibs-probe")

    async def probe(self, catalog: Catalog, at: float) -> None:
        if self.floors.is_due(at):
            await self.timed(self.floors, self.probe_heads(catalog))
        if self.window.is_due(at):
            await self.timed(self.window, self.probe_due(catalog.aside))

    async def timed(self, pace: Pace, probe: Awaitable[Duration]) -> None:
        """A failed probe counts with the time until it failed, and is repeated after the rest."""
        began = time.monotonic()
        try:
            took = await probe
        except StoreError as error:
            log.info("Could not read the tasks that claims have skipped: %s", error)
            took = max(pace.took, round((time.monotonic() - began) * SECOND))
        pace.probed(took, time.monotonic())

    async def probe_heads(self, catalog: Catalog) -> Duration:
        """Find the first task of each track. An empty track gets the floor of what can still arrive."""
        before = dict(self.floors.floors)
        tracks = [track for track in catalog.tracks.values() if track.number in before and not track.retired]
        empty = arrivals(catalog, tracks, self.window)
        rows = await self.rows("heads", [track.number for track in tracks])
        heads = {row["track"]: row["rank"] - LAG for row in rows if row["rank"] is not None}
        self.floors.raise_to({**empty, **heads}, before)
        late = {track: floor for track, floor in heads.items() if floor + LAG < before[track]}
        if late:
            self.floors.lower_to(late)
            self.wake()
        return max((row["took"] for row in rows), default=0)

    async def probe_due(self, aside: UnreadableRows) -> Duration:
        """Find what is due or expires first."""
        before = self.window.floor
        ((next_at, _, took),) = await self.rows("next_due", START, None, list(aside.tasks), list(aside.steps))
        if next_at is not None and next_at < before:
            self.window.floor = next_at
            self.wake()
        return int(took)

    async def close(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def arrivals(catalog: Catalog, tracks: Iterable[Track], window: DueWindow) -> dict[int, int]:
    """Ranks in banded tracks below which no task will arrive or become due, unless its transaction commits late.

    Tracks that are ranked by earlier settings have no such rank: a task that becomes due there keeps its rank.
    Everything that was due before the window's floor has been promoted.
    """
    found = {}
    for track in tracks:
        queue = catalog.queues.get(track.queue)
        if queue is not None and not track.is_mixed and not catalog.is_stale(track):
            found[track.number] = window.floor - LONG_AGO + catalog.ranking(queue, track.band).offset
    return found
