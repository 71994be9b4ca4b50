"""Connections break, locks are held, pools run out: callers get an answer or a clear error, and all goes on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest
from msgspec import structs
from postgres_help import NOW, claim, connection, engines, new, run, set_queue, settle, sound

from dibs.core.graph import Edge
from dibs.core.states import State
from dibs.core.task import Edit, Outcome
from dibs.core.times import SECOND
from dibs.engines.postgres import PostgresEngine, from_url
from dibs.engines.postgres.claiming import RETRY_LOCKED
from dibs.engines.postgres.settling import NEWCOMER_SECONDS
from dibs.engines.topics import work_topic
from dibs.engines.values import Cancel, ClaimRequest, Replay
from dibs.errors import StoreBusy, StoreUnavailable
from servers.cluster import Cluster

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
            assert ((await engine.counts()).tasks)["default"][State.PENDING] == 9
            assert await own.fetchval(TERMINATE) > 0
            assert await claim_somehow(engine) == 9
            await sound(engine)

    run(test)


def test_a_listener_that_was_cut_listens_again() -> None:
    async def test() -> None:
        async with engines(2) as (producer, worker), connection() as own:
            subscription = worker.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE), "it rings when it begins to listen"
            await own.fetchval(TERMINATE)
            assert await subscription.wait(PATIENCE), "and when it does so again"
            await producer.enqueue([new()])
            assert await subscription.wait(PATIENCE)
            subscription.close()

    run(test)


# Locks that others hold.

LOCKS = {
    "the settings": "SELECT pg_advisory_xact_lock(hashtextextended('\"{schema}\".queues', 0))",
    "the table": "LOCK TABLE {schema}.tasks IN ACCESS EXCLUSIVE MODE",
    "the rows": "SELECT 1 FROM {schema}.tasks FOR UPDATE",
}
WRITES: dict[str, Callable[[PostgresEngine, list[Any]], Awaitable[Any]]] = {
    "enqueue": lambda engine, _: engine.enqueue([new()]),
    "complete": lambda engine, held: settle(engine, held[:1]),
    "settle": lambda engine, held: settle(engine, held[1:2], Outcome.RELEASED),
    "edit": lambda engine, held: engine.act([Edit(id=held[2].id, priority=3)]),
    "cancel": lambda engine, held: engine.act([Cancel(held[2].id)]),
}
UNHINDERED = {("the rows", "enqueue"), ("the settings", "complete")}


@asynccontextmanager
async def locked(engine: PostgresEngine, what: str) -> AsyncIterator[None]:
    """Somebody else holds a lock, in a transaction that does not end."""
    async with connection() as own:
        await own.execute("BEGIN")
        await own.execute(LOCKS[what].format(schema=engine.address.schema))
        yield


@pytest.mark.parametrize("what", LOCKS)
def test_a_call_that_others_are_in_the_way_of_ends(what: str) -> None:
    async def test() -> None:
        async with engines() as (witness,):
            await witness.enqueue([new() for _ in range(5)])
            held = await claim(witness, 3)
            engine = PostgresEngine(structs.replace(witness.address, timeout=1.5))
            await engine.open()
            calls = {name: call for name, call in WRITES.items() if (what, name) not in UNHINDERED}
            async with locked(engine, what):
                began = time.monotonic()
                answers = await asyncio.gather(*(call(engine, held) for call in calls.values()), return_exceptions=True)
                assert time.monotonic() - began < PATIENCE
            for name, answer in zip(calls, answers, strict=True):
                assert isinstance(answer, StoreBusy), (name, answer)
                assert "others were in the way" in str(answer)
                assert "Nothing was written; try again." in str(answer)
            await engine.close()
            for call in WRITES.values():
                await call(witness, held)  # nothing had been written
            await sound(witness)

    run(test)


def test_locked_rows_hold_up_neither_claims_nor_heartbeats() -> None:
    async def test() -> None:
        async with engines(timeout="5") as (engine,):
            await engine.enqueue([new() for _ in range(5)])
            (held,) = await claim(engine, 1)
            async with connection() as own:
                await own.execute("BEGIN")
                await own.execute(f"SELECT 1 FROM {engine.address.schema}.running FOR UPDATE")
                assert len(await claim(engine, 10)) == 4
                await engine.rescue()
            await settle(engine, [held])
            await sound(engine)

    run(test)


@pytest.mark.parametrize("limits", [{}, {"max_concurrent": 5}])
@pytest.mark.parametrize("fact", ["expires_at", "at"])
def test_nobody_hurries_back_for_rows_that_somebody_has_locked(fact: str, limits: dict[str, int]) -> None:
    """Their time has come. But as long as they are locked there is nothing to do, and "at once" would be a spin."""

    async def test() -> None:
        async with engines() as (engine,):
            await set_queue(engine, **limits)
            now, later = NOW, NOW + 2 * SECOND
            (answer,) = await engine.enqueue([new(**{fact: NOW + SECOND})], now=now)
            request = ClaimRequest(worker="w", sequence=1, queues=("default",), limit=0)
            async with locked(engine, "the rows"):
                assert (await engine.claim(request, now=later)).next_due_in == RETRY_LOCKED
            assert (await engine.claim(request, now=later)).next_due_in is None
            (record,) = await engine.get([answer.id])
            assert record is not None
            assert record.state is (State.PENDING if fact == "at" else State.CANCELLED)
            await sound(engine)

    run(test)


def test_mixed_batches_over_the_same_tasks_never_deadlock_for_callers() -> None:
    async def test() -> None:
        async with engines(3, timeout="20") as workers:
            tasks = [new(key=f"k{i}" if i % 4 == 0 else None) for i in range(60)]
            await workers[0].enqueue(tasks)
            chance = random.Random(11)
            ids = [task.id for task in tasks]
            for _ in range(8):
                await asyncio.gather(*(anything(engine, ids, chance) for engine in workers for _ in range(6)))
            await sound(workers[0])

    run(test)


async def anything(engine: PostgresEngine, ids: list[str], chance: random.Random) -> None:
    """One of the verbs that lock many tasks, over some of them in any order."""
    some = chance.sample(ids, 30)
    match chance.randrange(7):
        case 0:
            await engine.act([Edit(id=each, priority=chance.randrange(100)) for each in some])
        case 1:
            await engine.act([Cancel(each) for each in some[:8]])
        case 2:
            await engine.act([Replay(each) for each in some])
        case 3:
            held = await claim(engine, 20, worker=str(chance.random()))
            chance.shuffle(held)
            await settle(engine, held[:10], Outcome.RELEASED)
            await settle(engine, held[10:])
        case 4:
            await engine.enqueue([new(key=f"k{chance.randrange(60)}", replace=True) for _ in range(8)])
        case 5:
            await engine.enqueue([new(after=(Edge(each),)) for each in some[:5]])
        case _:
            await engine.rescue()


# Pools that run out.


def test_a_pool_that_is_in_use_for_too_long_says_so() -> None:
    async def test() -> None:
        async with engines(timeout="0.5", pool_size="1") as (engine,):
            await engine.enqueue([new()])
            await quiet(engine)
            async with engine._opened().pool.lend():
                with pytest.raises(StoreBusy, match=r"all 1 connections.*in use for 0.5 s. Raise pool_size"):
                    await engine.enqueue([new()])
            await engine.enqueue([new()])

    run(test)


@pytest.fixture(scope="module")
def small() -> Iterator[Cluster]:
    """A server that takes eight connections."""
    cluster = Cluster.new(max_connections="8", superuser_reserved_connections="0", max_wal_senders="0")
    yield cluster
    cluster.remove()


@asynccontextmanager
async def taken(cluster: Cluster, number: int) -> AsyncIterator[None]:
    """Others have this many connections. Those that were closed just now are gone before that."""
    held: list[Any] = []
    try:
        async with asyncio.timeout(PATIENCE):
            while len(held) < number or await held[0].fetchval(CLIENTS) > number:
                with suppress(asyncpg.TooManyConnectionsError):
                    if len(held) < number:
                        held.append(await asyncpg.connect(cluster.dsn, timeout=PATIENCE))
        yield
    finally:
        for each in held:
            await each.close(timeout=PATIENCE)


CLIENTS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


def test_a_server_without_connections_left(small: Cluster) -> None:
    async def test() -> None:
        engine = from_url(small.url())
        await engine.open()
        await engine.enqueue([new()])
        await quiet(engine)
        engine._opened().pool.drop_idle()
        async with taken(small, 8):
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match=r"has no connection left.*Lower pool_size or raise max_con"):
                    await engine.enqueue([new()])
            with pytest.raises(StoreUnavailable, match="has no connection left"):
                await from_url(small.url()).open()
        async with asyncio.timeout(PATIENCE):
            while not await can_enqueue(engine):
                await asyncio.sleep(0.01)
        await engine.close()

    run(test)


async def quiet(engine: PostgresEngine) -> None:
    """Until nothing is under way: enqueueing notifies afterwards."""
    async with asyncio.timeout(PATIENCE):
        while engine._opened().pool.lent or engine._opened().notifier.sending:
            await asyncio.sleep(0.005)


async def can_enqueue(engine: PostgresEngine) -> bool:
    try:
        await engine.enqueue([new()])
    except StoreUnavailable:
        return False
    return True


def test_fewer_connections_than_the_pool_may_have_are_shared(small: Cluster) -> None:
    async def test() -> None:
        async with taken(small, 5):
            engine = from_url(small.url(pool_size="20"))
            await engine.open()
            await asyncio.gather(*(engine.enqueue([new(key=f"k{i}")]) for i in range(60)))
            assert ((await engine.counts()).tasks)["default"][State.PENDING] == 60
            await engine.close()

    run(test)


def test_callers_wait_for_connections() -> None:
    async def test() -> None:
        async with engines(pool_size="1") as (engine,):
            await asyncio.gather(*(engine.enqueue([new(key=f"k{i}")]) for i in range(40)))
            found = await asyncio.gather(*(claim(engine, 5, f"w{i}") for i in range(8)))
            await asyncio.gather(*(settle(engine, tasks) for tasks in found))
            assert ((await engine.counts()).tasks)["default"][State.COMPLETED] == 40
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


def test_who_has_just_come_leaves_ended_leases_alone() -> None:
    """The store may have been away, and their workers may be about to extend them."""

    async def test() -> None:
        async with engines(2) as (worker, newcomer):
            await worker.enqueue([new()])
            request = ClaimRequest(worker="w", sequence=1, queues=("default",), limit=1, lease=SECOND // 100)
            (held,) = (await worker.claim(request)).tasks
            async with asyncio.timeout(PATIENCE):
                while time.time() * SECOND <= held.lease_expires_at:
                    await asyncio.sleep(0.005)
            store = newcomer._opened()
            store.opened_at = time.monotonic()
            assert (await newcomer.rescue()).ids == []
            store.opened_at = time.monotonic() - NEWCOMER_SECONDS
            assert (await newcomer.rescue()).ids == [held.id]

    run(test)


def test_ids_that_are_none_are_unknown() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            assert await engine.get(["nobody", ""]) == [None, None]
            assert [str(answer) for answer in await engine.act([Cancel("nobody")])] == ["unknown"]

    run(test)
