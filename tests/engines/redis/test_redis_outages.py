"""The server goes away, stands still, is full or fails over: calls end, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis_help import (
    PATIENCE,
    beat,
    claim,
    dump,
    engines,
    new,
    new_url,
    opened,
    run,
    set_queue,
    settle,
    somehow,
    sound,
    until,
)

from dibs.core.states import State
from dibs.core.task import Lease, LeasedTask, Outcome
from dibs.core.times import MINUTE, SECOND
from dibs.engines.redis import RedisEngine, from_url
from dibs.engines.redis.client import Client
from dibs.engines.redis.scripts import SCRIPTS, script
from dibs.engines.topics import work_topic
from dibs.engines.values import Cancel, Changed, ClaimRequest, EnqueueOutcome, ExtendOutcome, Extension, SettleOutcome
from dibs.errors import StoreUnavailable
from servers.proxy import Proxy
from servers.redis import Cluster, Sentinels, Server, binaries, cluster, sentinels, server

BRIEF = {"timeout": 0.2, "connect_timeout": 0.2}


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server without persistence, to be broken."""
    found = Server()
    yield found
    found.remove()


@pytest.fixture(scope="module")
def kept() -> Iterator[Server]:
    """A server with a log."""
    found = Server(appendonly=True)
    yield found
    found.remove()


@pytest.fixture
def proxy(own: Server) -> Iterator[Proxy]:
    for name in SCRIPTS:  # so that the first call of each runs it
        own.command("SCRIPT", "LOAD", script(name).text)
    with Proxy(own.port) as found:
        yield found


def behind(proxy: Proxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0"


@asynccontextmanager
async def quiet_loop() -> AsyncIterator[list[dict[str, Any]]]:
    """Collects what the loop is told of that nobody handles."""
    found: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context))
    try:
        yield found
    finally:
        loop.set_exception_handler(None)


def lose_answer(proxy: Proxy, name: str) -> None:
    """Of the next script of that name: the server runs it, and the connection is cut."""
    proxy.trap(script(name).hash.encode(), "after")


async def count(engine: RedisEngine, state: State) -> int:
    return ((await engine.counts()).tasks).get("default", {}).get(state, 0)


# Answers that are lost.


def test_an_enqueue_whose_answer_is_lost(proxy: Proxy) -> None:
    async def test() -> None:
        async with engines(url=behind(proxy)) as (engine,):
            await engine.enqueue([new(), new(key="before")])
            await engine.queues()  # it knows what there is
            for name, task in (("enqueue", new()), ("save", new(key="k"))):
                lose_answer(proxy, name)
                (answer,) = await engine.enqueue([task])
                assert proxy.sprung.is_set()
                assert (answer.id, answer.outcome) == (task.id, EnqueueOutcome.EXISTS)
            assert await count(engine, State.PENDING) == 4
            await sound(engine)

    run(test)


def test_a_claim_whose_answer_is_lost(proxy: Proxy) -> None:
    """It is not repeated by itself: its caller does, and gets the same tasks."""

    async def test() -> None:
        for name, limits in (("claim", {}), ("save", {"max_concurrent": 100})):
            async with engines(url=behind(proxy)) as (engine,):
                await set_queue(engine, **limits)
                await engine.enqueue([new() for _ in range(5)])
                await engine.queues()
                request = ClaimRequest(worker="lost", sequence=7, queues=("default",), limit=2)
                lose_answer(proxy, name)
                with pytest.raises(StoreUnavailable, match="may be repeated"):
                    await engine.claim(request)
                assert await count(engine, State.RUNNING) == 2
                again = ClaimRequest(worker="lost", sequence=7, queues=("default",), limit=2, repeat=True)
                tasks = (await engine.claim(again)).tasks
                assert len(tasks) == 2
                assert (await engine.claim(again)).tasks == tasks
                assert await count(engine, State.RUNNING) == 2
                assert [each.outcome for each in await settle(engine, tasks)] == [SettleOutcome.DONE] * 2
                await sound(engine)

    run(test)


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED, Outcome.PERMANENT, Outcome.RELEASED])
def test_a_settlement_whose_answer_is_lost(proxy: Proxy, outcome: Outcome) -> None:
    async def test() -> None:
        async with engines(url=behind(proxy)) as (engine,):
            await engine.enqueue([new(), new()])
            await engine.queues()
            first, second = await claim(engine, 2)
            await settle(engine, [first], outcome)
            lose_answer(proxy, "complete" if outcome is Outcome.COMPLETED else "save")
            (answer,) = await settle(engine, [second], outcome)
            assert proxy.sprung.is_set()
            assert answer.outcome is SettleOutcome.ALREADY, "it has been settled by this lease"
            states = {record.state for record in await engine.get([first.id, second.id]) if record is not None}
            assert len(states) == 1
            await sound(engine)

    run(test)


