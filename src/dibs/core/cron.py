"""When a cron expression fires, by the clock of a time zone. Changes of that clock are handled as in Debian's cron:

- *Fixed times* (neither the minute nor the hour field begins with `*`, as in `30 2 * * *`) fire once for each time that
  they name. If the clock skips a time, it fires right after the gap (once for all skipped times; Debian's cron fires
  once for each). If the clock shows a time twice, it fires at the first.
- *All others* fire whenever the clock shows a matching time. So `0 * * * *` and `*/15 * * * *` keep their intervals
  through a change by whole hours, while `*/15 2 * * *` does not fire on the day that skips that hour and fires eight
  times on the day that doubles it, and `0 */2 * * *` may have one or three hours between two fires. Lord Howe Island
  changes by 30 minutes: there `0 * * * *` has 90 minutes between two fires at each change.

Also as in Debian's: a day must match both day fields if either begins with `*`, else one of them.

cronsim parses the expressions and matches the days, but does not walk through time here. Given a zone, its own walk
can return a time before its start (inside the doubled hour), and loses fires where the clock changes by half an hour,
or, walking back, those of a doubled hour before midnight.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from dibs.core.options import check_text, nearest, shown
from dibs.core.times import DAY, EPOCH, HOUR, MINUTE, SECOND, Duration, Instant
from dibs.errors import InvalidOption

__all__ = ["LONGEST", "Calendar", "calendar_of", "check_cron", "check_zone"]

FIELDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of month": "1 to 31, L (the last day) or LW (the last weekday)",
    "month": "1 to 12 or JAN to DEC",
    "day of week": "0 to 7 (0 and 7 are Sunday) or SUN to SAT, 5L (the last Friday) or 5#2 (the second Friday)",
}
NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
REFERENCE = 19_723
"""The day from which an expression is checked, 1 January 2024: the answer must not depend on today's date."""
HORIZON = 50 * 366
"""Days without a fire after which there will be none. The rarest, a fifth Monday in February, may be 40 years away."""
LONGEST = 1000
"""The most characters of an expression. One that lists every minute, hour and day has fewer than 500."""
FIRST_DAY = date(1970, 1, 1).toordinal()
ANY_MOMENT = datetime(2024, 1, 1)  # noqa: DTZ001 - wall time, on purpose

Run = tuple[Instant, int, int]
"""Fires of one day: a local midnight, and the first and last index into the list of times."""


