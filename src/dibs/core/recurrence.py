"""When a schedule fires: by the calendar (cron) or at a fixed rate (every). Jitter is not added here."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import Struct

from dibs.core.cron import Calendar, calendar_of, check_cron, check_zone
from dibs.core.humanize import format_exact_duration
from dibs.core.options import check_choice, check_number, shown
from dibs.core.times import DAY, SECOND, Duration, Instant, duration
from dibs.errors import InvalidOption

__all__ = [
    "CatchUp",
    "Overlap",
    "Recurrence",
    "check_recurrence",
    "count_fires",
    "describe",
    "first_fire",
    "newest_fires",
    "next_fire",
    "upcoming",
]

SHORTEST: Duration = SECOND
LONGEST: Duration = 400 * DAY


class CatchUp(StrEnum):
    """What becomes of the fires that were missed while nothing could fire."""

    SKIP = "skip"
    """They are dropped."""
    ONE = "one"
    """One task for all of them."""
    ALL = "all"
    """One task each, for the newest `catch_up_limit`."""


class Overlap(StrEnum):
    """Whether a schedule fires while its last task still waits or runs."""

    ALLOW = "allow"
    """It does."""
    SKIP = "skip"
    """It does not, and that fire is skipped."""


class Recurrence(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a schedule fires, and what becomes of fires that were missed. Either `cron` or `every` is set."""

    cron: str | None = None
    every: Duration | None = None
    tz: str = "UTC"
    jitter: Duration = 0
    catch_up: CatchUp = CatchUp.ONE
    catch_up_limit: int = 100
    overlap: Overlap = Overlap.ALLOW


def check_recurrence(
    *,
    cron: str | None = None,
    every: float | timedelta | None = None,
    tz: str | ZoneInfo | None = None,
    jitter: float | timedelta = 0,
    catch_up: CatchUp | str = CatchUp.ONE,
    catch_up_limit: int = 100,
    overlap: Overlap | str = Overlap.ALLOW,
) -> Recurrence:
    """The recurrence that these options describe. Durations are seconds or timedeltas."""
    if (cron is None) == (every is None):
        problem = "needs to know when it fires" if cron is None else "fires by cron or at an interval, not by both"
        raise InvalidOption(f"a schedule {problem}: give cron, such as '30 2 * * *' or @daily, or every, in seconds.")
    if every is not None and tz is not None:
        raise InvalidOption(f"tz={shown(tz)} goes with cron only: an interval is the same in every time zone.")
    recurrence = Recurrence(
        cron=None if cron is None else check_cron(cron),
        every=None if every is None else check_every(every),
        tz="UTC" if tz is None else check_zone(tz),
        jitter=duration(jitter, "jitter"),
        catch_up=check_choice(CatchUp, catch_up, "catch_up"),
        catch_up_limit=check_number(catch_up_limit, "catch_up_limit", 1, 10_000),
        overlap=check_choice(Overlap, overlap, "overlap"),
    )
    if recurrence.jitter and recurrence.jitter > (shortest := shortest_interval(recurrence)):
        raise InvalidOption(
            f"jitter={shown(jitter)} is longer than the time between two fires, {format_exact_duration(shortest)}: "
            "a task could be overtaken by the next one."
        )
    return recurrence


def check_every(every: float | timedelta) -> Duration:
    interval = duration(every, "every")
    if not SHORTEST <= interval <= LONGEST:
        raise InvalidOption(f"every={shown(every)} must be from 1 second to 400 days.")
    return interval


def first_fire(recurrence: Recurrence, now: Instant) -> Instant:
    """The first fire of a schedule that begins now. With `every`, that is one interval later."""
    return next_fire(recurrence, now)


def next_fire(recurrence: Recurrence, after: Instant) -> Instant:
    """The fire that follows the fire `after`; with cron, the first one strictly after any instant."""
    if recurrence.every is not None:
        return after + recurrence.every
    fire = calendar(recurrence).next(after)
    if fire is None:
        raise InvalidOption(f"cron={recurrence.cron!r} does not fire any more.")
    return fire


def upcoming(recurrence: Recurrence, after: Instant, count: int) -> list[Instant]:
    """The next fires, in order."""
    fires: list[Instant] = []
    for _ in range(count):
        after = next_fire(recurrence, after)
        fires.append(after)
    return fires


def count_fires(recurrence: Recurrence, after: Instant, until: Instant) -> int:
    """How many fires follow the fire `after`, up to and including `until`. Cheap, however many there are."""
    if recurrence.every is not None:
        return max(0, (until - after) // recurrence.every)
    return calendar(recurrence).count(after + 1, until + 1)


def newest_fires(recurrence: Recurrence, after: Instant, until: Instant, limit: int) -> list[Instant]:
    """The last of the fires that `count_fires` counts, in order."""
    if recurrence.every is not None:
        count = count_fires(recurrence, after, until)
        return [after + recurrence.every * turn for turn in range(max(0, count - limit) + 1, count + 1)]
    return calendar(recurrence).newest(after + 1, until + 1, limit)


def calendar(recurrence: Recurrence) -> Calendar:
    assert recurrence.cron is not None, "a recurrence has a cron expression or an interval"
    return calendar_of(recurrence.cron, recurrence.tz)


def shortest_interval(recurrence: Recurrence) -> Duration:
    if recurrence.every is not None:
        return recurrence.every
    return calendar(recurrence).shortest()


def describe(recurrence: Recurrence) -> str:
    """A recurrence in words: "every 5 min", "At 02:30 every day, Europe/Zurich"."""
    words = (
        f"every {format_exact_duration(recurrence.every)}"
        if recurrence.every is not None
        else f"{calendar(recurrence).pattern.explain()}, {recurrence.tz}"
    )
    return f"{words}, up to {format_exact_duration(recurrence.jitter)} later" if recurrence.jitter else words
