"""Who waits is woken at once, also in another process; who does not wait costs nothing. And events."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis_help import NOW, PATIENCE, calls, claim, engines, new, new_url, opened, run, set_queue, settle, until

from dibs.core.times import HOUR
from dibs.engines.events import EventPage, EventRequest
from dibs.engines.redis import RedisEngine
from dibs.engines.topics import ended_topic, work_topic
from servers.redis import Server

CLAIMER = """
import asyncio, sys, time
from dibs.engines.redis import from_url
from dibs.engines.topics import work_topic
from dibs.engines.values import ClaimRequest

async def main():
    engine = from_url(sys.argv[1])
    await engine.open()
    subscription = engine.subscribe([work_topic("default")])
    await subscription.wait(30)  # it listens
    sequence = 0
    while True:
        sequence += 1
        request = ClaimRequest(worker=sys.argv[2], sequence=sequence, queues=("default",), limit=1)
        tasks = (await engine.claim(request)).tasks
        print(time.time() if tasks else "idle", flush=True)
        if not tasks:
            await subscription.wait(60)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that counts nobody else's commands."""
    found = Server()
    yield found
    found.remove()


@contextmanager
def claimer(url: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that claims and waits for more; it says so."""
    command = [sys.executable, "-c", CLAIMER, url, name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "idle\n"
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


def claimed_at(process: subprocess.Popen[str]) -> float:
    """When it got its next task."""
    assert process.stdout is not None
    while (said := process.stdout.readline().strip()) == "idle":
        pass
    return float(said)


def until_idle(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    while process.stdout.readline().strip() != "idle":
        pass


def test_an_idle_claimer_in_another_process_is_woken_at_once(own: Server) -> None:
    async def test() -> None:
        url = new_url(own.url)
        async with opened(url) as engine:
            await engine.enqueue([new(queue="other")])
            with claimer(url, "a") as process:
                took = []
                for _ in range(10):
                    began = time.time()
                    await engine.enqueue([new()])
                    took.append(claimed_at(process) - began)
                    until_idle(process)
                assert sorted(took)[5] < 0.1, took
                assert max(took) < 1

    run(test)


def test_two_idle_processes_get_a_task_each(own: Server) -> None:
    async def test() -> None:
        url = new_url(own.url)
        async with opened(url) as engine:
            with claimer(url, "a") as one, claimer(url, "b") as other:
                await engine.enqueue([new() for _ in range(20)])

                async def done() -> bool:
                    return (await engine.counts()).tasks["default"]["running"] == 20

                await until(done)
                assert claimed_at(one) > 0
                assert claimed_at(other) > 0

    run(test)


def idle(own: Server, engine: RedisEngine) -> bool:
    return bool(own.command("EXISTS", f"{{{engine.address.prefix}}}:idle:default"))


@pytest.mark.parametrize("limits", [{}, {"max_concurrent": 100}], ids=["plain", "limited"])
def test_only_a_claim_that_finds_too_little_asks_to_be_woken(own: Server, limits: dict[str, int]) -> None:
    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            await set_queue(engine, **limits)
            await engine.enqueue([new() for _ in range(3)])
            held = await claim(engine, 2)
            assert not idle(own, engine)
            await settle(engine, held)
            assert not idle(own, engine)
            assert await claim(engine, 1, queues=("elsewhere",)) == []
            assert not idle(own, engine)
            assert len(await claim(engine, 2)) == 1
            assert idle(own, engine)
            await engine.enqueue([new()])
            assert not idle(own, engine)
            await engine.enqueue([new(queue="elsewhere")])
            assert len(await claim(engine, 1)) == 1
            assert await claim(engine, 1) == []
            assert idle(own, engine)

    run(test)


def test_while_nobody_is_idle_nothing_is_published(own: Server) -> None:
    async def test() -> None:
        async with engines(2, url=own.url) as (engine, other):
            subscription = other.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE)
            await engine.enqueue([new()])
            assert len(await claim(other, 1)) == 1
            own.command("CONFIG", "RESETSTAT")
            for number in range(100):
                await engine.enqueue([new(key=f"k{number}" if number % 10 == 0 else None)])
            assert calls(own).get("publish", 0) == 0
            await claim(other, 1000)
            for _ in range(100):
                await engine.enqueue([new()])
            assert calls(own)["publish"] == 1, "the first one woke everybody"
            assert await subscription.wait(PATIENCE)
            subscription.close()

    run(test)


def test_a_task_that_comes_while_a_claimer_goes_to_sleep_is_not_slept_over(own: Server) -> None:
    async def test() -> None:
        async with engines(2, url=own.url) as (engine, other):
            subscription = other.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE)
            for _ in range(50):
                assert await claim(other, 1) == []
                await engine.enqueue([new()])  # before it waits
                assert await subscription.wait(PATIENCE)
                assert len(await claim(other, 1)) == 1
                while await subscription.wait(0):
                    pass
            subscription.close()

    run(test)


def test_a_subscription_that_is_closed_costs_nothing(own: Server) -> None:
    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            channel = f"{{{engine.address.prefix}}}:topic:{ended_topic('default')}"
            subscriptions = [engine.subscribe([ended_topic("default"), work_topic("default")]) for _ in range(3)]

            async def heard() -> bool:
                return bool(own.command("PUBSUB", "NUMSUB", channel)[1])

            await until(heard)
            for subscription in subscriptions:
                subscription.close()
                subscription.close()  # twice is once

            async def silent() -> bool:
                return not await heard()

            await until(silent)
            again = engine.subscribe([ended_topic("default")])
            await until(heard)
            again.close()

    run(test)


# Events.


class Reader:
    """A subscriber to everything."""

    def __init__(self, engine: RedisEngine, name: str = "r") -> None:
        self.engine = engine
        self.name = name
        self.cursor: str | None = None

    async def page(self, now: int = NOW, limit: int = 1000) -> EventPage:
        request = EventRequest(subscriber=self.name, cursor=self.cursor, limit=limit)
        page = await self.engine.events(request, now=now)
        self.cursor = page.cursor
        return page

    async def types(self, limit: int = 1000) -> list[str]:
        return [event.type for event in (await self.page(limit=limit)).events]


def length(own: Server, engine: RedisEngine) -> int:
    return int(own.command("XLEN", f"{{{engine.address.prefix}}}:events"))


async def work(engine: RedisEngine, now: int = NOW) -> None:
    """All that the fast and the general way write events of."""
    await engine.enqueue([new(), new(key=f"k{new().id}")], now=now)
    await settle(engine, await claim(engine, 2, now=now), now=now)


def test_events_are_written_only_while_somebody_subscribes(own: Server) -> None:
    async def test() -> None:
        async with engines(2, url=own.url) as (engine, other):
            await work(engine)
            assert length(own, engine) == 0
            reader = Reader(other)
            assert await reader.types() == []
            await work(engine)
            assert (
                sorted(await reader.types()) == ["task.completed"] * 2 + ["task.started"] * 2 + ["task.submitted"] * 2
            )
            before = length(own, engine)
            assert before == 6
            await work(engine, NOW + HOUR)  # it has not read for long
            await work(engine, NOW + HOUR)
            assert length(own, engine) <= before

    run(test)


def test_events_can_be_read_on_from_anywhere(own: Server) -> None:
    async def test() -> None:
        async with engines(2, url=own.url) as (engine, other):
            reader = Reader(engine)
            assert await reader.types() == []
            for _ in range(3):
                await work(engine)
            start = reader.cursor
            all_of_them = await reader.types()
            assert len(all_of_them) == 18
            again = Reader(other, "again")
            again.cursor = start
            found: list[str] = []
            while part := await again.types(limit=5):
                assert len(part) <= 5
                found += part
            assert found == all_of_them
            assert await again.types() == []

    run(test)


def test_events_are_trimmed_and_that_is_said(own: Server) -> None:
    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            reader, late = Reader(engine), Reader(engine, "late")
            await reader.page()
            await late.page()
            await work(engine)
            assert length(own, engine) == 6
            assert len((await reader.page()).events) == 6
            later = NOW + 24 * HOUR
            term = await engine.lead("w", now=later)
            assert term is not None
            await engine.chore("prune_events", term, now=later)
            assert length(own, engine) == 0
            assert (await late.page(later)).missed
            assert not (await reader.page(later)).missed

    run(test)
