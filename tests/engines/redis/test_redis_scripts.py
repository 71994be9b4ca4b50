"""The Lua scripts: what they say of themselves, what they cost however full the store is, and exact ranks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis_help import NOW, calls, claim, engines, keys_of, new, run, set_queue, settle, sound

from dibs.core.settings import Policy
from dibs.core.task import Lease, LeasedTask, NewTask
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.redis import RedisEngine, scripts
from dibs.engines.redis.scripts import FOLDER, SCRIPTS
from dibs.engines.values import Extension
from servers.redis import Server, server


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that counts nobody else's commands."""
    found = Server()
    yield found
    found.remove()


# What they are.


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_takes_and_returns(name: str) -> None:
    text = (FOLDER / f"{name}.lua").read_text()
    header = re.match(r"(--.*\n)+", text)
    assert header is not None
    assert re.search(r"^-- [A-Z].*\.$", header[0], re.MULTILINE), "what it does"
    for part in ("KEYS[1]  ", "ARGV     ", "returns  "):
        assert f"\n-- {part}" in header[0]


def test_every_file_is_a_script_or_common_to_all() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.lua" for name in (*SCRIPTS, "common")}


def test_scripts_touch_the_store_by_its_first_key_only() -> None:
    """So they run in a cluster: all other keys have the same hash tag."""
    for name in (*SCRIPTS, "common"):
        text = (FOLDER / f"{name}.lua").read_text()
        assert not re.search(r"KEYS\[[^1]", text)
        assert "math.random" not in text


def test_a_script_that_the_server_forgot_is_sent_again() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            for verb in (
                lambda: engine.enqueue([new(), new(key="k")]),
                lambda: claim(engine, 1),
                lambda: engine.get([new().id]),
            ):
                server().command("SCRIPT", "FLUSH")
                await verb()
            server().command("SCRIPT", "FLUSH")
            (task,) = await claim(engine, 1)
            server().command("SCRIPT", "FLUSH")
            assert await engine.extend([Extension(Lease(task.id, task.lease), by=SECOND)])
            server().command("SCRIPT", "FLUSH")
            await settle(engine, [task])
            await sound(engine)

    run(test)


def test_many_at_once_after_the_server_forgot() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await engine.enqueue([new()])
            server().command("SCRIPT", "FLUSH")
            await asyncio.gather(*(engine.enqueue([new()]) for _ in range(50)))
            assert len(await claim(engine, 100)) == 51

    run(test)


# What they cost.

AT_ONCE = 100
MOST = {"enqueue": 20, "claim": 30, "extend": 10, "complete": 35}
"""Commands of a call about a hundred tasks, with those inside its script: tasks go together, up to five hundred."""
DEPTHS = (1_000, 100_000)


async def fill(engine: RedisEngine, number: int) -> None:
    for start in range(0, number, 5_000):
        await engine.enqueue([new() for _ in range(min(5_000, number - start))])


