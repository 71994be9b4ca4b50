"""`why`, of tasks in each state and of those that wait for others, a limit or their tenant's turn; and of schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dibs import Dibs, State
from dibs.core.limits import Scope
from dibs.core.task import WorkerState
from dibs.engines.values import Beat
from dibs.errors import UnknownTask
from dibs.testing import ManualClock


@pytest.fixture
def shop(still: Dibs) -> Dibs:
    @still.task(name="work")
    def work(number: int = 0) -> None: ...

    @still.task(name="other")
    def other() -> None: ...

    return still


def add(app: Dibs, name: str = "work", **options: Any) -> str:
    return app.task_named(name).using(**options).enqueue().id


def beat(app: Dibs, **facts: Any) -> None:
    """A worker that says it is there."""
    plain: dict[str, Any] = {
        "id": "w1",
        "host": "here",
        "pid": 1,
        "version": "1",
        "queues": ("default", "etl"),
        "names": ("work", "other"),
    }
    sign = Beat(**{**plain, **facts})
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


# Limits: the one that is full, its figures, and what frees it.


def test_the_queue_is_full(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.queues.set("default", max_concurrent=1)
    first = add(shop, priority=90)
    task = add(shop)
    beat(shop)
    assert len(shop.claim(limit=5)) == 1
    worker = shop.tasks.get(first).worker
    dibs_clock.advance(3)
    assert str(shop.why(task)) == (
        f"queue 'default' is at its limit: 1 of 1 running, by work {first} on {worker} for 3.0 s; "
        "it waits for one to end."
    )


def test_the_task_is_limited(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.queues.set("default", per_task={"work": 2})
    for _ in range(2):
        add(shop)
        dibs_clock.advance(1)
        shop.claim()
    add(shop, "other")
    shop.claim()
    task = add(shop)
    beat(shop)
    longest = shop.tasks.search().tasks[-1]
    assert str(shop.why(task)) == (
        f"task 'work' in queue 'default' is at its limit: 2 of 2 running, the longest work {longest.id} on "
        f"{longest.worker} for 1.0 s; it waits for one to end."
    )


def test_the_partition_is_limited(shop: Dibs) -> None:
    shop.queues.set("default", per_partition=1, max_concurrent=5)
    other, mine = add(shop, per="beta"), add(shop, per="acme")
    shop.claim(limit=2)
    task = add(shop, per="acme")
    beat(shop)
    why = shop.why(task)
    assert str(why).startswith(
        f"partition 'acme' of queue 'default' is at its limit: 1 of 1 running, by work {mine} on "
    )
    assert other not in str(why)
    assert why.details == ("Limit: queue 'default', 2 of 5 running.",)
    assert [(state.scope, state.whose) for state in shop.queues.full_limits("default")] == [(Scope.PARTITION, "acme")]


def test_there_are_no_start_tokens(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.queues.set("default", rate=0.5, burst=1)
    add(shop, priority=90)
    task = add(shop)
    beat(shop)
    shop.claim(limit=5)
    dibs_clock.advance(0.4)
    why = shop.why(task)
    assert str(why) == (
        "queue 'default' is at its limit: 0 start tokens at 0.5 per second; the next is there in 1.6 s."
    )
    assert why.until == dibs_clock.time + timedelta(seconds=1.6)
    dibs_clock.advance(1.6)
    why = shop.why(task)
    assert str(why).startswith("it is next in queue 'default'")
    assert why.details == ("Limit: queue 'default', 1 start token at 0.5 per second.",)


# Shares.


def test_other_tenants_go_first(shop: Dibs) -> None:
    shop.queues.set("default", fair=True, weights={"beta": 3})
    beat(shop)
    add(shop, tenant="acme", priority=90)
    shop.claim()
    for tenant in ("beta", "beta", "beta", "gamma"):
        add(shop, tenant=tenant)
    task = add(shop, tenant="acme", priority=90)
    why = shop.why(task)
    assert "before it in queue 'default' (its effective priority is 90.0)" in str(why)
    assert why.details == (
        "Fair shares: 2 tenants go before tenant 'acme', whose next task starts after at most 6 starts of others.",
    )
    assert [(each.tenant, each.pending, each.weight) for each in shop.queues.tenants("default")] == [
        ("beta", 3, 3.0),
        ("gamma", 1, 1.0),
        ("acme", 1, 1.0),
    ]


def test_the_bound_of_a_fair_queue(shop: Dibs) -> None:
    shop.queues.set("default", fair=True)
    assert str(shop.bound()).endswith(
        "this holds within a tenant, whose first task starts after at most 2 starts of each other tenant that has "
        "pending tasks"
    )
    shop.queues.set("default", weights={"acme": 2})
    assert str(shop.bound()).endswith("(⌊v/w⌋ + 1 of one that weighs v, against w)")


# Waiting for others: down to what holds it up.


def test_it_waits_for_one_that_runs(shop: Dibs, dibs_clock: ManualClock) -> None:
    first = add(shop)
    shop.claim()
    worker = shop.tasks.get(first).worker
    task = add(shop, after=[first])
    dibs_clock.advance(2)
    assert str(shop.why(task)) == f"it waits for work {first}: it is running: on {worker} for 2.0 s, lease 1."


def test_it_waits_for_several_and_the_one_in_trouble_is_named(shop: Dibs) -> None:
    beat(shop)
    done, fine, paused = add(shop, priority=90), add(shop), add(shop, queue="etl")
    shop.settle(shop.claim()[0])
    shop.queues.pause("etl")
    task = add(shop, after=[done, fine, paused])
    assert str(shop.why(task)) == (
        f"it waits for 2 of 3 tasks, among them work {paused}: "
        "queue 'etl' is paused: nothing is handed out until it is resumed."
    )
    shop.queues.resume("etl")
    assert f"among them work {fine}: it is next in queue 'default'" in str(shop.why(task))


def test_the_root_of_a_chain_is_named(shop: Dibs) -> None:
    beat(shop)
    extract = add(shop, "other", delay=60)
    transform = add(shop, after=[extract])
    load = add(shop, after=[transform])
    why = shop.why(load)
    assert str(why) == (
        f"it waits for work {transform}; at the root of that is other {extract}: it is scheduled: due in 60.0 s, at "
        "2026-01-01 12:01:00 UTC."
    )
    assert why.details == (
        f"work {load} waits for work {transform}.",
        f"work {transform} waits for other {extract}.",
    )


def test_long_chains_are_followed_for_a_while(shop: Dibs) -> None:
    ids = [add(shop)]
    for _ in range(8):
        ids.append(add(shop, after=[ids[-1]]))
    why = shop.why(ids[-1])
    assert str(why).endswith(
        f"at the root of that is work {ids[3]}: it waits for others itself (`dibs why {ids[3]}` goes on from there)."
    )
    assert len(why.details) == 5


def test_a_diamond_is_no_circle(shop: Dibs) -> None:
    top = add(shop)
    middle = [add(shop, after=[top]), add(shop, after=[top])]
    bottom = add(shop, after=middle)
    assert f"at the root of that is work {top}: no worker serves" in str(shop.why(bottom))


def test_it_ended_because_of_another(shop: Dibs) -> None:
    first = add(shop)
    second = add(shop, after=[first])
    third = add(shop, after=[second])
    shop.settle(shop.claim()[0], "permanent", error="broken")
    assert shop.tasks.get(third).state is State.CANCELLED
    why = str(shop.why(third))
    assert why.startswith("it is cancelled (reason dependency: ")
    assert f"It waited for work {second}; at the root of that is work {first}: it is dead (reason permanent" in why


def test_what_else_is_worth_knowing(shop: Dibs, dibs_clock: ManualClock) -> None:
    beat(shop)
    task = add(shop, priority=30, expires=90)
    add(shop, priority=80, after=[task])
    dibs_clock.advance(60)
    assert shop.why(task).details == (
        "It has priority 80 instead of 30: a task that waits for it does.",
        "It expires in 30.0 s, at 2026-01-01 12:01:30 UTC: unless started by then it is cancelled.",
    )


# Schedules, by name.


def test_a_schedule(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.schedules.set("nightly", "work", every=3600, overlap="skip")
    why = shop.why("nightly")
    assert str(why) == (
        "schedule 'nightly' is due in 60 min, at 2026-01-01 13:00:00 UTC, but no worker is running that could fire it: "
        "start one with `dibs worker`."
    )
    beat(shop)
    why = shop.why("nightly")
    assert str(why) == "schedule 'nightly' fires next in 60 min, at 2026-01-01 13:00:00 UTC."
    assert why.until == dibs_clock.time + timedelta(hours=1)
    shop.schedules.pause("nightly")
    assert str(shop.why("nightly")) == "schedule 'nightly' is paused: it does not fire until it is resumed."
    shop.schedules.resume("nightly")
    dibs_clock.advance(3600 + 90)
    assert str(shop.why("nightly")) == ("schedule 'nightly' is overdue by 90.0 s: no worker leads, so none fires it.")
    shop.queues.set("default", max_depth=1)
    add(shop)
    assert "queue 'default' is full: it fires when there is room" in str(shop.why("nightly"))
    shop.queues.drain("default")
    assert "queue 'default' is draining: it fires when resumed" in str(shop.why("nightly"))
    shop.queues.resume("default")
    shop.queues.set("default", max_depth=None)
    (last,) = shop.hub.runner.run(shop.hub.engine.fire(now=dibs_clock.now())).tasks
    assert shop.why("nightly").details == (f"It will be skipped if its last task, work {last}, is still pending then.",)
    with pytest.raises(UnknownTask):
        shop.why("nightyl")


# What comes next: promotions and deadlines.


def test_when_the_next_tier_comes(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.queues.set("default", policy="tiers", promote_low=600, promote_medium=1200)
    task = add(shop, priority="low")
    beat(shop)
    dibs_clock.advance(60)
    assert shop.why(task).details == ("It is promoted to the next tier in 9 min, at 2026-01-01 12:10:00 UTC.",)
    assert shop.tasks.get(task).rerank_at == dibs_clock.time + timedelta(minutes=9)
    dibs_clock.advance(600)
    assert shop.why(task).details == ("It is promoted to the next tier with the next claim.",)


def test_when_the_next_step_of_a_deadline_comes(shop: Dibs, dibs_clock: ManualClock) -> None:
    task = add(shop, deadline=3 * 3600)
    assert shop.why(task).details == ("Its deadline makes it more urgent in 2.2 h, at 2026-01-01 14:10:00 UTC.",)
    assert add(shop) != task
    assert shop.why(add(shop)).details == ()


def test_when_ageing_ends(shop: Dibs) -> None:
    shop.queues.set("default", max_aging_bonus=10, aging=60)
    assert shop.why(add(shop)).details == (
        "Its priority stops rising with its wait in 10 min, at 2026-01-01 12:10:00 UTC.",
    )


def test_the_holder_of_a_partition_is_named_behind_many_others(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.queues.set("default", per_partition=1)
    beat(shop)
    held = add(shop, per="ada")
    shop.claim()
    for number in range(5):
        add(shop, per=f"p{number}")
    shop.claim(limit=5)
    dibs_clock.advance(10)
    assert f"by work {held} on " in str(shop.why(add(shop, per="ada")))
