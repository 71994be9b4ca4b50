"""`app.peek`, `bound`, `position` and `stats`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dibs import Dibs
from dibs.engines.figures import Minute
from dibs.engines.values import Beat
from dibs.errors import InvalidOption, UnknownTask
from dibs.testing import ManualClock


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
    assert start == dibs_clock.time + timedelta(seconds=2)  # 30 in the minute in which there was something to do
    later = add(shop, delay=60)
    assert shop.position(later) == (0, dibs_clock.time + timedelta(seconds=60))
    with pytest.raises(UnknownTask):
        shop.position("0190163d-8694-739b-aea5-966c26f8ad91")