async def counted(own: Server, call: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    """How many commands a call takes, also inside its script."""
    own.command("CONFIG", "RESETSTAT")
    answer = await call()
    found = calls(own)
    ours = sum(n for name, n in found.items() if name not in ("auth", "info", "config", "config|resetstat"))
    return ours, answer


async def costs(own: Server, engine: RedisEngine) -> dict[str, int]:
    tasks = [new() for _ in range(AT_ONCE)]
    found: dict[str, int] = {}
    found["enqueue"], _ = await counted(own, lambda: engine.enqueue(tasks))
    held: list[LeasedTask]
    found["claim"], held = await counted(own, lambda: claim(engine, AT_ONCE))
    assert len(held) == AT_ONCE
    by = [Extension(Lease(task.id, task.lease), by=MINUTE, progress=0.5) for task in held]
    found["extend"], _ = await counted(own, lambda: engine.extend(by))
    found["complete"], _ = await counted(own, lambda: settle(engine, held))
    return found


def test_a_call_costs_the_same_however_many_wait(own: Server) -> None:
    async def test() -> None:
        found = []
        async with engines(url=own.url) as (engine,):
            stored = 0
            for depth in DEPTHS:
                await fill(engine, depth - stored)
                stored = depth
                several = [await costs(own, engine) for _ in range(4)]  # sometimes a block of ids begins
                found.append({verb: min(each[verb] for each in several) for verb in MOST})
        assert found[0] == found[1]
        for verb, number in found[0].items():
            assert number <= MOST[verb], verb

    run(test)


def test_a_lone_call_is_one_round_trip(own: Server) -> None:
    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            for _ in range(3):  # at first there is no queue, and then the server does not know the scripts
                own.command("CONFIG", "RESETSTAT")
                await engine.enqueue([new()])
                held = await claim(engine, 1)
                await engine.extend([Extension(Lease(held[0].id, held[0].lease), by=MINUTE)])
                await settle(engine, held)
            found = calls(own)
            assert (found["evalsha"], found.get("eval", 0)) == (4, 0)

    run(test)


def test_all_keys_begin_with_the_prefix(own: Server) -> None:
    async def test() -> None:
        own.command("FLUSHALL")
        async with engines(url=own.url) as (engine,):
            await costs(own, engine)
            await engine.enqueue([new(key="k", partition="p", tenant="t", expires_at=NOW)])
            assert own.command("DBSIZE") == len(keys_of(own, engine)) > 10

    run(test)


@pytest.mark.parametrize("number", [1, 999, 1000, 1001, 5000])
def test_any_number_of_tasks_goes_in_one_call(number: int) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await engine.enqueue([new() for _ in range(number)])
            held = await claim(engine, number)
            assert len(held) == number
            await engine.extend([Extension(Lease(task.id, task.lease), by=MINUTE) for task in held])
            await settle(engine, held)
            assert (await engine.counts()).tasks["default"]["completed"] == number

    run(test)


@pytest.mark.slow
def test_one_call_for_very_many_queues() -> None:
    """Each has a topic: more than Lua can unpack at once."""

    async def test() -> None:
        async with engines() as (engine,):
            queues = [f"q{number}" for number in range(4_500)]
            await engine.enqueue([new(queue=queue) for queue in queues])
            await engine.enqueue([new(queue=queue) for queue in queues])
            counts = (await engine.counts()).tasks
            assert {queue: counts[queue]["pending"] for queue in queues} == dict.fromkeys(queues, 2)

    run(test)


def test_a_claim_that_passes_over_very_many() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            (good,) = tasks = [new()]
            await engine.enqueue(tasks)
            aside = engine._opened().aside
            for _ in range(9_000):
                aside.skip_task(new().id)
            aside.rechecked_at = time.monotonic()
            assert [task.id for task in await claim(engine, 1)] == [good.id]

    run(test)


# Ranks, and the clock.


async def order(engine: RedisEngine, tasks: list[tuple[NewTask, int]]) -> list[str]:
    """In which order tasks are claimed, each enqueued at its instant."""
    for task, at in tasks:
        await engine.enqueue([task], now=at)
    return [task.id for task in await claim(engine, len(tasks), now=NOW + HOUR)]


@pytest.mark.parametrize("policy", Policy)
def test_ranks_are_exact_to_the_microsecond(policy: Policy) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await set_queue(engine, policy=policy)
            for at in (NOW, NOW - 2**30, 2**52, 7):
                third, second, first = new(), new(), new()  # the order of their ids is another
                found = await order(engine, [(third, at + 2), (second, at + 1), (first, at)])
                assert found == [first.id, second.id, third.id], at

    run(test)


@pytest.mark.parametrize("policy", Policy)
def test_equal_ranks_go_by_id(policy: Policy) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await set_queue(engine, policy=policy)
            tasks = [new() for _ in range(5)]
            found = await order(engine, [(task, NOW) for task in reversed(tasks)])
            assert found == [task.id for task in tasks]

    run(test)


def test_priorities_of_one_lane_are_exact_too() -> None:
    """Between two kinds of task, whose tracks are merged."""

    async def test() -> None:
        async with engines() as (engine,):
            tasks = [new(name="ab"[number % 2]) for number in range(20)][::-1]
            found = await order(engine, [(task, NOW + number) for number, task in enumerate(tasks)][::-1])
            assert found == [task.id for task in tasks]

    run(test)


def test_the_clock_is_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the process may be wrong by days."""
    sound_time, sound_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: sound_time() - 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: sound_ns() - 10**15)

    async def test() -> None:
        async with engines() as (engine,):
            first, second = new(), new(key="k")
            await engine.enqueue([first])
            await engine.enqueue([second])
            (held,) = await claim(engine, 1)
            seconds, micros = (int(each) for each in server().command("TIME"))
            now = seconds * SECOND + micros
            records: list[Any] = await engine.get([first.id, second.id])
            instants = [record.created_at for record in records] + [records[0].started_at, held.lease_expires_at]
            assert all(now - MINUTE <= each <= now + MINUTE for each in instants)

    run(test)


def test_scripts_are_addressed_by_their_text() -> None:
    found = scripts.script("claim")
    assert server().command("SCRIPT", "LOAD", found.text) == found.hash
