"""Instants and durations. Inside Dibs both are integer microseconds, so that every engine agrees to the bit.

An `Instant` counts from the Unix epoch, UTC. The public API has seconds, `timedelta` and aware `datetime`; only this
module converts them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dibs.core.options import shown
from dibs.errors import InvalidOption

Instant = int
Duration = int

MS: Duration = 1_000
SECOND: Duration = 1_000_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR

LONGEST: Duration = 100 * 366 * DAY
LATEST: Instant = 54_787 * DAY
"""The start of 2120. Ranks add up to 4·10¹⁵ to an instant, and so stay below 2⁵³."""
END: Instant = 2**62
"""Later than any instant that is stored."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def duration(value: object, option: str) -> Duration:
    """Seconds or a timedelta as microseconds; `option` names it in the error."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta) or value != value:
        raise InvalidOption(f"{option} must be a number of seconds or a timedelta, not {shown(value)}.")
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if number < 0:
        raise InvalidOption(f"{option} must not be negative, and {shown(value)} is. Give seconds from now, 0 or more.")
    if number > LONGEST // SECOND:
        raise InvalidOption(f"{option}={shown(value)} is more than a hundred years.")
    return round(number * SECOND)


def patience(value: object, option: str) -> float | None:
    """How many seconds to wait for something; None: for as long as it takes.

    As elsewhere in Python, a negative number counts as 0: callers subtract what they have waited already.
    """
    if value is None:
        return None
    is_over = value < timedelta() if isinstance(value, timedelta) else isinstance(value, int | float) and value < 0
    return 0.0 if is_over else duration(value, option) / SECOND


def instant(value: object, option: str) -> Instant:
    """An aware datetime as microseconds since the epoch."""
    if not isinstance(value, datetime):
        raise InvalidOption(f"{option} must be a datetime, not {shown(value)}.")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidOption(f"{option}={value.isoformat()} has no time zone. Use datetime.now(UTC) or add a tzinfo.")
    at = (value - EPOCH) // timedelta(microseconds=1)
    if not 0 <= at <= LATEST:
        raise InvalidOption(f"{option}={value.isoformat()} must lie between the years 1970 and 2120.")
    return at


def when(at: Instant | None) -> datetime | None:
    """An instant as an aware datetime; one beyond the calendar becomes its first or last datetime."""
    if at is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError:  # a damaged row: it must still be possible to show it
        return datetime.min.replace(tzinfo=UTC) if at < 0 else datetime.max.replace(tzinfo=UTC)


def seconds(span: Duration) -> float:
    """A duration in seconds."""
    return span / SECOND


def day_of(at: Instant) -> int:
    """The UTC day of an instant, counted from the epoch."""
    return at // DAY
