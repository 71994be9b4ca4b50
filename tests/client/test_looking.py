"""`why`, `peek`, `bound`, `position` and `stats`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dibs import Dibs, State
from dibs.core.task import WorkerState
from dibs.engines.values import Beat, Minute
from dibs.errors import InvalidOption, UnknownTask
from dibs.testing import ManualClock

from .conftest import TIMEOUT


@pytest.fixture
def shop(still: Dibs) -> Dibs:
    @still.task(name="work")
    def work(number: int = 0) -> None: ...

    return still


def add(app: Dibs, **options: object) -> str:
    return app.task_named("work").using(**options).enqueue().id  # type: ignore[arg-type]


def beat(app: Dibs, **facts: object) -> None:
    """A worker that says it is there."""
    plain: dict[str, object] = {
        "id": "w1",
        "host": "here",
        "pid": 1,
        "version": "1",
        "queues": ("default",),
        "names": ("work",),
    }
    sign = Beat(**{**plain, **facts})  # type: ignore[arg-type]
    app.hub.runner.run(app.hub.engine.beat(sign, now=app.hub.clock.store_now()))


# Why: each reason in a sentence that ends with what to do, or when it ends.


def test_why_it_is_scheduled(shop: Dibs, dibs_clock: ManualClock) -> None:
    why = shop.why(add(shop, delay=90))
    assert str(why) == "it is scheduled: due in 90.0 s, at 2026-01-01 12:01:30 UTC."
    assert why.until == dibs_clock.time + timedelta(seconds=90)


def test_why_it_is_retrying(shop: Dibs) -> None:
    task = add(shop)
    shop.settle(shop.claim()[0], "failed", error=ValueError("no"), after=7200)
    assert str(shop.why(task)) == "attempt 1 of 4 failed (ValueError: no); the next run is in 2.0 h."


def test_why_it_waits_after_losses(shop: Dibs, dibs_clock: ManualClock) -> None:
    task = add(shop)
    for _ in range(2):
        shop.claim()
        dibs_clock.advance(31)
    shop.claim()
    assert str(shop.why(task)).startswith("its worker was lost 2 times; the next run is in ")


def test_why_nobody_serves_it(shop: Dibs) -> None:
    task = add(shop)
    assert str(shop.why(task)) == "no worker serves queue 'default': start one with `dibs worker`."
    beat(shop, queues=("other",))
    assert "no worker serves queue" in str(shop.why(task))


def test_why_nobody_knows_it(shop: Dibs) -> None:
    task = add(shop)
    beat(shop, names=("else",))
    assert str(shop.why(task)) == "no worker of queue 'default' knows the task 'work': deploy code that defines it."


def test_why_nobody_can(shop: Dibs) -> None:
    task = add(shop, requires=["gpu"])
    beat(shop)
    assert str(shop.why(task)) == "it requires gpu, and no worker of queue 'default' offers that."
    beat(shop, capabilities=("gpu",))
    assert "it is next in queue 'default'" in str(shop.why(task))


def test_why_all_are_paused(shop: Dibs) -> None:
    task = add(shop)
    beat(shop)
    shop.workers.pause("w1")
    assert shop.workers.list()[0].state is WorkerState.PAUSED
    assert str(shop.why(task)) == "all workers that could run it are paused: w1."


def test_why_the_queue_is_paused(shop: Dibs) -> None:
    task = add(shop)
    shop.queues.pause("default")
    assert str(shop.why(task)) == "queue 'default' is paused: nothing is handed out until it is resumed."


def test_why_others_go_first(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.queues.set("default", rate=5)
    beat(shop)
    task = add(shop, priority=40)
    add(shop, priority=90)
    dibs_clock.advance(600)
    assert str(shop.why(task)) == (
        "1 task goes before it in queue 'default' (its effective priority is 41.0), and at most 5 start per second."
    )


def test_why_it_runs(shop: Dibs, dibs_clock: ManualClock) -> None:
    task = add(shop)
    (claim,) = shop.claim()
    dibs_clock.advance(3)
    worker = shop.tasks.get(task).worker
    assert str(shop.why(task)) == f"it is running: on {worker} for 3.0 s, lease 1."
    shop.tasks.cancel(task)
    assert "it is running and has been asked to cancel" in str(shop.why(task))
    shop.settle(claim)
    assert str(shop.why(task)) == "it has completed, at 2026-01-01 12:00:03 UTC."


def test_why_it_is_dead_or_cancelled(shop: Dibs) -> None:
    first, second = add(shop, priority=90), add(shop)
    shop.settle(shop.claim()[0], "permanent", error="broken")
    shop.tasks.cancel(second, "no need")
    assert str(shop.why(first)) == (
        "it is dead (reason permanent, Error: broken) since 2026-01-01 12:00:00 UTC. Replay it to run it again."
    )
    assert str(shop.why(second)) == "it is cancelled (reason user: no need) since 2026-01-01 12:00:00 UTC."
    with pytest.raises(UnknownTask):
        shop.why("0190163d-8694-739b-aea5-966c26f8ad91")


# Peek, bound, position.


def test_peek_shows_the_order_of_claims(shop: Dibs) -> None:
    low, high, middle = add(shop, priority="low"), add(shop, priority="high"), add(shop)
    assert [info.id for info in shop.peek()] == [high, middle, low]
    assert [info.id for info in shop.peek(limit=1)] == [high]
    assert [claim.id for claim in shop.claim(limit=3)] == [high, middle, low]
    assert shop.peek("nowhere") == []
    with pytest.raises(InvalidOption, match=r"limit must be a whole number from 1 to 1,000, not 0"):
        shop.peek(limit=0)


def test_bound_says_how_long_a_task_can_be_overtaken(shop: Dibs) -> None:
    add(shop)
    bound = shop.bound()
    assert bound.between(30, 50) == timedelta(seconds=20 * 600)
    shop.queues.set("default", policy="strict")
    assert str(shop.bound()) == "none: more urgent work can overtake for ever under these settings"


def test_position_and_estimated_start(shop: Dibs, dibs_clock: ManualClock) -> None:
    first, second = add(shop, priority=90), add(shop)
    assert shop.position(first) == (0, None)
    assert shop.position(second) == (1, None)
    minute = Minute(
        minute=dibs_clock.now() // 60_000_000, worker="w1", queue="default", tier="medium", completed=30, run={}
    )
    beat(shop, minutes=[minute])
    ahead, start = shop.position(second)
    assert ahead == 1
    assert start == dibs_clock.time + timedelta(seconds=10)  # 30 in the last 300 s
    later = add(shop, delay=60)
    assert shop.position(later) == (0, dibs_clock.time + timedelta(seconds=60))
    with pytest.raises(UnknownTask):
        shop.position("0190163d-8694-739b-aea5-966c26f8ad91")


# Stats.


def test_stats_add_up_what_workers_report(shop: Dibs, dibs_clock: ManualClock) -> None:
    add(shop)
    dibs_clock.advance(120)
    now = dibs_clock.now() // 60_000_000
    minutes = [
        Minute(minute=now - 1, worker="w1", queue="default", tier="medium", completed=8, failed=2, dead=1),
        Minute(minute=now, worker="w1", queue="default", tier="high", completed=2, cancelled=1),
        Minute(minute=now, worker="w1", queue="mail", tier="high", completed=90),
    ]
    beat(shop, minutes=minutes)
    stats = shop.stats("default", window=timedelta(minutes=10))
    assert (stats.completed, stats.failed, stats.dead, stats.cancelled) == (10, 2, 1, 1)
    assert stats.throughput_per_second == pytest.approx(10 / 600)
    assert stats.error_rate == pytest.approx(2 / 12)
    assert stats.oldest_pending_seconds == 120
    assert (stats.workers_active, stats.counts[State.PENDING]) == (1, 1)
    assert stats.counters["enqueued"] == 1
    assert [point.completed for point in stats.series][-2:] == [8, 2]
    assert len(stats.series) == 11
    assert shop.stats(window=600).completed == 100


def test_stats_of_a_real_worker(app: Dibs) -> None:
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
