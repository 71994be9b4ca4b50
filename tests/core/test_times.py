"""Instants, durations, ids, names and histograms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.core import histogram
from dibs.core.ids import check_id, uuid7
from dibs.core.options import check_name, check_number
from dibs.core.times import DAY, SECOND, day_of, duration, instant, seconds, when
from dibs.errors import InvalidOption


@given(st.datetimes(datetime(1970, 1, 1), datetime(2120, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_instants_survive_the_round_trip(moment: datetime) -> None:
    assert when(instant(moment, "at")) == moment


def test_zones_are_converted() -> None:
    east = timezone(timedelta(hours=2))
    assert instant(datetime(1970, 1, 1, 2, tzinfo=east), "at") == 0
    assert when(None) is None


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no time zone"):
        instant(datetime(2026, 1, 1), "at")  # noqa: DTZ001


@pytest.mark.parametrize("value", [datetime(9999, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)])
def test_instants_stay_exact_in_doubles(value: datetime) -> None:
    with pytest.raises(InvalidOption, match="deadline"):
        instant(value, "deadline")


@pytest.mark.parametrize(("at", "year"), [(2**62, 9999), (-(2**62), 1), (0, 1970)])
def test_any_stored_instant_can_be_shown(at: int, year: int) -> None:
    shown = when(at)
    assert shown is not None
    assert (shown.year, shown.tzinfo) == (year, UTC)


def test_durations() -> None:
    assert duration(1.5, "delay") == duration(timedelta(seconds=1.5), "delay") == 1_500_000
    assert seconds(1_500_000) == 1.5


@pytest.mark.parametrize("value", [-1, -0.001, float("nan"), float("inf"), timedelta(days=-1), "1", True, None, 10**12])
def test_bad_durations_are_refused(value: object) -> None:
    with pytest.raises(InvalidOption, match="delay"):
        duration(value, "delay")  # type: ignore[arg-type]


def test_days_change_at_midnight_utc() -> None:
    assert [day_of(at) for at in (0, DAY - 1, DAY)] == [0, 0, 1]


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**12 - 1), st.integers(0, 2**62 - 1))
def test_ids_are_version_seven(milliseconds: int, counter: int, random: int) -> None:
    parsed = UUID(uuid7(milliseconds, counter, random))
    assert (parsed.version, parsed.variant) == (7, "specified in RFC 4122")
    assert parsed.int >> 80 == milliseconds


@given(st.lists(st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 2**12 - 1)), min_size=2, max_size=9, unique=True))
def test_ids_sort_by_time_then_counter(moments: list[tuple[int, int]]) -> None:
    ids = [uuid7(milliseconds, counter, 12345) for milliseconds, counter in sorted(moments)]
    assert ids == sorted(ids)


def test_caller_chosen_ids_become_canonical() -> None:
    text = "0190163D8694739BAEA5966C26F8AD91"
    assert check_id(text) == check_id(UUID(text)) == "0190163d-8694-739b-aea5-966c26f8ad91"
    for bad in ("", "order-7", None, 7):
        with pytest.raises(InvalidOption, match="UUID"):
            check_id(bad)


@pytest.mark.parametrize("name", ["mail", "a.b:c/d-e_f", "7", "_x", "x" * 200])
def test_names(name: str) -> None:
    assert check_name(name, "queue") == name


@pytest.mark.parametrize("name", ["", " ", "-x", "a b", "x" * 201, "ü", "a\n", None, 7])
def test_bad_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidOption, match="queue must be"):
        check_name(name, "queue")


def test_numbers() -> None:
    assert check_number(5, "n", 0, 9) == 5
    for bad in (-1, 10, 1.0, True, "5"):
        with pytest.raises(InvalidOption, match="whole number"):
            check_number(bad, "n", 0, 9)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=200), st.floats(0.01, 1))
def test_percentiles_are_within_a_tenth(spans: list[int], share: float) -> None:
    counted: dict[int, int] = {}
    for span in spans:
        histogram.add(counted, span)
    exact = sorted(spans)[max(1, -(-int(share * len(spans) * 1_000_000) // 1_000_000)) - 1]
    found = histogram.percentile(counted, share)
    assert found is not None
    assert found >= exact * 0.9 - 1


def test_histograms_add_up() -> None:
    first: dict[int, int] = {}
    second: dict[int, int] = {}
    for span in (1, 50, SECOND):
        histogram.add(first, span)
        histogram.add(second, span)
    histogram.merge(first, second)
    assert sum(first.values()) == 6
    assert histogram.percentile({}, 0.5) is None
    assert histogram.mean({}) is None
    assert histogram.percentile(first, 0) == 1