class Calendar:
    """The fires of one cron expression in one time zone."""

    def __init__(self, cron: str, tz: str) -> None:
        self.pattern = CronSim(cron, ANY_MOMENT)
        self.zone = ZoneInfo(tz)
        self.times = sorted(
            hour * HOUR + minute * MINUTE for hour in self.pattern.hours for minute in self.pattern.minutes
        )
        self.fixed = not any(field.startswith("*") for field in cron.split()[:2])

    def next(self, after: Instant) -> Instant | None:
        """The first fire strictly after an instant, or None if there are no more."""
        for midnight, first, _ in self.runs(after + 1, after + HORIZON * DAY):
            return midnight + self.times[first]
        return None

    def count(self, start: Instant, end: Instant) -> int:
        """How many fires there are from `start` to before `end`."""
        return sum(last - first for _, first, last in self.runs(start, end))

    def newest(self, start: Instant, end: Instant, limit: int) -> list[Instant]:
        """The last fires from `start` to before `end`, in order of time."""
        found: list[Instant] = []
        for day in range((end - 1) // DAY, start // DAY - 1, -1):
            runs = list(self.runs(max(start, day * DAY), min(end, (day + 1) * DAY)))
            for midnight, first, last in reversed(runs):
                found += [midnight + time for time in reversed(self.times[first:last])]
            if len(found) >= limit:
                break
        return found[:limit][::-1]

    def shortest(self) -> Duration:
        """The shortest time between two fires, changes of the clock aside."""
        days = [day for day in range(REFERENCE, REFERENCE + 9 * 366) if self.matches(day)]
        within = [later - time for time, later in pairwise(self.times)]
        across = [(later - day) * DAY - (self.times[-1] - self.times[0]) for day, later in pairwise(days)]
        return min(within + across, default=HORIZON * DAY)

    def runs(self, start: Instant, end: Instant) -> Iterator[Run]:
        """The fires from `start` to before `end`, in order."""
        for day in range(start // DAY, (end - 1) // DAY + 1):
            for begin, stop, offset in self.parts(max(start, day * DAY), min(end, (day + 1) * DAY)):
                yield from self.shown(begin, stop, offset)

    def parts(self, start: Instant, end: Instant) -> list[tuple[Instant, Instant, Duration]]:
        """Cut a day, or less, where the clock changes, into parts with a constant offset from UTC.

        Changes of a zone are months apart, so a day and the day before it (which shows what is doubled) have one at
        most.
        """
        before, after = self.offset(start - DAY), self.offset(end - 1)
        if before == after:
            return [(start, end, after)]
        change = self.change(start - DAY, end, before)
        old, new = (start, min(change, end), before), (max(change, start), end, after)
        if not self.fixed:
            return [old, new]
        if after < before:
            shown_twice_until = change + before - after
            return [old, (max(shown_twice_until, start), end, after)]
        skipped = next(self.shown(change, change + after - before, before), None)
        if skipped is None or not start <= change < end:
            return [old, new]
        # At the moment of the change, the clock counts as showing the first of the times that it skips.
        midnight, first, _ = skipped
        return [old, (change, change + 1, midnight + self.times[first] + before - change), (change + 1, end, after)]

    def shown(self, start: Instant, end: Instant, offset: Duration) -> Iterator[Run]:
        """When a clock that is ahead of UTC by `offset` shows matching times."""
        for local_day in range((start + offset) // DAY, (end + offset - 1) // DAY + 1):
            midnight = local_day * DAY - offset
            first, last = bisect_left(self.times, start - midnight), bisect_left(self.times, end - midnight)
            if first < last and self.matches(local_day):
                yield midnight, first, last

    def matches(self, local_day: int) -> bool:
        """Whether it fires on a day of its zone's calendar, counted from the epoch."""
        day = date.fromordinal(FIRST_DAY + local_day)
        return day.month in self.pattern.months and self.pattern.match_day(day)

    def offset(self, at: Instant) -> Duration:
        """How far the zone's clock is ahead of UTC."""
        local = (EPOCH + timedelta(microseconds=at)).astimezone(self.zone)
        return (local.utcoffset() or timedelta()) // timedelta(microseconds=1)

    def change(self, start: Instant, end: Instant, before: Duration) -> Instant:
        """The moment in which the offset is no longer `before`; clocks change at whole seconds."""
        seconds = range(start // SECOND, end // SECOND)
        index = bisect_left(seconds, True, key=lambda second: self.offset(second * SECOND) != before)
        return (seconds.start + index) * SECOND


@lru_cache(maxsize=256)
def calendar_of(cron: str, tz: str) -> Calendar:
    """The calendar of an expression and a zone that have been checked."""
    return Calendar(cron, tz)


def check_cron(cron: object) -> str:
    """A cron expression that fires, with single spaces; a name such as `@daily` becomes the one it stands for."""
    if not isinstance(cron, str):
        hint = " An interval is given as every=…, in seconds." if isinstance(cron, int | float | timedelta) else ""
        raise InvalidOption(f"cron must be a text such as '30 2 * * *' or '@daily', not {shown(cron)}.{hint}")
    fields = check_text(cron, "cron", LONGEST).split()
    if fields and fields[0].startswith("@"):
        return named_cron(cron.strip())
    if len(fields) != len(FIELDS):
        raise InvalidOption(
            f"cron={shown(cron)} needs five fields, not {len(fields)}: {', '.join(FIELDS)}. "
            "Or it is a name such as '@daily'; an interval is given as every=…, in seconds."
        )
    for place, (name, values) in enumerate(FIELDS.items()):
        alone = ["*"] * place + [fields[place]] + ["*"] * (len(FIELDS) - 1 - place)
        if not is_readable(" ".join(alone)):
            raise InvalidOption(
                f"cron={shown(cron)} can't be read: {shown(fields[place])} is no {name}. It takes {values}, "
                "and *, lists (1,5), ranges from low to high (1-5) and steps (*/5)."
            )
    cron = " ".join(fields)
    # cronsim itself refuses some of the days that no month has.
    if not is_readable(cron) or Calendar(cron, "UTC").next(REFERENCE * DAY) is None:
        raise InvalidOption(f"cron={shown(cron)} never fires: no day matches. Look at its day and month fields.")
    return cron


def named_cron(name: str) -> str:
    if name not in NAMED:
        raise InvalidOption(f"cron={shown(name)} is not known.{nearest(name, NAMED)} There are {', '.join(NAMED)}.")
    return NAMED[name]


def is_readable(cron: str) -> bool:
    try:
        CronSim(cron, ANY_MOMENT)
    except (CronSimError, ValueError):  # ValueError: more digits than Python converts
        return False
    return True


def check_zone(tz: object) -> str:
    """The name of a time zone."""
    name = tz.key if isinstance(tz, ZoneInfo) else tz
    if not isinstance(name, str):
        raise InvalidOption(f"tz must be the name of a time zone, such as 'Europe/Zurich', not {shown(tz)}.")
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder of zones
        raise InvalidOption(
            f"tz={shown(name)} is no known time zone.{nearest(name, sorted(available_timezones()))}"
        ) from None
    return name
