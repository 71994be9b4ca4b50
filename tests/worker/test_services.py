"""One lifecycle for everything that runs in a worker: start, stop, stop twice, stop before the start."""

from __future__ import annotations

import asyncio
import random

from dibs import Dibs
from dibs.worker.session import Session
from dibs.worker.settings import WorkerSettings

ROUNDS = 30


def test_every_service_starts_and_stops_in_any_order() -> None:
    broken: list[str] = []

    async def storm() -> None:
        session = Session(app.hub, WorkerSettings(), "w1")
        services = session._services
        assert {service.name for service in services} == {"fetcher", "leader", "rescuer", "scheduler", "sweeper"}
        for service in services:
            service.stop()  # before the start
        for _ in range(ROUNDS):
            for service in random.sample(services, len(services)):
                for act in random.choices((service.start, service.stop), k=random.randint(1, 4)):
                    act(lambda name, error: broken.append(name)) if act == service.start else act()  # type: ignore[call-arg]
                await asyncio.sleep(random.choice((0, 0, 0.005)))
        for service in services:
            service.start(lambda name, error: broken.append(name))
            service.stop()
            service.stop()
        await asyncio.sleep(0.01)
        assert all(service.task is not None and service.task.done() for service in services)
        left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("dibs-")]
        assert left == []

    with Dibs("memory://") as app:
        app.hub.runner.run(storm())
    assert broken == []


def test_a_heartbeat_may_be_stopped_before_its_start_and_twice() -> None:
    async def storm() -> None:
        for starts in (False, True, True):
            heartbeat = Session(app.hub, WorkerSettings(), "w1")._heartbeat
            await heartbeat.stop(5.0)
            if starts:
                heartbeat = Session(app.hub, WorkerSettings(), "w1")._heartbeat
                await heartbeat.start()
                await heartbeat.stop(5.0)
            await heartbeat.stop(5.0)
            assert heartbeat.failure is None

    with Dibs("memory://") as app:
        app.hub.runner.run(storm())


def test_what_breaks_is_reported_by_name() -> None:
    broken: list[tuple[str, str]] = []

    async def storm() -> None:
        leader = Session(app.hub, WorkerSettings(), "w1")._leader

        async def fails() -> None:
            raise LookupError("no more")

        leader.run = fails  # type: ignore[method-assign]
        leader.start(lambda name, error: broken.append((name, str(error))))
        await asyncio.sleep(0.01)

    with Dibs("memory://") as app:
        app.hub.runner.run(storm())
    assert broken == [("leader", "no more")]
