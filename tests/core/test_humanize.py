"""Durations as people write them."""

from __future__ import annotations

import pytest

from dibs.core.humanize import format_duration, format_exact_duration, format_rate
from dibs.core.times import DAY, HOUR, MINUTE, SECOND


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.003, "3 ms"),
        (0.9996, "1.0 s"),
        (3, "3.0 s"),
        (119, "119.0 s"),
        (600, "10 min"),
        (90_000, "25.0 h"),
        (10**6, "11.6 days"),
    ],
)
def test_rounded(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("length", "text"), [(0, "0 s"), (HOUR + 30 * MINUTE, "1 h 30 min"), (DAY + SECOND // 2, "1 d 0.5 s")]
)
def test_to_the_microsecond(length: int, text: str) -> None:
    assert format_exact_duration(length) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(0, "0/s"), (12.34, "12.3/s"), (1, "1.0/s"), (42 / 300, "8.4/min"), (2 / 3600, "2.0/h"), (12_345, "12,345.0/s")],
)
def test_rates_read_as_none_only_if_there_was_none(per_second: float, text: str) -> None:
    assert format_rate(per_second) == text
