"""`@app.schedule` and `app.schedules`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs import Dibs, State
from dibs.client.schedules import ScheduleInfo
from dibs.core.recurrence import CatchUp, Overlap
from dibs.core.task import NewTask
from dibs.engines.values import Fired
from dibs.errors import (
    InvalidArguments,
    InvalidOption,
    PayloadTooLarge,
    QueueDraining,
    UnknownSchedule,
)
from dibs.testing import ManualClock, Sandbox

from .conftest import TIMEOUT, MakeApp

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
"""Where `dibs_clock` starts; a Thursday."""


def fire(app: Dibs) -> Fired:
    """What a leading worker does."""
    return app.hub.runner.run(app.hub.engine.fire(now=app.hub.clock.store_now()))


def declare(app: Dibs) -> None:
    """What a worker does when it starts."""
    for each in app.hub.schedules.values():
        verb = app.hub.engine.set_schedule(
            each.name, each.recurrence, each.task, declared=True, now=app.hub.clock.store_now()
        )
        app.hub.runner.run(verb)


def template(app: Dibs, name: str) -> NewTask:
    return app.hub.schedules[name].task


# Declaring.


def test_a_schedule_is_declared_on_a_task(still: Dibs) -> None:
    @still.schedule("0 9 * * mon-fri", tz="Europe/Zurich", jitter=30, catch_up="skip", overlap="skip")
    @still.task(name="report", queue="slow", priority="high", retries=1)
    def report() -> None: ...

    assert report.name == "report"
    declared = still.hub.schedules["report"]
    assert (declared.recurrence.cron, declared.recurrence.tz, declared.recurrence.jitter) == (
        "0 9 * * mon-fri",
        "Europe/Zurich",
        30_000_000,
    )
    assert (declared.recurrence.catch_up, declared.recurrence.overlap) == (CatchUp.SKIP, Overlap.SKIP)
    task = declared.task
    assert (task.id, task.queue, task.spec.priority, task.options.retries, task.client) == ("", "slow", 70, 1, "")
    assert still.schedules.list() == []  # workers tell the store


def test_a_plain_function_becomes_a_task(still: Dibs) -> None:
    @still.schedule(every=timedelta(minutes=5))
    async def tick() -> None: ...

    assert tick.name in still.hub.definitions
    assert still.hub.schedules[tick.name].recurrence.every == 300_000_000
    assert tick.enqueue().refresh().state is State.PENDING


def test_arguments_and_options(still: Dibs) -> None:
    @still.task(name="report")
    def report(region: str, *, depth: int = 1) -> None: ...

    still.schedule(every=60, name="eu", kwargs={"region": "eu", "depth": 2})(report)
    still.schedule(every=60, name="us", args=["us"])(report.using(queue="far", tenant="acme", expires=30, deadline=20))
    assert template(still, "eu").args == b'{"region":"eu","depth":2}'
    us = template(still, "us")
    assert (us.args, us.queue, us.spec.tenant, us.spec.expires_at, us.spec.deadline) == (
        b'{"region":"us"}',
        "far",
        "acme",
        30_000_000,
        20_000_000,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kwargs": {"region": 7}}, "don't fit its signature"),
        ({"kwargs": {"regoin": "eu"}}, "no parameter 'regoin'"),
        ({}, "needs an argument 'region'"),
    ],
)
def test_arguments_are_checked_when_they_are_said(still: Dibs, options: dict[str, Any], message: str) -> None:
    @still.task(name="report")
    def report(region: str) -> None: ...

    with pytest.raises(InvalidArguments, match=message):
        still.schedule(every=60, **options)(report)
    assert still.hub.schedules == {}


def test_wrong_shapes_are_refused(still: Dibs) -> None:
    @still.task(name="report")
    def report(region: str) -> None: ...

    with pytest.raises(InvalidOption, match=r"give the arguments of report as args=\[…\] and kwargs=\{…\}"):
        still.schedule(every=60, args="eu")(report)
    with pytest.raises(InvalidOption, match="needs to know when it fires"):
        still.schedule()(report)
    with pytest.raises(InvalidOption, match="needs five fields"):
        still.schedule("9")(report)
    with pytest.raises(InvalidOption, match="Europe/Zurich"):
        still.schedule("0 9 * * *", tz="Europe/Zürich")
    with pytest.raises(PayloadTooLarge, match="a schedule keeps at most 262,144"):
        still.schedule(every=60, args=["x" * 300_000])(report)


@pytest.mark.parametrize(
    "options",
    [
        {"key": "k"},
        {"delay": 5},
        {"at": NOON},
        {"deadline": NOON},
        {"expires": NOON + timedelta(days=1)},
        {"id": "0190163d-8694-739b-aea5-966c26f8ad91"},
        {"block": 5},
        {"connection": object()},
        {"after": ["0190163d-8694-739b-aea5-966c26f8ad91"]},
    ],
)
def test_what_only_one_task_can_have_is_refused(still: Dibs, options: dict[str, Any]) -> None:
    @still.task(name="report")
    def report() -> None: ...

    with pytest.raises(InvalidOption, match=f"a schedule can't have {next(iter(options))}=…: "):
        still.schedule(every=60)(report.using(**options))
    with pytest.raises(InvalidOption, match="a schedule can't have"):
        still.schedules.set("nightly", report.using(**options), every=60)


def test_a_second_schedule_needs_a_name(still: Dibs) -> None:
    @still.schedule(every=60)
    @still.schedule(every=3600, name="hourly")
    @still.task(name="report")
    def report() -> None: ...

    assert set(still.hub.schedules) == {"report", "hourly"}
    with pytest.raises(InvalidOption, match=r"two schedules are called 'report'.*name=…"):
        still.schedule(every=5)(report)


def test_a_task_of_another_app_is_refused(still: Dibs, make_app: MakeApp) -> None:
    @make_app().task(name="report")
    def report() -> None: ...

    with pytest.raises(InvalidOption, match="another app's"):
        still.schedule(every=60)(report)


def test_declarations_are_the_same_on_every_host(make_app: MakeApp) -> None:
    templates = []
    for host in ("one", "two"):
        app = make_app(client=host)

        @app.schedule(every=60)
        @app.task(name="report")
        def report() -> None: ...

        marked = report.using(metadata={"parts": (1, 2)})
        app.schedule(every=60, name="marked")(marked)
        templates.append((template(app, "report"), template(app, "marked")))
    assert templates[0] == templates[1]
    assert templates[0][1].spec.metadata == {"parts": [1, 2]}  # as the store gives it back


# Setting, looking, changing.


@pytest.fixture
def shop(still: Dibs) -> Dibs:
    @still.task(name="report", queue="slow")
    def report(region: str = "eu") -> str:
        return region

    return still


def test_set_and_get(shop: Dibs) -> None:
    made = shop.schedules.set("nightly", "report", cron="30 2 * * *", tz="Europe/Zurich", kwargs={"region": "us"})
    assert made == shop.schedules.get("nightly")
    assert shop.schedules.list() == [made]
    assert made == ScheduleInfo(
        name="nightly",
        words="At 02:30 every day, Europe/Zurich",
        task="report",
        queue="slow",
        priority=50,
        args={"region": "us"},
        cron="30 2 * * *",
        every=None,
        tz="Europe/Zurich",
        jitter=0.0,
        catch_up=CatchUp.ONE,
        catch_up_limit=100,
        overlap=Overlap.ALLOW,
        paused=False,
        next_fire_at=datetime(2026, 1, 2, 1, 30, tzinfo=UTC),
        last_fire_at=None,
        last_task=None,
        fired=0,
        skipped=0,
        created_at=NOON,
        declared=False,
        declared_at=None,
        stale=False,
    )


def test_set_again_replaces(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.schedules.set("often", "report", every=300)
    dibs_clock.advance(100)
    same = shop.schedules.set("often", shop.task_named("report").using(priority=90), every=300)
    assert (same.priority, same.next_fire_at) == (90, NOON + timedelta(seconds=300))  # it goes on
    other = shop.schedules.set("often", "report", every=60)
    assert (other.every, other.next_fire_at) == (60.0, NOON + timedelta(seconds=160))  # it starts again
    with pytest.raises(InvalidOption, match="a schedule's name"):
        shop.schedules.set("every now and then", "report", every=300)
    with pytest.raises(InvalidOption, match=r"no task is called 'reprot' here. Did you mean 'report'"):
        shop.schedules.set("often", "reprot", every=300)


def test_it_fires(shop: Dibs, dibs_clock: ManualClock) -> None:
    task = shop.task_named("report").using(priority="high", deadline=60, expires=90, metadata={"by": "clock"})
    shop.schedules.set("often", task, every=300)
    assert fire(shop) == Fired([], 0, 300_000_000)
    dibs_clock.advance(300)
    (task_id,) = fire(shop).tasks
    info = shop.tasks.get(task_id)
    assert (info.name, info.queue, info.priority, info.state) == ("report", "slow", 70, State.PENDING)
    assert (info.metadata, info.parent) == ({"by": "clock"}, None)
    assert info.headers == {"schedule": "often", "fire-time": "2026-01-01T12:05:00+00:00"}
    assert (info.deadline, info.expires_at) == (NOON + timedelta(seconds=360), NOON + timedelta(seconds=390))
    schedule = shop.schedules.get("often")
    assert (schedule.fired, schedule.last_task) == (1, task_id)
    assert (schedule.last_fire_at, schedule.next_fire_at) == (
        NOON + timedelta(seconds=300),
        NOON + timedelta(seconds=600),
    )


def test_pause_and_resume(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.schedules.set("often", "report", every=300)
    assert shop.schedules.pause("often") is True
    assert shop.schedules.pause("often") is False
    dibs_clock.advance(1000)
    assert fire(shop).tasks == []
    assert (shop.schedules.get("often").next_fire_at, shop.schedules.upcoming("often")) == (None, [])
    assert shop.schedules.resume("often") is True
    assert shop.schedules.resume("often") is False
    assert fire(shop) == Fired([], 0, 300_000_000)  # what was missed is not caught up


def test_delete(shop: Dibs) -> None:
    shop.schedules.set("often", "report", every=300)
    handle = shop.schedules.run_now("often")
    shop.schedules.delete("often")
    assert shop.schedules.list() == []
    assert handle.refresh().state is State.PENDING


def test_unknown_schedules(shop: Dibs) -> None:
    shop.schedules.set("nightly", "report", every=300)
    for act in (
        shop.schedules.get,
        shop.schedules.pause,
        shop.schedules.resume,
        shop.schedules.delete,
        shop.schedules.run_now,
        shop.schedules.upcoming,
    ):
        with pytest.raises(UnknownSchedule, match=r"no schedule is called 'nightyl'. Did you mean 'nightly'?"):
            act("nightyl")


def test_run_now(shop: Dibs, dibs_clock: ManualClock) -> None:
    task = shop.task_named("report").using(expires=60)
    shop.schedules.set("often", task, every=300, jitter=200, kwargs={"region": "us"})
    shop.schedules.pause("often")
    dibs_clock.advance(10)
    handle = shop.schedules.run_now("often")
    info = handle.refresh()
    assert (info.state, info.args) == (State.PENDING, {"region": "us"})  # no jitter, also while paused
    assert info.headers["schedule"] == "often"
    assert info.expires_at == dibs_clock.time + timedelta(seconds=60)
    assert shop.schedules.run_now("often").id != handle.id
    shop.settle(shop.claim(["slow"])[0], result="us")
    assert handle.result(TIMEOUT) == "us"
    assert shop.schedules.get("often").fired == 0
    shop.queues.drain("slow")
    with pytest.raises(QueueDraining):
        shop.schedules.run_now("often")


def test_upcoming_is_on_the_clock_of_its_zone(shop: Dibs) -> None:
    shop.schedules.set("nightly", "report", cron="30 2 * * *", tz="Europe/Zurich")
    moments = shop.schedules.upcoming("nightly", 3)
    assert [moment.isoformat() for moment in moments] == [
        "2026-01-02T02:30:00+01:00",
        "2026-01-03T02:30:00+01:00",
        "2026-01-04T02:30:00+01:00",
    ]
    with pytest.raises(InvalidOption, match="count"):
        shop.schedules.upcoming("nightly", 0)


def test_declared_schedules_become_stale(shop: Dibs, dibs_clock: ManualClock) -> None:
    shop.schedule(every=300, name="often")(shop.task_named("report"))
    declare(shop)
    info = shop.schedules.get("often")
    assert (info.declared, info.declared_at, info.stale) == (True, NOON, False)
    dibs_clock.advance(15 * 60)
    assert shop.schedules.get("often").stale is False
    dibs_clock.advance(1)
    assert shop.schedules.get("often").stale is True
    declare(shop)
    assert shop.schedules.get("often").stale is False


def test_the_async_forms(shop: Dibs) -> None:
    async def use() -> None:
        schedules = shop.schedules
        made = await schedules.aset("often", "report", every=300)
        assert await schedules.aget("often") == made
        assert await schedules.alist() == [made]
        assert await schedules.apause("often")
        assert await schedules.aresume("often")
        assert (await (await schedules.arun_now("often")).arefresh()).state is State.PENDING
        assert len(await schedules.aupcoming("often", 2)) == 2
        await schedules.adelete("often")
        assert await schedules.alist() == []

    asyncio.run(use())


def test_a_task_may_set_schedules(shop: Dibs) -> None:
    """What is running belongs to the run, not to the tasks of the schedule."""

    @shop.task(name="plan")
    def plan() -> None:
        shop.schedules.set("often", "report", every=300)

    with Sandbox(shop) as sandbox:
        plan.using(headers={"trace": "t1"}).enqueue()
        sandbox.run_due()
        (record,) = shop.hub.runner.run(shop.hub.engine.schedules())
        assert (record.task.spec.parent, record.task.spec.headers) == (None, {})