def test_an_extension_whose_answer_is_lost(proxy: Proxy) -> None:
    async def test() -> None:
        async with engines(url=behind(proxy)) as (engine,):
            await engine.enqueue([new()])
            (task,) = await claim(engine, 1)
            lose_answer(proxy, "extend")
            (answer,) = await engine.extend([Extension(Lease(task.id, task.lease), by=MINUTE)])
            assert proxy.sprung.is_set()
            assert answer.outcome is ExtendOutcome.HELD

    run(test)


def test_an_act_whose_answer_is_lost(proxy: Proxy) -> None:
    async def test() -> None:
        async with engines(url=behind(proxy)) as (engine,):
            (task,) = tasks = [new()]
            await engine.enqueue(tasks)
            lose_answer(proxy, "save")
            (answer,) = await engine.act([Cancel(task.id)], actor="ada")
            assert proxy.sprung.is_set()
            assert answer in (Changed.DONE, Changed.WRONG_STATE)
            assert await count(engine, State.CANCELLED) == 1
            assert len(await engine.audit()) == 1, "it was done once"
            await sound(engine)

    run(test)


def test_connections_that_break_are_made_again_without_noise(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with quiet_loop() as told, engines(url=behind(proxy)) as (engine,):
            for number in range(20):
                calls = [engine.enqueue([new()]) for _ in range(3)] + [engine.counts() for _ in range(3)]
                under_way = asyncio.gather(*calls)
                await asyncio.sleep(0)
                proxy.cut()
                await under_way
                assert await count(engine, State.PENDING) == 3 * (number + 1)
            gc.collect()
            assert told == []

    run(test)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


# Stalls.


CALLS: dict[str, Callable[[RedisEngine, list[LeasedTask]], Awaitable[Any]]] = {
    "enqueue": lambda engine, _: engine.enqueue([new()]),
    "enqueue decided": lambda engine, _: engine.enqueue([new(key="k")]),
    "claim": lambda engine, _: claim(engine, 1),
    "complete": lambda engine, held: settle(engine, held[:1]),
    "settle": lambda engine, held: settle(engine, held[1:2], Outcome.RELEASED),
    "extend": lambda engine, held: engine.extend([Extension(Lease(held[2].id, held[2].lease), MINUTE)]),
    "rescue": lambda engine, _: engine.rescue(),
    "get": lambda engine, held: engine.get([held[2].id]),
    "beat": lambda engine, _: engine.beat(beat("w", 1)),
    "lead": lambda engine, _: engine.lead("w"),
}


def test_every_call_on_a_frozen_server_ends_in_time(own: Server) -> None:
    async def test() -> None:
        async with engines(url=own.url, **BRIEF) as (engine,):
            await engine.enqueue([new() for _ in range(4)])
            held = await claim(engine, 3)
            own.freeze()
            try:
                for name, call in [*CALLS.items()][::2]:
                    began = time.monotonic()
                    with pytest.raises(StoreUnavailable, match=r"did not answer in time.*may be repeated") as caught:
                        await call(engine, held)
                    assert time.monotonic() - began < 1.5, name
                    assert "\n" not in str(caught.value)
            finally:
                own.thaw()
            await somehow(engine.counts)
            await sound(engine)

    run(test)


def test_closing_does_not_wait_for_a_frozen_server(own: Server) -> None:
    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            subscription = engine.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE)
            own.freeze()
            try:
                under_way = asyncio.create_task(engine.enqueue([new()]))
                await asyncio.sleep(0)
                began = time.monotonic()
                await engine.close()
                assert time.monotonic() - began < 1
                with pytest.raises(Exception, match="closed"):
                    await under_way
            finally:
                own.thaw()

    run(test)


