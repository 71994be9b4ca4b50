"""What a server does for its store: leads, rescues, fires; starts again what breaks; and leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from worker_support import PATIENCE, record_of

from dibs.client.app import Dibs
from dibs.core.states import State
from dibs.engines.values import Feature, Query
from dibs.runtime import rescue
from dibs.worker import caretaker as module
from dibs.worker.caretaker import Caretaker


def during(app: Dibs, work: Callable[[Caretaker], Awaitable[None]]) -> None:
    """Do something while a caretaker runs."""

    async def run() -> None:
        caretaker = Caretaker(app.hub, "server-1")
        caretaker.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await work(caretaker)
        finally:
            await caretaker.stop()

    app.hub.runner.run(run())


async def eventually(holds: Callable[[], Awaitable[Any]]) -> None:
    """Within the deadline of `during`."""
    while not await holds():
        await asyncio.sleep(0.01)


def left_running() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("dibs-")]


def test_it_leads_and_lets_another_lead_at_once_when_it_stops(app: Dibs) -> None:
    engine = app.hub.engine

    async def leads(caretaker: Caretaker) -> None:
        await eventually(lambda: is_led(caretaker))
        assert await engine.lead("another") is None

    async def is_led(caretaker: Caretaker) -> bool:
        return caretaker._leads()

    during(app, leads)
    term = app.hub.runner.run(engine.lead("another"))
    assert term is not None
    assert term.number == 2


def test_starting_and_stopping_twice_and_stopping_before_the_start_are_fine(app: Dibs) -> None:
    async def storm() -> None:
        caretaker = Caretaker(app.hub, "server-1")
        await caretaker.stop()
        for _ in range(3):
            caretaker.start()
            caretaker.start()
            await asyncio.sleep(0.005)
            assert len(left_running()) >= 3
            await caretaker.stop()
            await caretaker.stop()
            assert left_running() == []
        caretaker.start()
        await caretaker.stop()
        assert left_running() == []

    app.hub.runner.run(storm())


def test_schedules_of_the_app_are_declared_and_fire(app: Dibs) -> None:
    @app.schedule(every=1)
    @app.task(name="tick")
    async def tick() -> None: ...

    async def fires(_: Caretaker) -> None:
        await eventually(lambda: found_ticks(app))

    during(app, fires)
    assert [info.name for info in app.schedules.list()] == ["tick"]


async def found_ticks(app: Dibs) -> bool:
    return bool((await app.hub.engine.search(Query(names=("tick",)))).tasks)


def test_a_lost_lease_is_taken_back(app: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without workers, nothing else would: the worker that claimed the task has vanished."""
    monkeypatch.setattr(rescue, "HOLD_OFF", 0.0)

    @app.task(name="work", retries=3)
    async def work() -> None: ...

    handle = work.enqueue()
    (claim,) = app.claim(lease=1)
    assert record_of(app, handle.id).state is State.RUNNING

    async def is_back(_: Caretaker) -> None:
        await eventually(lambda: lost(app, handle.id))

    during(app, is_back)
    (again,) = app.claim(wait=PATIENCE)
    assert again.id == claim.id
    assert again.lease != claim.lease


async def lost(app: Dibs, task_id: str) -> bool:
    (record,) = await app.hub.engine.get([task_id])
    return record is not None and record.state is not State.RUNNING


def test_what_breaks_is_logged_and_started_again(
    app: Dibs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT", 0.02)
    runs: list[int] = []

    async def breaks_twice(caretaker: Caretaker) -> None:
        scheduler = caretaker._services["scheduler"]
        own = scheduler.run

        async def run() -> None:
            runs.append(1)
            if len(runs) < 3:
                raise LookupError("no more")
            await own()

        scheduler.run = run  # type: ignore[method-assign]
        scheduler.stop()
        caretaker._start("scheduler")  # while the old one is being cancelled nothing is started
        await asyncio.sleep(0)
        caretaker._start("scheduler")
        await eventually(lambda: ran_again(scheduler))

    async def ran_again(scheduler: Any) -> bool:
        return len(runs) == 3 and not scheduler.task.done()

    with caplog.at_level(logging.ERROR):
        during(app, breaks_twice)
    broke = [record for record in caplog.records if "scheduler broke" in record.getMessage()]
    assert len(broke) == 2
    assert broke[0].exc_info is not None
    assert isinstance(broke[0].exc_info[1], LookupError)


def test_a_leader_that_broke_does_not_count_as_leading(app: Dibs) -> None:
    async def breaks(caretaker: Caretaker) -> None:
        leader = caretaker._leader
        while not caretaker._leads():
            await asyncio.sleep(0.01)
        assert leader.task is not None
        leader.task.cancel()
        await asyncio.wait([leader.task])
        assert leader.leads
        assert not caretaker._leads()

    during(app, breaks)


def test_what_waits_to_be_started_again_is_not_when_it_stops(app: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT", 0.02)

    async def storm() -> None:
        caretaker = Caretaker(app.hub, "server-1")
        caretaker.start()
        caretaker._broke("rescuer", LookupError("no more"))
        await caretaker.stop()
        caretaker._broke("rescuer", LookupError("no more"))
        await asyncio.sleep(0.05)
        assert left_running() == []

    app.hub.runner.run(storm())


def test_it_does_nothing_where_the_engine_leads_itself(app: Dibs) -> None:
    async def nothing(_: Caretaker) -> None:
        await asyncio.sleep(0)
        assert left_running() == []

    app.hub.features -= {Feature.LEAD}
    during(app, nothing)
