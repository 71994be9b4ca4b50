"""Connections break, locks are held, pools run out: callers get an answer or a clear error, and all goes on."""

from __future__ import annotations

import asyncio

import pytest
from postgres_help import claim, connection, engines, new, run, settle, sound

from dibs.core.states import State
from dibs.engines.base import work_topic
from dibs.engines.postgres import PostgresEngine
from dibs.errors import StoreError, StoreUnavailable

PATIENCE = 10.0

TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = 'dibs' AND pid <> pg_backend_pid()
"""


async def claim_somehow(engine: PostgresEngine) -> int:
    """Claim as workers do: again when it fails."""
    for _ in range(5):
        try:
            return len(await claim(engine, 10))
        except StoreUnavailable:
            continue
    raise AssertionError("it never recovers")


def test_connections_that_were_cut_are_made_anew() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            await asyncio.gather(*(engine.enqueue([new()]) for _ in range(8)))
            assert await own.fetchval(TERMINATE) > 1
            await engine.enqueue([new()])
            assert (await engine.counts())["default"][State.PENDING] == 9
            assert await own.fetchval(TERMINATE) > 0
            assert await claim_somehow(engine) == 9
            await sound(engine)

    run(test)


def test_a_listener_that_was_cut_listens_again() -> None:
    async def test() -> None:
        async with engines(2) as (producer, worker), connection() as own:
            bell = worker.subscribe([work_topic("default")])
            assert await bell.wait(PATIENCE), "it rings when it begins to listen"
            await own.fetchval(TERMINATE)
            assert await bell.wait(PATIENCE), "and when it does so again"
            await producer.enqueue([new()])
            assert await bell.wait(PATIENCE)
            bell.close()

    run(test)


def test_a_call_that_waits_too_long_ends() -> None:
    async def test() -> None:
        async with engines(timeout="0.3") as (engine,), connection() as own:
            await engine.enqueue([new()])
            lock = f"hashtextextended('\"{engine.address.schema}\".queues', 0)"
            task = new()
            async with own.transaction():
                await own.execute(f"SELECT pg_advisory_xact_lock({lock})")
                with pytest.raises(StoreError, match=r"in time|in the way"):
                    await engine.enqueue([task])
            await engine.enqueue([task])  # it may have been stored after all: then it is known
            assert len(await claim(engine, 5)) == 2

    run(test)


def test_callers_wait_for_connections() -> None:
    async def test() -> None:
        async with engines(pool_size="1") as (engine,):
            await asyncio.gather(*(engine.enqueue([new(key=f"k{i}")]) for i in range(40)))
            found = await asyncio.gather(*(claim(engine, 5, f"w{i}") for i in range(8)))
            await asyncio.gather(*(settle(engine, tasks) for tasks in found))
            assert (await engine.counts())["default"][State.COMPLETED] == 40
            await sound(engine)

    run(test)


def test_a_call_that_is_cancelled_leaves_the_connection_usable() -> None:
    async def test() -> None:
        async with engines(pool_size="1") as (engine,):
            await engine.enqueue([new()])
            for _ in range(20):
                call = asyncio.create_task(engine.enqueue([new(key="same")]))
                await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            assert len(await engine.enqueue([new()])) == 1
            await sound(engine)

    run(test)


def test_ids_that_are_none_are_unknown() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            assert await engine.get(["nobody", ""]) == [None, None]
            assert [str(answer) for answer in await engine.cancel(["nobody"])] == ["unknown"]

    run(test)
