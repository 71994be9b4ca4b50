"""`app.series`: what queues did over time, in points of a chosen length, from the minutes that workers record."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from dibs.core.histogram import Histogram, mean, merge, percentile
from dibs.core.humanize import format_duration
from dibs.core.options import shown
from dibs.core.times import DAY, EPOCH, HOUR, MINUTE, SECOND, Duration, Instant, duration, instant
from dibs.engines.base import Engine
from dibs.engines.figures import Minute
from dibs.errors import InvalidOption

__all__ = ["LONGEST", "MOST_POINTS", "Percentiles", "Point", "check_range", "percentiles_of", "read_series", "totals"]

LONGEST: Duration = 7 * DAY
"""How long figures are kept: the leading worker deletes what is older."""
DEFAULT: Duration = HOUR
MOST_POINTS = 2000


class Percentiles(Struct, frozen=True):
    """Seconds; None where nothing was counted. Within 10 %: they come from logarithmic buckets."""

    count: int
    """How many were counted."""
    average: float | None
    """The mean."""
    p50: float | None
    """Half of them took no longer."""
    p95: float | None
    """95 of 100 took no longer."""
    p99: float | None
    """99 of 100 took no longer."""


class Point(Struct, frozen=True):
    """What ended from `at` on, until the next point."""

    at: datetime
    """Its beginning."""
    completed: int
    """Tasks that completed."""
    failed: int
    """Attempts that failed."""
    dead: int
    """Tasks that died."""
    cancelled: int
    """Tasks that were cancelled."""
    wait: Percentiles
    """Seconds from ready to claimed."""
    run: Percentiles
    """Seconds from claimed to ended."""


class Range(Struct, frozen=True):
    """Whole minutes from `first` to before `end`, `step` of them a point."""

    first: int
    end: int
    step: int


ENDS = ("completed", "failed", "dead", "cancelled")


def check_range(start: datetime | None, end: datetime | None, resolution: object, now: Instant) -> Range:
    """The range of a series; the last hour if nothing is given."""
    step, rest = divmod(duration(resolution, "resolution"), MINUTE)
    if rest or not step:
        raise InvalidOption(f"resolution must be whole minutes, such as 60 or 300 seconds, not {shown(resolution)}.")
    present = (now // MINUTE + 1) * MINUTE  # the minute that has just begun belongs to it
    until = present if end is None else min(instant(end, "end"), present)
    since = until - DEFAULT if start is None else instant(start, "start")
    if since >= until:
        raise InvalidOption("start must be before end, and not in the future.")
    if since < now - LONGEST - MINUTE:
        raise InvalidOption(f"start must be at most {LONGEST // DAY} days ago: figures are kept for that long.")
    first = since // MINUTE // step * step  # points begin at round times, so that two calls agree
    found = Range(first, -(-until // MINUTE), step)
    if (points := -(-(found.end - found.first) // step)) > MOST_POINTS:
        least = -(-(found.end - found.first) // MOST_POINTS) * 60
        raise InvalidOption(
            f"that would be {points:,} points, and at most {MOST_POINTS:,} are given: "
            f"ask for a resolution of {format_duration(least)} ({least} s) or more."
        )
    return found


async def read_series(engine: Engine, queue: str | None, asked: Range) -> list[Point]:
    """The points of a range, oldest first, with those in which nothing ended. Reads each minute once."""
    sums = [Sum() for _ in range(asked.first, asked.end, asked.step)]
    for minute in await engine.stats(queue, asked.first, asked.end - 1):
        sums[(minute.minute - asked.first) // asked.step].add(minute)
    at, step = EPOCH + timedelta(minutes=asked.first), timedelta(minutes=asked.step)
    return [each.point(at + number * step) for number, each in enumerate(sums)]


class Sum:
    """Minutes, added up."""

    def __init__(self) -> None:
        self.ends = dict.fromkeys(ENDS, 0)
        self.wait: Histogram = {}
        self.run: Histogram = {}

    def add(self, minute: Minute) -> None:
        for name in ENDS:
            self.ends[name] += getattr(minute, name)
        merge(self.wait, minute.wait)
        merge(self.run, minute.run)

    def point(self, at: datetime) -> Point:
        return Point(at, **self.ends, wait=percentiles_of(self.wait), run=percentiles_of(self.run))


def totals(minutes: Iterable[Minute]) -> Sum:
    found = Sum()
    for minute in minutes:
        found.add(minute)
    return found


NOTHING = Percentiles(0, None, None, None, None)


def percentiles_of(histogram: Histogram) -> Percentiles:
    if not histogram:
        return NOTHING
    spans = [mean(histogram), *(percentile(histogram, share) for share in (0.5, 0.95, 0.99))]
    return Percentiles(sum(histogram.values()), *(None if span is None else span / SECOND for span in spans))
