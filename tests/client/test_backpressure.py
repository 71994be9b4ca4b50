"""Full queues: when to try again, and producers that wait for room."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from dibs import Dibs, State
from dibs.client import producer
from dibs.core.times import MINUTE
from dibs.engines.figures import Counter, Minute
from dibs.engines.values import Beat
from dibs.errors import QueueFull
from dibs.testing import ManualClock

from .conftest import TIMEOUT


@pytest.fixture
def full(still: Dibs) -> Dibs:
    """An app whose queue takes ten tasks, and has them."""

    @still.task(name="work")
    def work(number: int = 0) -> None: ...

    still.queues.set("default", max_depth=10)
    still.enqueue_many([work.call() for _ in range(10)])
    return still


def ended(app: Dibs, clock: ManualClock, ago: int, **numbers: int) -> None:
    """A worker reports what it did so many minutes ago."""
    minute = Minute(minute=clock.now() // MINUTE - ago, worker="w", queue="default", tier="medium", **numbers)
    beat = Beat(id="w", host="h", pid=1, version="1", queues=("default",), names=None, minutes=[minute])
    app.hub.runner.run(app.hub.engine.beat(beat, now=clock.now()))


def refused(app: Dibs, number: int = 1) -> QueueFull:
    work = app.task_named("work")
    with pytest.raises(QueueFull) as caught:
        work.enqueue() if number == 1 else app.enqueue_many([work.call() for _ in range(number)])
    return caught.value


def test_retry_after_follows_the_pace_of_the_queue(full: Dibs, dibs_clock: ManualClock) -> None:
    dibs_clock.move_to_instant(dibs_clock.now() // MINUTE * MINUTE)
    ended(full, dibs_clock, 1, completed=20, dead=5, cancelled=5, failed=100)
    error = refused(full)
    assert error.retry_after == 2.0, "30 tasks have left it in a minute"
    assert str(error) == (
        "queue 'default' is full (max_depth 10). At its present pace it has room for 1 task in 2.0 s. Try again in "
        "2 s, wait for room with using(block=seconds), or raise its max_depth."
    )


def test_a_batch_waits_longer(full: Dibs, dibs_clock: ManualClock) -> None:
    dibs_clock.move_to_instant(dibs_clock.now() // MINUTE * MINUTE)
    ended(full, dibs_clock, 2, completed=60)
    error = refused(full, 5)
    assert error.retry_after == 10.0, "60 tasks in two minutes"
    assert "room for 5 tasks in 10.0 s" in str(error)


def test_retry_after_has_bounds(full: Dibs, dibs_clock: ManualClock) -> None:
    dibs_clock.move_to_instant(dibs_clock.now() // MINUTE * MINUTE)
    ended(full, dibs_clock, 2, completed=1)
    slow = refused(full, 5)
    assert slow.retry_after == 60.0
    assert "room for 5 tasks in 10 min. Try again in 60 s" in str(slow), "neither number is a lie"
    full.hub.full_queues.clear()
    ended(full, dibs_clock, 1, completed=1_000_000)
    assert refused(full).retry_after == 0.1


def test_without_a_pace_nothing_is_claimed(full: Dibs, dibs_clock: ManualClock) -> None:
    ended(full, dibs_clock, 5, completed=1000)
    error = refused(full)
    assert error.retry_after == 5.0
    assert "None of its tasks has ended lately, so nobody knows when it has room. Try again in 5 s" in str(error)


def test_a_paused_queue_says_so(full: Dibs, dibs_clock: ManualClock) -> None:
    ended(full, dibs_clock, 1, completed=1000)
    full.queues.pause("default")
    error = refused(full)
    assert error.retry_after == 5.0
    assert "is full (max_depth 10) and paused, so nothing makes room until it is resumed." in str(error)


def test_a_batch_that_never_fits(full: Dibs, dibs_clock: ManualClock) -> None:
    ended(full, dibs_clock, 1, completed=1000)
    error = refused(full, 11)
    assert error.retry_after == 60.0
    assert "a batch of 11 tasks never fits. Split it, or raise max_depth." in str(error)


def test_many_refusals_read_once(full: Dibs) -> None:
    for _ in range(20):
        refused(full)
    assert calls(full, "stats") <= 2, "what was read half a second ago will do"


def test_awaiting_raises_the_same(full: Dibs, dibs_clock: ManualClock) -> None:
    dibs_clock.move_to_instant(dibs_clock.now() // MINUTE * MINUTE)
    ended(full, dibs_clock, 1, completed=30)
    with pytest.raises(QueueFull) as caught:
        asyncio.run(full.task_named("work").aenqueue())
    assert caught.value.retry_after == 2.0


# Producers that wait.


def calls(app: Dibs, verb: str) -> int:
    return app.hub.meters.read()[verb].calls if verb in app.hub.meters.read() else 0


def rejected(app: Dibs, counter: Counter = Counter.REJECTED) -> int:
    return app.hub.runner.run(app.hub.engine.counts()).counters["default"].get(counter, 0)


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


MakesRoom = Callable[[Dibs], object]


@pytest.mark.parametrize(
    "make_room",
    [
        lambda app: app.claim(),
        lambda app: app.tasks.cancel(app.peek()[0].id),
        lambda app: app.tasks.edit(app.peek()[0].id, delay=60),
        lambda app: app.queues.set("default", max_depth=11),
    ],
    ids=["claim", "cancel", "postpone", "max_depth"],
)
def test_a_producer_is_woken_by_room(full: Dibs, make_room: MakesRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tries once, once more when it listens, and once when there is room; and counts as one refusal."""
    monkeypatch.setattr(producer, "LOOK_AGAIN", 10 * TIMEOUT)
    work = full.task_named("work")
    before = calls(full, "enqueue")
    states: list[State] = []
    waiting = threading.Thread(target=lambda: states.append(work.using(block=TIMEOUT).enqueue(1).refresh().state))
    waiting.start()
    eventually(lambda: calls(full, "enqueue") == before + 2)
    make_room(full)
    waiting.join(TIMEOUT)
    assert states == [State.PENDING]
    assert calls(full, "enqueue") <= before + 4
    assert rejected(full) == 1


def test_a_producer_that_gives_up_counts_once(full: Dibs) -> None:
    with pytest.raises(QueueFull):
        full.task_named("work").using(block=0.01).enqueue()
    with pytest.raises(QueueFull):
        asyncio.run(full.task_named("work").using(block=0.01).aenqueue())
    assert rejected(full) == 2


def test_waiting_for_a_token_counts_once(still: Dibs) -> None:
    @still.task(name="work")
    def work() -> None: ...

    still.queues.set("default", enqueue_rate=0.1)
    work.enqueue()
    with pytest.raises(Exception, match="enqueues faster"):
        work.using(block=0.01).enqueue()
    assert rejected(still, Counter.LIMITED) == 1


def test_a_queue_that_drains_wakes_its_producers(full: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "LOOK_AGAIN", 10 * TIMEOUT)
    work = full.task_named("work")
    before = calls(full, "enqueue")
    errors: list[str] = []

    def produce() -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is checked below
            work.using(block=TIMEOUT).enqueue(1)
        errors.append(type(caught.value).__name__)

    waiting = threading.Thread(target=produce)
    waiting.start()
    eventually(lambda: calls(full, "enqueue") == before + 2)
    full.queues.drain("default")
    waiting.join(TIMEOUT)
    assert errors == ["QueueDraining"]
