"""`app.stats` and `app.series`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dibs import Dibs, State
from dibs.client.series import MOST_POINTS
from dibs.core.times import MINUTE
from dibs.engines.base import Engine
from dibs.engines.figures import Minute
from dibs.engines.values import Beat
from dibs.errors import InvalidOption
from dibs.testing import ManualClock

from .conftest import TIMEOUT


@pytest.fixture
def shop(still: Dibs) -> Dibs:
    @still.task(name="work", retries=1)
    def work(number: int = 0) -> None: ...

    return still


def add(app: Dibs, **options: object) -> str:
    return app.task_named("work").using(**options).enqueue().id  # type: ignore[arg-type]


def beat(app: Dibs, minutes: list[Minute]) -> None:
    """A worker that reports what it did."""
    said = Beat(id="w1", host="h", pid=1, version="1", queues=("default",), names=None, minutes=minutes)
    app.hub.runner.run(app.hub.engine.beat(said, now=app.hub.clock.now()))


def minute(app: Dibs, ago: int = 0, queue: str = "default", tier: str = "medium", **facts: Any) -> Minute:
    return Minute(minute=app.hub.clock.now() // MINUTE - ago, worker="w1", queue=queue, tier=tier, **facts)


# What is there, and what happened lately.


def test_what_workers_report_adds_up(shop: Dibs, dibs_clock: ManualClock) -> None:
    add(shop)
    dibs_clock.advance(120)
    beat(
        shop,
        [
            minute(shop, 1, completed=8, failed=2, dead=1),
            minute(shop, tier="high", completed=2, cancelled=1),
            minute(shop, queue="mail", completed=90),
        ],
    )
    stats = shop.stats("default", window=timedelta(minutes=10))
    assert (stats.completed, stats.failed, stats.dead, stats.cancelled) == (10, 2, 1, 1)
    assert stats.error_rate == pytest.approx(2 / 12)
    assert stats.oldest_pending_seconds == 120
    assert (stats.workers_active, stats.counts[State.PENDING]) == (1, 1)
    assert stats.counters["enqueued"] == 1
    assert shop.stats(window=600).completed == 100


def test_rates_refer_to_the_time_of_which_there_are_figures(shop: Dibs, dibs_clock: ManualClock) -> None:
    """A worker that has just started is as fast as it is, however long the window."""
    dibs_clock.advance(-(dibs_clock.now() // 1_000_000 % 60) + 60)
    beat(shop, [minute(shop, 1, completed=60), minute(shop, completed=60)])
    assert shop.stats(window=timedelta(minutes=1)).throughput_per_second == 2.0  # both, within a minute
    assert shop.stats(window=timedelta(days=7)).throughput_per_second == 2.0
    dibs_clock.advance(60)
    assert shop.stats(window=timedelta(days=7)).throughput_per_second == 1.0
    dibs_clock.advance(3600)
    assert shop.stats(window=timedelta(minutes=1)).throughput_per_second == 0.0


def test_a_real_worker(app: Dibs) -> None:
    @app.task(retries=0)
    def work(number: int) -> int:
        return 10 // number

    handles = [work.using(priority=70).enqueue(number) for number in range(5)]
    with app.worker():
        app.wait(handles, TIMEOUT)
    stats = app.stats("default")
    assert (stats.completed, stats.failed, stats.dead) == (4, 1, 1)
    assert stats.run.count == 5
    assert stats.run.p50 is not None
    assert stats.wait_by_tier["high"].count == 5
    assert stats.wait_by_tier["low"].p99 is None
    assert (stats.counters["completions"], stats.counters["failures"], stats.deaths["exhausted"]) == (4, 1, 1)
    assert stats.errors == {"ZeroDivisionError": 1}
    assert stats.by_name[work.name]["completions"] == stats.by_tier["high"]["completions"] == 4


def test_pending_by_tier(shop: Dibs, dibs_clock: ManualClock) -> None:
    add(shop, priority="low")
    dibs_clock.advance(60)
    add(shop, priority=25)
    add(shop, priority=80, queue="other")
    stats = shop.stats()
    assert stats.priority_distribution == {"low": 2, "medium": 0, "high": 0, "critical": 1}
    assert stats.oldest_by_tier == {"low": 60.0, "medium": None, "high": None, "critical": 0.0}
    assert stats.oldest_pending_seconds == 60
    assert shop.stats("other").oldest_pending_seconds == 0
    assert shop.stats("other").priority_distribution["low"] == 0


def test_totals_by_reason(shop: Dibs) -> None:
    shop.queues.set("default", enqueue_rate=1, enqueue_burst=3)
    ids = [add(shop) for _ in range(3)]
    with pytest.raises(Exception, match="rate"):
        shop.task_named("work").enqueue()
    shop.tasks.cancel(ids[0])
    (claim,) = shop.claim()
    shop.settle(claim, "permanent", error="broken")
    stats = shop.stats("default")
    assert stats.limited == stats.counters["limited"] == 1
    assert stats.counters["rejected"] == 0
    assert stats.cancellations == {"user": 1, "expired": 0, "dependency": 0}
    assert stats.deaths == {"exhausted": 0, "permanent": 1, "lost": 0, "dependency": 0, "queue": 0}
    assert stats.promotions == {"medium": 0, "high": 0}


class NoTasks:
    """An engine that gives no tasks away."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __getattr__(self, verb: str) -> Any:
        assert verb not in ("get", "search", "peek", "history"), f"{verb} reads tasks"
        return getattr(self.engine, verb)