def test_a_pause_of_the_clients_is_waited_for(own: Server) -> None:
    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            await engine.enqueue([new()])
            for mode in ("WRITE", "ALL"):
                own.command("CLIENT", "PAUSE", 300, mode)
                began = time.monotonic()
                assert len(await claim(engine, 1)) == 1
                assert 0.1 < time.monotonic() - began < 5
                await asyncio.gather(*(engine.enqueue([new()]) for _ in range(10)))
            assert await count(engine, State.PENDING) == 19
            await sound(engine)

    run(test)


def test_a_pause_that_is_longer_than_the_timeout_loses_nothing(own: Server) -> None:
    async def test() -> None:
        async with engines(url=own.url, **BRIEF) as (engine,):
            await engine.enqueue([new()])
            own.command("CLIENT", "PAUSE", 1000, "WRITE")
            task = new()
            with pytest.raises(StoreUnavailable, match="did not answer in time"):
                await engine.enqueue([task])
            (answer,) = await somehow(lambda: engine.enqueue([task]))
            assert answer.id == task.id
            assert await count(engine, State.PENDING) == 2
            await sound(engine)

    run(test)


# Restarts.


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_server_with_a_log_has_everything_after_a_restart(kept: Server, way: str) -> None:
    async def test() -> None:
        async with engines(url=kept.url) as (engine,):
            await engine.enqueue([new() for _ in range(10)])
            held = await claim(engine, 4)
            await settle(engine, held[:2])
            await settle(engine, held[2:3], Outcome.PERMANENT)
            before = dump(kept, engine)
            (kept.stop if way == "stop" else kept.kill)()
            with pytest.raises(StoreUnavailable, match="the connection was refused"):
                await engine.counts()
            kept.start()
            assert dump(kept, engine) == before
            assert [each.outcome for each in await settle(engine, held[3:])] == [SettleOutcome.DONE]
            assert len(await claim(engine, 10)) == 6
            await sound(engine)

    run(test)


def test_calls_during_a_short_restart_need_not_know_of_it(kept: Server) -> None:
    async def test() -> None:
        async with engines(url=kept.url) as (engine,):
            await engine.enqueue([new()])
            kept.kill()
            under_way = [asyncio.create_task(somehow(lambda: engine.enqueue([new()]))) for _ in range(5)]
            await asyncio.to_thread(kept.start)
            await asyncio.gather(*under_way)
            assert await count(engine, State.PENDING) == 6

    run(test)


RESTARTED: dict[str, Callable[[RedisEngine, list[LeasedTask]], Awaitable[Any]]] = {
    name: CALLS[name] for name in ("enqueue", "claim", "complete", "settle", "extend", "beat", "get")
}


@pytest.mark.parametrize("verb", RESTARTED)
def test_a_server_that_forgot_everything_is_a_new_store(own: Server, verb: str) -> None:
    """Whatever is called first: it ends, what was held is lost, and all goes on."""

    async def test() -> None:
        async with engines(2, url=own.url) as (engine, other):
            await engine.enqueue([new() for _ in range(4)])
            held = await claim(engine, 3)
            own.kill()
            own.start()
            async with asyncio.timeout(5):
                answer = await somehow(lambda: RESTARTED[verb](engine, held))
            if verb in ("complete", "settle"):
                assert [each.outcome for each in answer] == [SettleOutcome.REFUSED]
            async with asyncio.timeout(10):
                tasks = [new(queue="another"), new(), new(name="other")]
                for task in tasks:
                    await other.enqueue([task])
                await engine.enqueue([new(name="third")])
                found = [*await claim(engine, 10), *await claim(other, 10, queues=("another",))]
                assert {task.id for task in tasks} <= {task.id for task in found}
                assert [each.outcome for each in await settle(engine, found)] == [SettleOutcome.DONE] * len(found)
            await sound(other)

    run(test)


def test_an_idle_worker_of_a_store_that_was_emptied_does_not_spin(own: Server) -> None:
    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            await engine.enqueue([new()])
            await claim(engine, 1)
            own.command("FLUSHALL")
            request = ClaimRequest(worker="w", sequence=10**6, queues=("default",), limit=1)
            claimed = await engine.claim(request)
            assert (claimed.tasks, claimed.next_due_in) == ([], None)

    run(test)


