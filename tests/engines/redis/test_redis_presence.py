"""Workers that are gone are missed, and nobody else: by a channel that their processes listen to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis_help import PATIENCE, beat, claim, engines, new, new_url, opened, run, settle, somehow, sound, until

from dibs.core.states import State
from dibs.core.task import WorkerState
from dibs.core.times import HOUR
from dibs.engines.redis import RedisEngine, settling
from dibs.engines.values import Feature, Rescued
from servers.redis import Server, server

WORKER = """
import asyncio, os, sys
from dibs.engines.redis import from_url
from dibs.engines.values import Beat, ClaimRequest

async def main():
    engine = from_url(sys.argv[1])
    await engine.open()
    sign = Beat(id="w", host="here", pid=os.getpid(), version="1", queues=("default",), names=None,
                lives_for=3600 * 10**6)
    await engine.beat(sign)
    lease = int(sys.argv[2])
    request = ClaimRequest(worker="w", sequence=1, queues=("default",), limit=3, lease=lease)
    tasks = (await engine.claim(request)).tasks
    print(len(tasks), flush=True)
    while True:
        await asyncio.sleep(0.5)
        try:
            await engine.beat(sign)
        except Exception:
            pass

asyncio.run(main())
"""


@contextmanager
def worker(url: str, lease: int = HOUR) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed three tasks and goes on beating."""
    command = [sys.executable, "-c", WORKER, url, str(lease)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "3\n"
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


async def rescued(engine: RedisEngine) -> Rescued:
    """Look until something is found."""

    async def look() -> Rescued | None:
        found = await engine.rescue()
        return found if found.ids or found.workers else None

    found: Rescued = await until(look)
    return found


async def states(engine: RedisEngine) -> dict[str, WorkerState]:
    return {record.id: record.state for record in await engine.workers()}


def listeners(own: Server, engine: RedisEngine, name: str = "w") -> int:
    return int(own.command("PUBSUB", "NUMSUB", f"{{{engine.address.prefix}}}:alive:{name}")[1])


def test_a_killed_worker_is_missed_within_seconds() -> None:
    async def test() -> None:
        url = new_url()
        async with opened(url) as engine:
            assert Feature.PRESENCE in engine.features
            await engine.enqueue([new() for _ in range(5)])
            with worker(url) as process:
                assert not (await engine.rescue()).ids
                began = time.monotonic()
                process.kill()
                found = await rescued(engine)
                assert time.monotonic() - began < 3
                assert (len(found.ids), found.workers) == (3, ["w"])
                assert await states(engine) == {"w": WorkerState.DEAD}
                assert len(await claim(engine, 9, "other")) == 5
                await sound(engine)

    run(test)


def test_a_stopped_worker_keeps_its_tasks_while_their_leases_last() -> None:
    async def test() -> None:
        url = new_url()
        async with opened(url) as engine:
            await engine.enqueue([new() for _ in range(3)])
            with worker(url) as process:
                process.send_signal(signal.SIGSTOP)
                began, looks = time.monotonic(), 0
                while time.monotonic() - began < 2.0:  # twice as long as a dead one would be missed in
                    assert (await engine.rescue()).ids == []
                    looks += 1
                assert looks > 10
                assert await states(engine) == {"w": WorkerState.ACTIVE}
                now = (await engine.rescue()).at
                later = await engine.rescue(now=now + 2 * HOUR)
                assert len(later.ids) == 3, "by its lease, like any other"

    run(test)


def test_a_worker_that_leaves_is_not_missed_but_gone() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other):
            await engine.beat(beat("w", os.getpid()))
            assert listeners(server(), engine) == 1
            await engine.leave("w")

            async def gone() -> bool:
                return listeners(server(), engine) == 0

            await until(gone)
            assert await states(other) == {}

    run(test)


def test_a_sign_for_another_process_is_no_presence() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await engine.beat(beat("w", os.getpid() + 1))
            assert listeners(server(), engine) == 0

    run(test)


def test_a_worker_whose_connections_are_cut_comes_back_unmissed() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other):
            await engine.enqueue([new()])
            await engine.beat(beat("w", os.getpid(), lives_for=HOUR))
            assert await claim(engine, 1)
            for _ in range(5):
                server().command("CLIENT", "KILL", "TYPE", "pubsub")
                await other.rescue()

                async def back() -> bool:
                    assert (await other.rescue()).ids == []
                    return listeners(server(), engine) == 1

                await until(back)
            assert await states(other) == {"w": WorkerState.ACTIVE}

    run(test)


@pytest.fixture(scope="module")
def kept() -> Iterator[Server]:
    found = Server(appendonly=True)
    yield found
    found.remove()


def test_after_a_restart_nobody_is_missed_who_comes_back(kept: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "NEWCOMER_SECONDS", 0.0)

    async def test() -> None:
        url = new_url(kept.url)
        async with opened(url) as engine:
            await engine.enqueue([new() for _ in range(3)])
            with worker(url):
                for way in (kept.kill, kept.stop):
                    way()
                    kept.start()
                    began = time.monotonic()

                    async def back() -> bool:
                        found = await somehow(engine.rescue)
                        assert (found.ids, found.workers) == ([], [])
                        return listeners(kept, engine) == 1

                    await until(back)
                    while time.monotonic() - began < 1.5:
                        assert (await somehow(engine.rescue)).ids == []
                assert await states(engine) == {"w": WorkerState.ACTIVE}

    run(test)


def test_a_worker_that_dies_with_the_server_is_missed_by_its_lease(kept: Server) -> None:
    """It never came back to the new one: nothing says that it is dead, but time."""

    async def test() -> None:
        url = new_url(kept.url)
        async with opened(url) as engine:
            await engine.enqueue([new() for _ in range(3)])
            with worker(url) as process:
                kept.kill()
                process.kill()
                kept.start()
            now = (await somehow(engine.rescue)).at
            found = await engine.rescue(now=now + 2 * HOUR)
            assert (len(found.ids), found.workers) == (3, ["w"])

    run(test)


def test_a_zombie_settles_nothing() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other):
            await engine.enqueue([new() for _ in range(2)])
            held = await claim(engine, 2)
            now = (await other.rescue()).at
            assert len((await other.rescue(now=now + HOUR)).ids) == 2
            again = await claim(other, 2, "other")
            assert {answer.outcome for answer in await settle(engine, held)} == {"refused"}
            assert {record.state for record in await other.get([task.id for task in again]) if record} == {
                State.RUNNING
            }
            assert {answer.outcome for answer in await settle(other, again)} == {"done"}
            await sound(other)

    run(test)
