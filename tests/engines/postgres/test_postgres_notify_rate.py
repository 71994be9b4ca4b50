"""How few messages stand for many notifications, and that the last one is delivered as surely as the first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dibs.engines.postgres.notify_rate import BURST, INTERVAL, REPEAT_AFTER, Rate, Replay
from dibs.engines.wake import LocalNotifier


def test_a_topic_that_is_rung_now_and_then_is_sent_each_time() -> None:
    rate = Rate()
    assert all(rate.fresh(["work:a"], now) == ["work:a"] for now in (0.0, 1.0, 1.001, 1.002, 2.0))


def test_one_message_per_interval_in_the_long_run_for_each_topic() -> None:
    rate = Rate()
    sent = sum(bool(rate.fresh(["work:a"], step / 10_000)) for step in range(10_000))  # a second, one each 0.1 ms
    assert 1 / INTERVAL <= sent <= 1 / INTERVAL + BURST
    assert rate.fresh(["work:a", "work:b"], 1.0) == ["work:b"]


@given(gaps=st.lists(st.floats(0, 0.03), max_size=200))
def test_a_ring_that_sends_nothing_is_within_an_interval_of_one_that_did(gaps: list[float]) -> None:
    """So a listener that heard that one looks again after this one."""
    rate, now, sent = Rate(), 0.0, -1.0
    for gap in gaps:
        now += gap
        if rate.fresh(["work:a"], now):
            sent = now
        assert now - sent < INTERVAL + 1e-9 < REPEAT_AFTER


class Clockwork:
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[[], None]) -> Any:
        self.timers.append((at, call))
        return object()

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        call()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.timers if each[0] <= self.now]
        self.timers = [each for each in self.timers if each[0] > self.now]
        for _, call in due:
            call()


class Ears(LocalNotifier):
    """Records which topics were notified, and when."""

    def __init__(self, clockwork: Clockwork) -> None:
        super().__init__()
        self.clockwork = clockwork
        self.rung: list[tuple[float, str]] = []

    def notify(self, topics: Any) -> None:
        self.rung += [(round(self.clockwork.now, 3), topic) for topic in topics]


def hearer() -> tuple[Clockwork, Ears, Replay]:
    clockwork = Clockwork()
    ears = Ears(clockwork)
    loop: asyncio.AbstractEventLoop = clockwork  # type: ignore[assignment]
    return clockwork, ears, Replay(ears, loop)


def test_what_was_heard_is_looked_at_once_more() -> None:
    clockwork, ears, replay = hearer()
    replay.add(["work:a"])
    for _ in range(20):
        clockwork.advance(0.01)
    assert ears.rung == [(0.03, "work:a")]


def test_an_echo_counts_from_when_a_topic_was_last_heard() -> None:
    clockwork, ears, replay = hearer()
    replay.add(["work:a", "work:b"])
    clockwork.advance(0.02)
    replay.add(["work:a"])
    for _ in range(20):
        clockwork.advance(0.01)
    assert ears.rung == [(0.03, "work:b"), (0.05, "work:a")]