def test_what_was_known_of_a_store_that_was_emptied_is_not_taken_for_true(own: Server) -> None:
    """The new store has had as many changes as the old one, but not the same."""

    async def test() -> None:
        async with engines(2, url=own.url) as (engine, other):
            key = f"{{{engine.address.prefix}}}:store"
            await engine.enqueue([new(queue=queue) for queue in "ab"])
            await engine.queues()
            own.command("FLUSHALL")
            for queue in "cdefghij":
                await other.enqueue([new(queue=queue)])
                if own.command("HGET", key, "generation") == str(engine._opened().catalog.generation):
                    break
            task = new(queue="a")
            await engine.enqueue([task])
            assert [each.id for each in await claim(other, 5, queues=("a",))] == [task.id]
            await sound(other)

    run(test)


# No room.


@asynccontextmanager
async def full(own: Server) -> AsyncIterator[None]:
    own.command("CONFIG", "SET", "maxmemory", 1)
    try:
        yield
    finally:
        own.command("CONFIG", "SET", "maxmemory", 0)


@pytest.mark.parametrize("settings", [{}, {"max_concurrent": 50}, {"per_partition": {"max_concurrent": 1}}], ids=str)
def test_a_full_server_does_nothing_by_halves(own: Server, settings: dict[str, Any]) -> None:
    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            await set_queue(engine, **settings)
            await engine.enqueue([new(partition=f"p{number}") for number in range(8)])
            held = await claim(engine, 3)
            before = dump(own, engine)
            async with full(own):
                for name, call in CALLS.items():
                    if name in ("get", "rescue"):
                        await call(engine, held)
                        continue
                    with pytest.raises(StoreUnavailable, match=r"is full: .* Nothing was written; raise maxmemory"):
                        await call(engine, held)
                    assert dump(own, engine) == before, name
            for name, call in CALLS.items():
                await call(engine, held)
                assert name
            await sound(engine)

    run(test)


@pytest.mark.skipif("redis7" not in binaries(), reason="Debian's Redis 7 is not installed here")
def test_a_full_server_can_still_be_emptied() -> None:
    """Else nothing but more memory would help: not even what is past its retention could be deleted. From Redis 7.0 on,
    a script can say that it may write even so."""
    own = server("redis7")

    async def test() -> None:
        async with engines(url=own.url) as (engine,):
            await engine.enqueue([new() for _ in range(3)])
            await settle(engine, await claim(engine, 2))
            term = await engine.lead("w")
            assert term is not None
            now = (await engine.rescue()).at
            async with full(own):
                done = await engine.chore("prune_finished", term, now=now + 30 * SECOND)
                assert not done.refused

    run(test)


# Failovers.


@pytest.fixture
def watched() -> Iterator[Sentinels]:
    """Of the test's own: to heal them takes longer than to start them."""
    yield (found := Sentinels())
    found.remove()


@pytest.fixture
def clustered() -> Iterator[Cluster]:
    yield (found := cluster())
    found.heal()


async def survive(engine: RedisEngine, other: RedisEngine, fail: Callable[[], object]) -> tuple[float, float]:
    """Until both calls and wake-ups go on after a failure; how long each took."""
    subscription = engine.subscribe([work_topic("default")])
    assert await subscription.wait(PATIENCE)
    await engine.enqueue([new() for _ in range(3)])
    (held,) = await claim(engine, 1)
    await asyncio.to_thread(fail)
    began = time.monotonic()
    answers = await somehow(lambda: settle(engine, [held]))
    calls = time.monotonic() - began
    assert [each.outcome for each in answers] == [SettleOutcome.DONE]
    assert len(await somehow(lambda: claim(engine, 5))) == 2

    async def woken() -> bool:
        await somehow(lambda: claim(engine, 100))  # it finds too little, and wants to be woken
        while await subscription.wait(0):
            pass
        await somehow(lambda: other.enqueue([new()]))
        return await subscription.wait(0.2)

    await until(woken)
    subscription.close()
    await sound(engine)
    return calls, time.monotonic() - began


