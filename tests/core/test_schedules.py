"""Recurring tasks: what options they take, when they fire, what is caught up, and the task of each fire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dibs.core.cron import calendar_of
from dibs.core.recurrence import (
    CatchUp,
    Overlap,
    Recurrence,
    check_recurrence,
    describe,
    first_fire,
    next_fire,
    upcoming,
)
from dibs.core.schedules import GRACE, Plan, ScheduleRecord, fire_id, jitter_of, plan, task_of
from dibs.core.times import DAY, HOUR, MINUTE, SECOND, Duration, Instant, instant, when
from dibs.errors import InvalidOption
from dibs.testing.tasks import changed, new_task

YEAR = 365 * DAY

unhurried = settings(deadline=None)


def utc(text: str) -> Instant:
    return instant(datetime.fromisoformat(text).replace(tzinfo=UTC), "at")


def fires(cron: str, tz: str, start: str, end: str) -> list[str]:
    """The fires after `start` and before `end`, all in UTC: walked forward, walked back and counted."""
    recurrence, at, found = check_recurrence(cron=cron, tz=tz), utc(start), []
    while (at := next_fire(recurrence, at)) < utc(end):
        found.append(at)
    calendar = calendar_of(recurrence.cron or "", tz)
    assert calendar.newest(utc(start) + 1, utc(end), 10_000) == found
    assert calendar.count(utc(start) + 1, utc(end)) == len(found)
    return [f"{when(at):%d %H:%M}" for at in found]


def record_of(recurrence: Recurrence, next_fire_at: Instant) -> ScheduleRecord:
    template = new_task("", "reports", "report", args=b'{"day":1}', headers={"trace": "t1"})
    return ScheduleRecord(name="nightly", recurrence=recurrence, task=template, next_fire_at=next_fire_at)


# Options.


def test_a_recurrence_from_public_forms() -> None:
    assert check_recurrence(every=timedelta(minutes=5), jitter=30) == Recurrence(every=5 * MINUTE, jitter=30 * SECOND)
    assert check_recurrence(
        cron=" 30  2 * * mon-fri ", tz="Europe/Zurich", catch_up="all", overlap="skip"
    ) == Recurrence(cron="30 2 * * mon-fri", tz="Europe/Zurich", catch_up=CatchUp.ALL, overlap=Overlap.SKIP)
    assert check_recurrence(cron="0 0 * * *", tz=ZoneInfo("Asia/Tokyo")).tz == "Asia/Tokyo"
    assert check_recurrence(cron="0 0 * * *").tz == "UTC"


@pytest.mark.parametrize(
    ("name", "cron"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        (" @daily ", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_names_of_common_expressions(name: str, cron: str) -> None:
    assert check_recurrence(cron=name, tz="Asia/Tokyo") == check_recurrence(cron=cron, tz="Asia/Tokyo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs to know when it fires: give cron"),
        ({"cron": "* * * * *", "every": 60}, "not by both: give cron"),
        ({"cron": 5}, "cron must be a text"),
        ({"cron": "* * * *"}, "needs five fields, not 4: minute, hour, day of month, month, day of week"),
        ({"cron": "0 0 * * * *"}, "needs five fields, not 6"),
        ({"cron": ""}, "needs five fields, not 0"),
        ({"cron": "@reboot"}, "cron='@reboot' is not known"),
        ({"cron": "5m"}, "an interval is given as every=…, in seconds"),
        ({"cron": "@dialy"}, "is not known. Did you mean .@daily."),
        ({"cron": "60 * * * *"}, "'60' is no minute. It takes 0 to 59"),
        ({"cron": "*/0 * * * *"}, "'.*/0' is no minute"),
        ({"cron": f"*/{'9' * 5000} * * * *"}, "cron must be a text of at most 1,000 characters"),
        ({"cron": "0 24 * * *"}, "'24' is no hour"),
        ({"cron": "0 0 0 * *"}, "'0' is no day of month"),
        ({"cron": "0 0 * FOO *"}, "'FOO' is no month"),
        ({"cron": "0 0 * * FRI-MON"}, "'FRI-MON' is no day of week.*ranges from low to high"),
        ({"cron": "0 0 30 2 *"}, "never fires"),
        ({"cron": "0 0 */3 2 MON#5"}, "never fires"),
        ({"cron": "0 0 * * *", "tz": "Europe/Zürich"}, "no known time zone. Did you mean 'Europe/Zurich'"),
        ({"cron": "0 0 * * *", "tz": "Europe"}, "no known time zone"),
        ({"cron": "0 0 * * *", "tz": "../passwd"}, "no known time zone"),
        ({"cron": "0 0 * * *", "tz": 2}, "tz must be the name"),
        ({"every": 60, "tz": "UTC"}, "goes with cron only"),
        ({"every": 0.999}, "from 1 second to 400 days"),
        ({"every": timedelta(days=401)}, "from 1 second to 400 days"),
        ({"every": "5 min"}, "every must be a number of seconds"),
        ({"every": 60, "jitter": -1}, "jitter must not be negative"),
        ({"every": 60, "jitter": 61}, "jitter=61 is longer than the time between two fires, 1 min"),
        ({"cron": "0,10 * * * *", "jitter": 601}, "longer than the time between two fires, 10 min"),
        ({"cron": "0 1,23 * * *", "jitter": 7201}, "longer than the time between two fires, 2 h"),
        ({"cron": "0 12 * * MON,TUE", "jitter": 86401}, "longer than the time between two fires, 1 d"),
        ({"every": 60, "catch_up_limit": 0}, "catch_up_limit must be a whole number from 1 to 10,000"),
        ({"every": 60, "catch_up_limit": 10_001}, "catch_up_limit"),
        ({"every": 60, "catch_up": "ones"}, "catch_up must be one of skip, one, all, not 'ones'. Did you mean 'one'"),
        ({"every": 60, "overlap": True}, "overlap must be one of allow, skip"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        check_recurrence(**options)  # type: ignore[arg-type]


def test_the_limits_themselves_are_accepted() -> None:
    check_recurrence(every=1, jitter=1, catch_up_limit=1)
    check_recurrence(every=timedelta(days=400), catch_up_limit=10_000)
    check_recurrence(cron="0 1,23 * * *", jitter=7200)
    check_recurrence(cron="0 12 * 2 MON#5", jitter=DAY / SECOND)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 300}, "every 5 min"),
        ({"every": 5400, "jitter": 1.5}, "every 1 h 30 min, up to 1.5 s later"),
        ({"every": timedelta(days=7)}, "every 7 d"),
        ({"cron": "30 2 * * *", "tz": "Europe/Zurich"}, "At 02:30 every day, Europe/Zurich"),
        ({"cron": "0 9 * * MON-FRI", "jitter": 60}, "At 09:00 on Monday through Friday, UTC, up to 1 min later"),
    ],
)
def test_recurrences_in_words(options: dict[str, object], words: str) -> None:
    assert describe(check_recurrence(**options)) == words  # type: ignore[arg-type]


# Fires.


def test_intervals_have_a_fixed_rate() -> None:
    recurrence = check_recurrence(every=90)
    assert first_fire(recurrence, 1_000) == 1_000 + 90 * SECOND
    assert upcoming(recurrence, 5, 3) == [5 + 90 * SECOND, 5 + 180 * SECOND, 5 + 270 * SECOND]


@pytest.mark.parametrize(
    ("cron", "found"),
    [
        ("0 12 1 * *", ["2025-02-01 12:00", "2025-03-01 12:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 L 2 *", ["2025-02-28 00:00", "2026-02-28 00:00"]),
        ("0 0 * 2 MON#5", ["2044-02-29 00:00", "2072-02-29 00:00"]),
        ("0 0 13 * FRI", ["2025-01-03 00:00", "2025-01-10 00:00"]),  # either of the two
        ("0 0 */13 * FRI", ["2025-02-14 00:00", "2025-03-14 00:00"]),  # both
        ("0 0 * * 7", ["2025-01-05 00:00", "2025-01-12 00:00"]),
    ],
)
def test_days(cron: str, found: list[str]) -> None:
    calendar = upcoming(check_recurrence(cron=cron), utc("2025-01-01T12:00"), 2)
    assert [f"{when(at):%Y-%m-%d %H:%M}" for at in calendar] == found


# The clock is put forward and back. All instants are in UTC.

FORWARD = {  # when, from which local time to which
    "Europe/Zurich": "2025-03-30T01:00",  # 02:00 → 03:00
    "America/New_York": "2025-03-09T07:00",  # 02:00 → 03:00
    "Australia/Sydney": "2025-10-04T16:00",  # 02:00 → 03:00
    "America/Santiago": "2025-09-07T04:00",  # 00:00 → 01:00
    "Australia/Lord_Howe": "2025-10-04T15:30",  # 02:00 → 02:30
}
BACK = {
    "Europe/Zurich": "2025-10-26T01:00",  # 03:00 → 02:00
    "America/New_York": "2025-11-02T06:00",  # 02:00 → 01:00
    "Australia/Sydney": "2025-04-05T16:00",  # 03:00 → 02:00
    "America/Santiago": "2025-04-06T03:00",  # 24:00 → 23:00
    "Australia/Lord_Howe": "2025-04-05T15:00",  # 02:00 → 01:30
}


@pytest.mark.parametrize(
    ("cron", "tz", "start", "found"),
    [
        ("30 2 * * *", "Europe/Zurich", "2025-03-28T12:00", ["29 01:30", "30 01:00", "31 00:30"]),
        ("30 2 * * *", "America/New_York", "2025-03-07T12:00", ["08 07:30", "09 07:00", "10 06:30"]),
        ("30 2 * * *", "Australia/Sydney", "2025-10-03T00:00", ["03 16:30", "04 16:00", "05 15:30"]),
        ("0 0 * * *", "America/Santiago", "2025-09-05T12:00", ["06 04:00", "07 04:00", "08 03:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-03T00:00", ["03 15:45", "04 15:30", "05 15:15"]),
        # Several skipped times, and one that coincides with the end of the gap, are one fire.
        (
            "0,30 2 * * *",
            "Europe/Zurich",
            "2025-03-29T12:00",
            ["30 01:00", "31 00:00", "31 00:30", "01 00:00", "01 00:30"],
        ),
        (
            "0 2,3 * * *",
            "Europe/Zurich",
            "2025-03-29T12:00",
            ["30 01:00", "31 00:00", "31 01:00", "01 00:00", "01 01:00"],
        ),
        # Other days are not disturbed.
        ("30 2 * * MON", "Europe/Zurich", "2025-03-28T12:00", ["31 00:30"]),
    ],
)
def test_a_skipped_time_fires_once_right_after_the_gap(cron: str, tz: str, start: str, found: list[str]) -> None:
    end = (datetime.fromisoformat(start) + timedelta(days=3)).isoformat()
    assert fires(cron, tz, start, end) == found


@pytest.mark.parametrize(
    ("cron", "tz", "start", "found"),
    [
        ("30 2 * * *", "Europe/Zurich", "2025-10-24T12:00", ["25 00:30", "26 00:30", "27 01:30"]),
        ("30 1 * * *", "America/New_York", "2025-10-31T12:00", ["01 05:30", "02 05:30", "03 06:30"]),
        ("30 2 * * *", "Australia/Sydney", "2025-04-04T00:00", ["04 15:30", "05 15:30", "06 16:30"]),
        ("30 23 * * *", "America/Santiago", "2025-04-04T12:00", ["05 02:30", "06 02:30", "07 03:30"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2025-04-04T00:00", ["04 14:45", "05 14:45", "06 15:15"]),
    ],
)
def test_a_doubled_time_fires_once_the_first_time(cron: str, tz: str, start: str, found: list[str]) -> None:
    end = (datetime.fromisoformat(start) + timedelta(days=3)).isoformat()
    assert fires(cron, tz, start, end) == found


def test_inside_the_second_showing_of_an_hour() -> None:
    """At the second 02:10 the 02:30 of this day has been."""
    assert fires("30 2 * * *", "Europe/Zurich", "2025-10-26T01:10", "2025-10-28T00:00") == ["27 01:30"]
    assert fires("30 2,3 * * *", "Europe/Zurich", "2025-10-26T01:10", "2025-10-27T00:00") == ["26 02:30"]


@pytest.mark.parametrize("changes", [FORWARD, BACK])
@pytest.mark.parametrize("tz", ["Europe/Zurich", "America/New_York", "Australia/Sydney", "America/Santiago"])
@pytest.mark.parametrize(("cron", "step"), [("0 * * * *", HOUR), ("*/15 * * * *", 15 * MINUTE), ("* * * * *", MINUTE)])
def test_real_hours_and_minutes_are_kept(changes: dict[str, str], tz: str, cron: str, step: Duration) -> None:
    start = utc(changes[tz]) - 26 * HOUR
    count = 52 * HOUR // step
    assert upcoming(check_recurrence(cron=cron, tz=tz), start, count) == [start + step * n for n in range(1, count + 1)]


def test_hourly_written_out() -> None:
    around = ["29 23:00", "30 00:00", "30 01:00", "30 02:00", "30 03:00"]
    assert fires("0 * * * *", "Europe/Zurich", "2025-03-29T22:30", "2025-03-30T03:30") == around
    around = ["25 23:00", "26 00:00", "26 01:00", "26 02:00", "26 03:00"]
    assert fires("0 * * * *", "Europe/Zurich", "2025-10-25T22:30", "2025-10-26T03:30") == around
    around = ["02 04:00", "02 05:00", "02 06:00", "02 07:00"]
    assert fires("0 * * * *", "America/New_York", "2025-11-02T03:30", "2025-11-02T07:30") == around


def test_half_an_hour_on_lord_howe_island() -> None:
    """The clock shows full hours 90 minutes apart; quarters keep their distance."""
    tz = "Australia/Lord_Howe"
    assert fires("0 * * * *", tz, "2025-10-04T13:00", "2025-10-04T17:30") == [
        "04 13:30",
        "04 14:30",
        "04 16:00",
        "04 17:00",
    ]
    assert fires("0 * * * *", tz, "2025-04-05T12:30", "2025-04-05T17:00") == [
        "05 13:00",
        "05 14:00",
        "05 15:30",
        "05 16:30",
    ]
    assert fires("*/15 3 * * *", tz, "2025-10-04T13:00", "2025-10-05T12:00") == [
        "04 16:00",
        "04 16:15",
        "04 16:30",
        "04 16:45",
    ]
    for changes in (FORWARD, BACK):
        start = utc(changes[tz]) - DAY
        quarters = upcoming(check_recurrence(cron="*/15 * * * *", tz=tz), start, 200)
        assert quarters == [start + 15 * MINUTE * n for n in range(1, 201)]


def test_a_wildcard_within_one_hour_follows_the_clock() -> None:
    assert fires("*/15 2 * * *", "Europe/Zurich", "2025-03-29T12:00", "2025-03-30T12:00") == []
    assert fires("*/30 2 * * *", "Europe/Zurich", "2025-10-25T12:00", "2025-10-26T12:00") == [
        "26 00:00",
        "26 00:30",
        "26 01:00",
        "26 01:30",
    ]


def test_a_day_that_an_island_left_out() -> None:
    """Samoa had no 30 December 2011: what was meant for it comes right after, and once."""
    found = fires("30 2 * * *", "Pacific/Apia", "2011-12-28T23:00", "2012-01-01T00:00")
    assert found == ["29 12:30", "30 10:00", "30 12:30", "31 12:30"]
    assert fires("0 0 * * *", "Pacific/Apia", "2011-12-29T00:00", "2011-12-31T12:00") == [
        "29 10:00",
        "30 10:00",
        "31 10:00",
    ]


def by_hand(cron: str, tz: str, start: Instant, end: Instant) -> list[Instant]:
    """The fires from `start` to before `end` (whole minutes), by looking at every minute."""
    pattern, zone = CronSim(cron, datetime(2025, 1, 1)), ZoneInfo(tz)  # noqa: DTZ001

    def matches(local: datetime) -> bool:
        return (
            local.minute in pattern.minutes
            and local.hour in pattern.hours
            and local.month in pattern.months
            and pattern.match_day(local.date())
        )

    def moments(first: Instant, last: Instant) -> list[datetime]:
        return [datetime.fromtimestamp(at // SECOND, UTC) for at in range(first, last, MINUTE)]

    if any(field.startswith("*") for field in cron.split()[:2]):
        return [instant(at, "at") for at in moments(start, end) if matches(at.astimezone(zone))]
    found = set()
    for at in moments(start - 2 * DAY, end + 2 * DAY):
        local = at.replace(tzinfo=None)
        if matches(local):
            while (real := local.replace(tzinfo=zone).astimezone(UTC)).astimezone(zone).replace(tzinfo=None) != local:
                local += timedelta(minutes=1)
            found.add(instant(real, "at"))
    return [at for at in sorted(found) if start <= at < end]


def field(low: int, high: int, *more: str) -> st.SearchStrategy[str]:
    numbers = st.integers(low, high)
    lists = st.lists(numbers, min_size=1, max_size=3).map(lambda some: ",".join(map(str, some)))
    ranges = st.tuples(numbers, numbers).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.integers(2, 20).map(lambda step: f"*/{step}")
    return st.one_of(st.just("*"), lists, ranges, steps, *map(st.just, more))


TIMES = st.tuples(field(0, 59), field(0, 23) | field(0, 3)).map(" ".join)
DAYS = st.sampled_from(
    ["* * *", "* * MON-FRI", "1-7 * *", "*/2 * *", "L * *", "13 * FRI", "* 3,4,9,10,11 SUN", "* * SUN#1"]
)
CRONS = st.tuples(TIMES, DAYS).map(" ".join)
CHANGES = [*FORWARD.items(), *BACK.items(), ("UTC", "2025-03-30T01:00"), ("Asia/Kathmandu", "2025-03-30T01:00")]


@st.composite
def near_a_change(draw: st.DrawFn) -> tuple[str, Instant]:
    """A zone, and a minute in the days around a change of its clock."""
    tz, change = draw(st.sampled_from(CHANGES))
    return tz, utc(change) + draw(st.integers(-3000, 300) | st.integers(-90, 90)) * MINUTE


@st.composite
def rhythms(draw: st.DrawFn) -> tuple[Recurrence, Instant]:
    """A recurrence, and when to begin."""
    tz, start = draw(near_a_change())
    if draw(st.booleans()):
        return Recurrence(cron=draw(CRONS), tz=tz), start
    return Recurrence(every=draw(st.integers(SECOND, 2 * DAY))), start


@unhurried
@given(CRONS, near_a_change(), st.integers(1, 3000), st.integers(1, 50))
def test_fires_are_those_of_the_wall_clock(cron: str, place: tuple[str, Instant], minutes: int, limit: int) -> None:
    tz, start = place
    end = start + minutes * MINUTE
    expected = by_hand(cron, tz, start, end)
    calendar = calendar_of(cron, tz)
    assert calendar.count(start, end) == len(expected)
    assert calendar.newest(start, end, 10_000) == expected
    assert calendar.newest(start, end, limit) == expected[-limit:]
    at, found = start - 1, []
    while (at := calendar.next(at) or end) < end:
        found.append(at)
    assert found == expected


@unhurried
@given(CRONS, st.integers(utc("2000-01-01"), utc("2100-01-01")))
def test_without_changes_of_the_clock_fires_are_those_of_cronsim(cron: str, after: Instant) -> None:
    expected = [instant(at, "at") for at in islice(CronSim(cron, datetime.fromtimestamp(after / SECOND, UTC)), 20)]
    assert upcoming(Recurrence(cron=cron), after, 20) == expected


@unhurried
@given(rhythms())
def test_fires_only_go_on(drawn: tuple[Recurrence, Instant]) -> None:
    recurrence, after = drawn
    found = upcoming(recurrence, after, 30)
    assert [next_fire(recurrence, earlier) for earlier in [after, *found[:-1]]] == found
    assert all(earlier < later for earlier, later in pairwise([after, *found]))


# What is due.


def test_nothing_is_due_yet() -> None:
    record = record_of(check_recurrence(every=60), 100)
    assert plan(record, 99) == Plan((), 100, 0)
    assert plan(structs.replace(record, paused=True), 10 * HOUR) == Plan((), 100, 0)


@pytest.mark.parametrize("catch_up", CatchUp)
def test_a_fire_on_time(catch_up: CatchUp) -> None:
    record = record_of(check_recurrence(cron="0 3 * * *", catch_up=catch_up), 3 * HOUR)
    assert plan(record, 3 * HOUR) == plan(record, 3 * HOUR + 59 * SECOND) == Plan((3 * HOUR,), DAY + 3 * HOUR, 0)


def test_catching_up() -> None:
    hourly = check_recurrence(cron="0 * * * *")
    now = 5 * HOUR + 10 * MINUTE
    assert plan(record_of(hourly, HOUR), now) == Plan((5 * HOUR,), 6 * HOUR, 4)
    assert plan(record_of(structs.replace(hourly, catch_up=CatchUp.SKIP), HOUR), now) == Plan((), 6 * HOUR, 5)
    every = structs.replace(hourly, catch_up=CatchUp.ALL)
    assert plan(record_of(every, HOUR), now) == Plan(tuple(HOUR * n for n in range(1, 6)), 6 * HOUR, 0)
    newest = structs.replace(every, catch_up_limit=2)
    assert plan(record_of(newest, HOUR), now) == Plan((4 * HOUR, 5 * HOUR), 6 * HOUR, 3)


def test_intervals_catch_up_on_their_beat() -> None:
    recurrence = check_recurrence(every=60, catch_up="all", catch_up_limit=2)
    assert plan(record_of(recurrence, 7), 7 + 200 * SECOND) == Plan((7 + 2 * MINUTE, 7 + 3 * MINUTE), 7 + 4 * MINUTE, 2)
    assert plan(record_of(structs.replace(recurrence, catch_up=CatchUp.ONE), 7), 7 + 200 * SECOND).fires == (
        7 + 3 * MINUTE,
    )


def test_skipping_forgives_a_minute() -> None:
    record = record_of(check_recurrence(every=600, catch_up="skip"), HOUR)
    assert plan(record, HOUR + GRACE - 1) == Plan((HOUR,), HOUR + 600 * SECOND, 0)
    assert plan(record, HOUR + GRACE) == Plan((), HOUR + 600 * SECOND, 1)
    often = record_of(check_recurrence(every=10, catch_up="skip"), HOUR)
    assert plan(often, HOUR + 25 * SECOND) == Plan((HOUR + 20 * SECOND,), HOUR + 30 * SECOND, 2)


def test_a_fire_that_was_promised_is_kept_when_the_rules_of_its_zone_have_changed() -> None:
    promised = utc("2025-06-01T00:30")
    record = record_of(check_recurrence(cron="0 3 * * *", tz="Europe/Zurich", catch_up="all"), promised)
    assert plan(record, utc("2025-06-01T00:31")) == Plan((promised,), utc("2025-06-01T01:00"), 0)
    assert plan(record, utc("2025-06-01T01:00")).fires == (promised, utc("2025-06-01T01:00"))


@pytest.mark.parametrize(
    "recurrence", [check_recurrence(every=1), check_recurrence(cron="* * * * *", tz="Europe/Zurich")]
)
@pytest.mark.parametrize("catch_up", CatchUp)
def test_ten_years_of_downtime_are_counted_without_being_walked(
    recurrence: Recurrence, catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat, now = recurrence.every or MINUTE, utc("2035-01-01")
    record = record_of(structs.replace(recurrence, catch_up=catch_up), now - 10 * YEAR)
    looks = 0
    if recurrence.cron:
        calendar = calendar_of(recurrence.cron, recurrence.tz)
        offset = calendar.offset

        def counted(at: Instant) -> Duration:
            nonlocal looks
            looks += 1
            return offset(at)

        monkeypatch.setattr(calendar, "offset", counted)
    decided = plan(record, now)
    expected = 100 if catch_up is CatchUp.ALL else 1
    assert decided == Plan(
        tuple(now - beat * n for n in reversed(range(expected))), now + beat, 10 * YEAR // beat + 1 - expected
    )
    assert looks < 10_000  # of more than five million fires


@unhurried
@given(rhythms(), st.sampled_from(CatchUp), st.integers(1, 20), st.lists(st.integers(0, 3 * DAY), max_size=8))
def test_successive_plans_fire_nothing_twice(
    drawn: tuple[Recurrence, Instant], catch_up: CatchUp, limit: int, waits: list[Duration]
) -> None:
    recurrence, start = drawn
    recurrence = structs.replace(recurrence, catch_up=catch_up, catch_up_limit=limit)
    record, now, seen, skipped = record_of(recurrence, first_fire(recurrence, start)), start, [start], 0
    for wait in waits:
        now += wait
        decided = plan(record, now)
        assert all(earlier < later <= now for earlier, later in pairwise([seen[-1], *decided.fires]))
        assert decided.next_fire_at > now
        seen += decided.fires
        skipped += decided.skipped
        record = structs.replace(record, next_fire_at=decided.next_fire_at)
        assert plan(record, now) == plan(record, decided.next_fire_at - 1) == Plan((), decided.next_fire_at, 0)
    missed = record_of(
        structs.replace(recurrence, catch_up=CatchUp.ALL, catch_up_limit=10**6), first_fire(recurrence, start)
    )
    assert len(seen) - 1 + skipped == len(plan(missed, now).fires)


@unhurried
@given(rhythms(), st.lists(st.integers(0, DAY), max_size=5))
def test_no_fire_is_lost_when_all_are_caught_up(drawn: tuple[Recurrence, Instant], waits: list[Duration]) -> None:
    recurrence, start = drawn
    recurrence = structs.replace(recurrence, catch_up=CatchUp.ALL, catch_up_limit=10**6)
    record, now = record_of(recurrence, first_fire(recurrence, start)), start
    seen: list[Instant] = []
    for wait in waits:
        now += wait
        decided = plan(record, now)
        assert decided.skipped == 0
        seen += decided.fires
        record = structs.replace(record, next_fire_at=decided.next_fire_at)
    assert [*seen, record.next_fire_at] == upcoming(recurrence, start, len(seen) + 1)


# The task of a fire.


def test_the_task_of_a_fire() -> None:
    record = record_of(check_recurrence(every=60), 0)
    fire = utc("2025-03-30T01:00")
    task = task_of(record, fire, fire_id(record.name, fire))
    assert task == changed(
        record.task,
        id=fire_id("nightly", fire),
        at=fire,
        headers={"trace": "t1", "schedule": "nightly", "fire-time": "2025-03-30T01:00:00+00:00"},
    )
    assert record.task.spec.headers == {"trace": "t1"}


def test_jitter_puts_a_task_off() -> None:
    record = record_of(check_recurrence(every=3600, jitter=600), 0)
    waits = [(task_of(record, fire, "").at or 0) - fire for fire in range(0, 100 * HOUR, HOUR)]
    assert waits == [jitter_of(record.recurrence, "nightly", fire) for fire in range(0, 100 * HOUR, HOUR)]
    assert all(0 <= wait <= 10 * MINUTE for wait in waits)
    assert min(waits) < MINUTE < 9 * MINUTE < max(waits)
    assert jitter_of(record.recurrence, "nightly", 0) != jitter_of(record.recurrence, "weekly", 0)
    assert jitter_of(check_recurrence(every=60), "nightly", 0) == 0


def test_a_fire_has_one_id() -> None:
    fire = utc("2025-03-30T01:00")
    assert fire_id("nightly", fire) == fire_id("nightly", fire) == str(UUID(fire_id("nightly", fire)))
    assert UUID(fire_id("nightly", fire)).version == 7
    assert UUID(fire_id("nightly", fire)).int >> 80 == fire // 1_000
    names = [f"{name}-{number}" for name in "ab" for number in range(500)]
    assert len({fire_id(name, fire + late) for name in names for late in (0, 1)}) == 2000
    assert fire_id("nightly", 1_743_296_400_000_000) == "0195e490-0a80-7870-8611-c6810a4be4ac"


def test_a_schedule_survives_the_store() -> None:
    record = structs.replace(
        record_of(check_recurrence(cron="0 3 * * *", tz="Asia/Tokyo", overlap="skip"), 5), declared=True
    )
    assert msgspec.json.decode(msgspec.json.encode(record), type=ScheduleRecord) == record
