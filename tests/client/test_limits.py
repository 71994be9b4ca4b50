"""Limits and shares as application code meets them."""

from __future__ import annotations

import asyncio

import pytest

from dibs import Dibs
from dibs.core.settings import Limit
from dibs.errors import InvalidOption, RateLimited, UnknownTask
from dibs.testing import ManualClock

from .conftest import MakeApp

NOBODY = "0190163d-8694-739b-aea5-966c26f8ad91"


def work_of(app: Dibs) -> None:
    @app.task(name="work", per="customer")
    def work(customer: str = "acme") -> None: ...


# Enqueueing too fast.


def test_a_client_that_is_too_fast_is_told_when_to_come_back(still: Dibs, dibs_clock: ManualClock) -> None:
    work_of(still)
    still.queues.set("default", enqueue_rate=0.5, enqueue_burst=2)
    work = still.task_named("work")
    work.enqueue()
    work.enqueue()
    with pytest.raises(RateLimited, match=r"enqueues faster than queue 'default' lets .* Try again in 2 s") as caught:
        work.enqueue()
    assert caught.value.retry_after == 2.0
    dibs_clock.advance(2)
    work.enqueue()


def test_each_client_has_a_rate_of_its_own(make_app: MakeApp, dibs_clock: ManualClock) -> None:
    first = make_app(clock=dibs_clock, client="web-1")
    second = make_app(clock=dibs_clock, client="web-2", engine=first.hub.engine.sibling())
    for app in (first, second):
        work_of(app)
        app.queues.set("default", enqueue_rate=1)
        app.task_named("work").enqueue()
    with pytest.raises(RateLimited, match="client 'web-2' enqueues faster"):
        second.task_named("work").enqueue()


def test_a_batch_is_limited_as_a_whole(still: Dibs) -> None:
    work_of(still)
    still.queues.set("default", enqueue_rate=2)
    work = still.task_named("work")
    with pytest.raises(RateLimited):
        still.enqueue_many([work.call() for _ in range(3)])
    assert len(still.enqueue_many([work.call() for _ in range(2)])) == 2


def test_block_waits_for_the_next_token(app: Dibs) -> None:
    work_of(app)
    app.queues.set("default", enqueue_rate=5, enqueue_burst=1)
    work = app.task_named("work")
    handles = [work.using(block=10).enqueue() for _ in range(3)]

    async def more() -> str:
        return (await work.using(block=10).aenqueue()).id

    assert len({asyncio.run(more()), *(handle.id for handle in handles)}) == 4


def test_block_gives_up_in_the_end(still: Dibs) -> None:
    work_of(still)
    still.queues.set("default", enqueue_rate=0.1)
    work = still.task_named("work")
    work.enqueue()
    with pytest.raises(RateLimited):
        work.using(block=0.01).enqueue()  # the clock stands still


def test_waiting_for_a_task_that_is_not_there(still: Dibs) -> None:
    work_of(still)
    with pytest.raises(UnknownTask, match=f"would wait for task {NOBODY}, which is not there"):
        still.task_named("work").using(after=[NOBODY]).enqueue()


# Starting.


def test_limits_per_task_and_per_partition(still: Dibs) -> None:
    work_of(still)
    info = still.queues.set("default", per_task={"work": 3}, per_partition={"max_concurrent": 1, "rate": 5})
    assert info.settings.per_task == {"work": Limit(3)}
    assert info.settings.per_partition == Limit(1, 5.0)
    work = still.task_named("work")
    for customer in "aabbccdd":
        work.enqueue(customer)
    assert [claim.args["customer"] for claim in still.claim(limit=10)] == ["a", "b", "c"]
    still.queues.set("default", per_task={})
    assert [claim.args["customer"] for claim in still.claim(limit=10)] == ["d"]


def test_fair_shares(still: Dibs) -> None:
    work_of(still)
    still.queues.set("default", fair=True, weights={"big": 2})
    work = still.task_named("work")
    for tenant in ("big", "small"):
        for number in range(6):
            work.using(tenant=tenant).enqueue(f"{tenant}{number}")
    order = [claim.args["customer"][:-1] for claim in still.claim(limit=6)]
    assert sorted(order) == ["big"] * 4 + ["small"] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per_task": 3}, "per_task must be a mapping"),
        ({"per_partition": 0}, "max_concurrent must be a whole number"),
        ({"per_partition": {"rat": 3}}, "Did you mean 'rate'"),
        ({"per_partition": {}}, "limits nothing"),
        ({"enqueue_burst": 3}, "enqueue_burst needs an enqueue_rate"),
        ({"fair": 1}, "fair must be True or False"),
        ({"weights": {"acme": 0}}, "the weight of tenant 'acme'"),
    ],
)
def test_wrong_limits_are_refused(still: Dibs, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        still.queues.set("default", **changes)  # type: ignore[arg-type]
    assert still.queues.list() == []
