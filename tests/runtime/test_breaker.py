"""The breaker: callers of a store that is away fail at once, and one of them finds out that it is back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dibs import Dibs
from dibs.errors import StoreUnavailable, UnknownTask
from dibs.runtime import breaker as module
from dibs.runtime.breaker import TOLERANCE, Breaker


class Now:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    clock = Now()
    monkeypatch.setattr(module, "time", clock)
    return clock


def fail(breaker: Breaker, error: Exception) -> None:
    with pytest.raises(type(error)), breaker.asking():
        raise error


def test_one_lost_connection_is_no_outage(now: Now) -> None:
    breaker = Breaker()
    for _ in range(5):
        fail(breaker, StoreUnavailable("gone"))
        assert not breaker.is_open
        with breaker.asking():
            pass


def test_it_opens_when_calls_fail_in_a_row_and_a_probe_closes_it(now: Now) -> None:
    breaker = Breaker()
    for _ in range(TOLERANCE):
        fail(breaker, StoreUnavailable("gone"))
    assert breaker.is_open
    with pytest.raises(StoreUnavailable, match="asked again in a moment"), breaker.asking():
        pytest.fail("it was asked")
    assert breaker.refused == 1
    now.seconds = 0.7
    # The first is the probe; while it is under way, nobody else asks.
    with breaker.asking(), pytest.raises(StoreUnavailable, match="asked again"), breaker.asking():
        pytest.fail("it was asked")
    assert not breaker.is_open


def test_a_probe_that_fails_begins_another_pause(now: Now) -> None:
    breaker = Breaker()
    breaker.hold_requests()
    fail(breaker, TimeoutError())
    now.seconds = 0.7
    fail(breaker, StoreUnavailable("still gone"))
    with pytest.raises(StoreUnavailable, match="asked again"), breaker.asking():
        pytest.fail("it was asked")


def test_a_refusal_is_an_answer(now: Now) -> None:
    breaker = Breaker()
    for _ in range(TOLERANCE - 1):
        fail(breaker, StoreUnavailable("gone"))
    fail(breaker, UnknownTask("no such task"))
    fail(breaker, StoreUnavailable("gone"))
    assert not breaker.is_open


def test_a_client_fails_fast_and_workers_are_never_held_back(now: Now) -> None:
    asked: list[str] = []

    def away(verb: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            asked.append(verb)
            raise StoreUnavailable("gone")

        return call

    async def body() -> None:
        app = Dibs("memory://")
        inner = app.hub.engine._engine  # type: ignore[attr-defined]
        for verb in ("counts", "beat"):
            setattr(inner, verb, away(verb))
        hub = type(app.hub)(inner, clock=app.hub.clock, codec=app.hub.codec, defaults=app.hub.defaults, url="memory://")
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                await hub.engine.counts()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="gone"):
                await hub.engine.beat(None)  # type: ignore[arg-type]
        assert hub.breaker.refused == 10 - TOLERANCE

    asyncio.run(body())
    assert asked == ["counts"] * TOLERANCE + ["beat"] * 2