def test_no_task_is_read(shop: Dibs) -> None:
    from dibs.client.stats import read_stats

    add(shop)
    engine: Any = NoTasks(shop.hub.engine)
    stats = shop.hub.runner.run(read_stats(engine, None, MINUTE, shop.hub.clock.now()))
    assert stats.oldest_pending_seconds == 0


# Series.


def completed(app: Dibs, queue: str | None = None, **asked: Any) -> list[int]:
    return [point.completed for point in app.series(queue, **asked)]


def test_a_series_of_the_last_hour(shop: Dibs, dibs_clock: ManualClock) -> None:
    beat(shop, [minute(shop, 1, completed=3), minute(shop, completed=2), minute(shop, 80, completed=50)])
    points = shop.series()
    assert len(points) in (60, 61)
    assert [point.completed for point in points][-2:] == [3, 2]
    assert sum(point.completed for point in points) == 5
    assert points[1].at - points[0].at == timedelta(minutes=1)
    assert points[-1].at <= dibs_clock.time


def test_start_end_and_resolution(shop: Dibs, dibs_clock: ManualClock) -> None:
    beat(shop, [minute(shop, ago, completed=1, wait={100: 1}, run={120: 2}) for ago in range(60)])
    now = dibs_clock.time
    points = shop.series(start=now - timedelta(hours=1), resolution=600)
    assert {point.at.minute % 10 for point in points} == {0}
    assert sum(point.completed for point in points) == 60
    assert max(point.completed for point in points) == 10
    assert (points[2].wait.count, points[2].run.count) == (10, 20)
    assert points[2].run.p50 == points[2].run.p99
    half = shop.series(start=now - timedelta(minutes=40), end=now - timedelta(minutes=20))
    assert sum(point.completed for point in half) in (20, 21)
    assert len(half) in (20, 21)
    assert half[-1].at < now - timedelta(minutes=19)


def test_a_series_of_one_queue(shop: Dibs) -> None:
    beat(shop, [minute(shop, completed=1), minute(shop, queue="mail", completed=10)])
    assert sum(completed(shop, "mail")) == 10
    assert sum(completed(shop)) == 11
    assert sum(completed(shop, "nowhere")) == 0


def test_minutes_of_several_workers_are_one_point(shop: Dibs) -> None:
    def of(worker: str) -> Beat:
        made = Minute(minute=minute(shop).minute, worker=worker, queue="q", tier="low", completed=1, wait={50: 1})
        return Beat(id=worker, host="h", pid=1, version="1", queues=("q",), names=None, minutes=[made])

    for worker in ("w1", "w2", "w3"):
        shop.hub.runner.run(shop.hub.engine.beat(of(worker), now=shop.hub.clock.now()))
    assert shop.series()[-1].completed == shop.series()[-1].wait.count == 3


def test_seven_days_at_the_finest_resolution_that_is_given(shop: Dibs, dibs_clock: ManualClock) -> None:
    week = dibs_clock.time - timedelta(days=7)
    with pytest.raises(InvalidOption, match=r"resolution of 6 min \(360 s\) or more"):
        shop.series(start=week)
    assert 1680 <= len(shop.series(start=week, resolution=360)) <= MOST_POINTS


WRONG: list[tuple[Callable[[ManualClock], dict[str, Any]], str]] = [
    (lambda clock: {"resolution": 90}, "whole minutes"),
    (lambda clock: {"resolution": 0}, "whole minutes"),
    (lambda clock: {"resolution": "5m"}, "number of seconds"),
    (lambda clock: {"start": clock.time + timedelta(minutes=1)}, "before end"),
    (lambda clock: {"start": clock.time, "end": clock.time - timedelta(hours=1)}, "before end"),
    (lambda clock: {"start": clock.time - timedelta(days=8), "resolution": 3600}, "at most 7 days ago"),
    (lambda clock: {"start": clock.time.replace(tzinfo=None)}, "no time zone"),
    (lambda clock: {"start": "yesterday"}, "must be a datetime"),
]


@pytest.mark.parametrize(("asked", "words"), WRONG)
def test_what_no_series_can_be(
    shop: Dibs, dibs_clock: ManualClock, asked: Callable[[ManualClock], dict[str, Any]], words: str
) -> None:
    with pytest.raises(InvalidOption, match=words):
        shop.series(**asked(dibs_clock))