@pytest.mark.slow
def test_sentinels_name_another_primary(watched: Sentinels) -> None:
    async def test() -> None:
        async with engines(2, url=watched.url, connect_timeout=1) as (engine, other):
            await engine.enqueue([new(queue="before")])
            assert await asyncio.to_thread(watched.primary.command, "WAIT", 1, 10_000) == 1

            def fail() -> None:
                assert watched.primary.command("WAIT", 1, 10_000) == 1
                watched.kill_primary()

            calls, wakes = await survive(engine, other, fail)
            print(f"sentinel: calls after {calls:.1f} s, wake-ups after {wakes:.1f} s")
            assert wakes < 15

    run(test)


@pytest.mark.slow
def test_a_cluster_promotes_a_replica(clustered: Cluster) -> None:
    async def test() -> None:
        async with engines(2, url=clustered.url, connect_timeout=1) as (engine, other):
            await engine.enqueue([new(queue="before")])
            key = f"{{{engine.address.prefix}}}:store"

            def fail() -> None:
                assert clustered.primary_of(key).command("WAIT", 1, 10_000) == 1
                clustered.kill_primary(key)

            calls, wakes = await survive(engine, other, fail)
            print(f"cluster: calls after {calls:.1f} s, wake-ups after {wakes:.1f} s")
            assert wakes < 15

    run(test)


@pytest.mark.soak
def test_a_primary_that_was_made_a_replica_is_left(watched: Sentinels) -> None:
    """A failover on request: the old primary lives on, and refuses writes."""

    async def test() -> None:
        async with engines(2, url=watched.url, connect_timeout=1) as (engine, other):
            old = watched.primary

            def fail() -> None:
                assert watched.primary.command("WAIT", 1, 10_000) == 1
                watched.sentinels[0].command("SENTINEL", "FAILOVER", "mymaster")
                watched.until_failover(old)

            calls, wakes = await survive(engine, other, fail)
            print(f"switch: calls after {calls:.1f} s, wake-ups after {wakes:.1f} s")

    run(test)


# Replicas that must have it, too.


def test_replicas_that_are_missing_are_said(own: Server) -> None:
    async def test() -> None:
        url = new_url(own.url)
        async with opened(url) as plain:
            await plain.enqueue([new()])
            held = await claim(plain, 1)
        async with opened(f"{url}&replicas=1") as engine:
            task = new()
            enqueue, complete = (lambda: engine.enqueue([task])), (lambda: settle(engine, held))
            for call in (enqueue, enqueue, complete, complete):  # a repeat is not acknowledged either
                with pytest.raises(StoreUnavailable, match=r"only 0 of 1 replicas have it\. It may be repeated"):
                    await call()

    run(test)


def test_a_new_store_waits_for_its_replicas(own: Server) -> None:
    async def test() -> None:
        with pytest.raises(StoreUnavailable, match="only 0 of 1 replicas"):
            async with opened(new_url(own.url, replicas=1)):
                pass

    run(test)


@pytest.mark.slow
def test_replicas_that_are_there_have_it() -> None:
    async def test() -> None:
        watched = sentinels()
        async with engines(url=watched.url, replicas=1) as (engine,):
            tasks = [new() for _ in range(3)]
            await engine.enqueue(tasks)
            tasks_key = f"{{{engine.address.prefix}}}:tasks"
            assert watched.replica.command("HLEN", tasks_key) == 3
            held = await claim(engine, 3)
            assert watched.replica.command("HLEN", f"{{{engine.address.prefix}}}:running") == 3
            await settle(engine, held)
            assert watched.replica.command("HLEN", tasks_key) == 0
            assert "waits for 1 replica to have it too" in (await engine.about()).durability

    run(test)


def test_callers_share_the_connection_that_is_just_made(own: Server) -> None:
    """A second one would never be closed."""

    async def body() -> None:
        client = Client(from_url(own.url).address, "dibs")
        first = asyncio.ensure_future(client.connection())
        while client.connecting is None or not client.connecting.done():
            await asyncio.sleep(0)
        assert client.line is None  # the callback that keeps it comes in the next turn
        assert await client.connection() is await first
        client.close()
        await asyncio.sleep(0)

    run(body)
