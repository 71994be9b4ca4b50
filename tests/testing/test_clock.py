"""The clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dibs import Dibs, State
from dibs.errors import InvalidOption, UsageError
from dibs.testing import ManualClock


def test_it_moves_when_it_is_moved() -> None:
    clock = ManualClock()
    start = clock.time
    assert (clock.time, clock.now()) == (start, clock.store_now())
    assert clock.advance(1.5) == start + timedelta(seconds=1.5)
    assert clock.advance(timedelta(hours=1)) == clock.time
    assert clock.move_to(datetime(2030, 1, 1, tzinfo=UTC)) == datetime(2030, 1, 1, tzinfo=UTC)
    assert repr(clock) == "<ManualClock at 2030-01-01T00:00:00+00:00>"


def test_it_does_not_go_back() -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    with pytest.raises(UsageError, match="time does not go back: it is 2026-05-01"):
        clock.move_to(datetime(2026, 4, 30, tzinfo=UTC))
    with pytest.raises(InvalidOption, match="must not be negative"):
        clock.advance(-1)
    with pytest.raises(InvalidOption, match="has no time zone"):
        clock.move_to(datetime(2027, 1, 1))  # noqa: DTZ001


def test_an_app_can_have_it_without_a_kit() -> None:
    clock = ManualClock()
    with Dibs("memory://", clock=clock) as app:

        @app.task
        def work() -> None: ...

        handle = work.using(delay=60).enqueue()
        assert app.claim() == []
        clock.advance(60)
        assert [claim.id for claim in app.claim()] == [handle.id]
        assert handle.refresh().state is State.RUNNING
