"""What lies between us and the server breaks, or the server goes away: calls end, nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from postgres_help import claim, new, run, settle, sound

from dibs.core.states import State
from dibs.core.task import Lease, LeasedTask, NewTask, Outcome, Settlement
from dibs.engines.postgres import PostgresEngine, from_url, notifier
from dibs.engines.postgres.store import NOTHING
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.topics import work_topic
from dibs.engines.values import Beat, Cancel, ClaimRequest, EnqueueOutcome, Extension, SettleOutcome
from dibs.errors import StoreError, StoreUnavailable
from servers.cluster import Cluster, has_disks, join_urls
from servers.proxy import Proxy

PATIENCE = 30.0
BRIEF = {"timeout": "2", "connect_timeout": "2"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.new()
    yield cluster
    cluster.remove()


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster.port) as proxy:
        yield proxy


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresEngine]:
    engine = from_url(url)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def somehow(act: Callable[[], Awaitable[Any]]) -> Any:
    """As callers are told to: again when the store was not available."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return await act()
        except StoreError:
            assert time.monotonic() < until, "it never recovers"
            await asyncio.sleep(0.01)


async def enqueue_until_it_fails(engine: PostgresEngine, **facts: Any) -> None:
    """A server hears of its new settings a moment after they were made."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await engine.enqueue([new(**facts)])


async def count(engine: PostgresEngine, state: State, queue: str = "default") -> int:
    return ((await engine.counts()).tasks).get(queue, {}).get(state, 0)


def pool_is_whole(engine: PostgresEngine) -> bool:
    """Everything that was lent is back, and every slot is free."""
    pool = engine._opened().pool
    return not pool.lent and pool.headroom._value == pool.address.pool_size


async def quiet(engine: PostgresEngine) -> None:
    """Until nothing is under way: enqueueing notifies afterwards."""
    async with asyncio.timeout(PATIENCE):
        while not pool_is_whole(engine) or engine._opened().notifier.sending:
            await asyncio.sleep(0.005)


# Stalls.

BEAT = Beat(id="w", host="h", pid=1, version="1", queues=("default",), names=None)

CALLS: dict[str, Callable[[PostgresEngine, list[LeasedTask]], Awaitable[Any]]] = {
    "enqueue": lambda engine, _: engine.enqueue([new()]),
    "enqueue decided": lambda engine, _: engine.enqueue([new(key="k")]),
    "claim": lambda engine, _: claim(engine, 1),
    "complete": lambda engine, held: settle(engine, held[:1]),
    "settle": lambda engine, held: settle(engine, held[1:2], Outcome.RELEASED),
    "extend": lambda engine, held: engine.extend([Extension(Lease(held[2].id, held[2].lease), 30_000_000)]),
    "rescue": lambda engine, _: engine.rescue(),
    "get": lambda engine, held: engine.get([held[2].id]),
    "counts": lambda engine, _: engine.counts(),
    "beat": lambda engine, _: engine.beat(BEAT),
    "lead": lambda engine, _: engine.lead("w"),
}


def test_every_call_on_a_stalled_connection_ends_in_time(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        direct = cluster.url()
        brief = direct.replace(f":{cluster.port}/", f":{proxy.port}/") + "&timeout=0.5&connect_timeout=0.5"
        async with opened(direct) as witness, opened(brief) as engine:
            await witness.enqueue([new() for _ in range(4)])
            held = await claim(witness, 3)
            for name, call in CALLS.items():
                await somehow(engine.queues)  # there is a connection again
                await quiet(engine)
                assert proxy.stall() > 0
                began = time.monotonic()
                with pytest.raises(StoreUnavailable, match=r"did not answer in time.*may be repeated") as caught:
                    await call(engine, held)
                assert time.monotonic() - began < 6, name
                assert "\n" not in str(caught.value)
                assert pool_is_whole(engine), name
                assert not engine._opened().pool.idle, "those that are left would stall too"
                proxy.heal()
            await sound(witness)

    run(test)


@pytest.mark.parametrize("act", ["stall", "before", "after"])
def test_a_transaction_whose_commit_is_not_answered(cluster: Cluster, proxy: Proxy, act: str) -> None:
    async def test() -> None:
        async with opened(cluster.url(proxy.port, **(BRIEF if act == "stall" else {}))) as engine:
            task = new(key="k")
            await engine.enqueue([new(key="other")])
            proxy.trap(b"COMMIT\0", act)
            if act == "stall":
                with pytest.raises(StoreUnavailable, match="may be repeated"):
                    await engine.enqueue([task])
                answer = (await engine.enqueue([task]))[0]
            else:
                answer = (await engine.enqueue([task]))[0]  # the connection was made again, and the call repeated
            assert proxy.sprung.is_set()
            assert answer.id == task.id
            assert answer.outcome is (EnqueueOutcome.EXISTS if act == "after" else EnqueueOutcome.ENQUEUED)
            assert await count(engine, State.PENDING) == 2
            await quiet(engine)
            await sound(engine)

    run(test)


def test_a_rollback_that_is_not_answered(cluster: Cluster, proxy: Proxy) -> None:
    async def refuse(transaction: Transaction) -> None:
        raise LookupError("this can't be done")

    async def test() -> None:
        async with opened(cluster.url(proxy.port, **BRIEF)) as engine:
            with pytest.raises(LookupError):
                await engine._opened().write(refuse, None, NOTHING)
            proxy.trap(b"ROLLBACK\0", "stall")
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="did not answer in time"):
                await engine._opened().write(refuse, None, NOTHING)
            assert proxy.sprung.is_set()
            assert time.monotonic() - began < 6
            assert pool_is_whole(engine)
            await engine.enqueue([new()])

    run(test)


def test_a_caller_who_stops_waiting_does_not_wait_for_the_stall(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        async with opened(cluster.url(proxy.port)) as engine:  # with half a minute for each statement
            await engine.enqueue([new()])
            task = new()
            for call in (lambda: engine.enqueue([task]), lambda: engine.act([Cancel(task.id)])):
                await quiet(engine)
                proxy.stall()
                under_way = asyncio.create_task(call())
                await asyncio.wait({under_way}, timeout=0.1)
                began = time.monotonic()
                under_way.cancel()
                await asyncio.wait({under_way}, timeout=PATIENCE)
                assert under_way.cancelled()
                assert pool_is_whole(engine)
                proxy.stalls_new = False  # the connection that it was on stays as it is
                await engine.enqueue([new()])
                assert time.monotonic() - began < 10
                proxy.heal()
            await sound(engine)

    run(test)


def test_closing_does_not_wait_for_the_stall(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        async with opened(cluster.url(proxy.port)) as engine:
            subscription = engine.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE)
            await asyncio.gather(*(engine.enqueue([new()]) for _ in range(4)))
            proxy.stall()
            began = time.monotonic()
            await engine.close()
            assert time.monotonic() - began < 10

    run(test)


def test_a_server_that_takes_connections_and_says_nothing(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        proxy.stall()
        for sslmode in ("disable", "require"):  # in the handshakes of the driver and of TLS
            engine = from_url(cluster.url(proxy.port, connect_timeout="0.5", sslmode=sslmode))
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="did not answer in time"):
                await engine.open()
            assert time.monotonic() - began < 5

    run(test)


def test_a_listener_that_stalls_is_found_out(cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "PING_SECONDS", 0.2)
    monkeypatch.setattr(notifier, "ANSWER_SECONDS", 0.2)

    async def test() -> None:
        url = cluster.url(proxy.port)
        async with opened(url) as worker, opened(url.replace(f":{proxy.port}/", f":{cluster.port}/")) as producer:
            subscription = worker.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE), "it rings when it begins to listen"
            assert proxy.stall(new=False) > 0
            assert await subscription.wait(PATIENCE), "and when it does so again, on another connection"
            await producer.enqueue([new()])
            assert await subscription.wait(PATIENCE)
            subscription.close()

    run(test)


def test_slow_is_not_dead(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        async with opened(cluster.url(proxy.port, timeout="20")) as engine:
            proxy.delay = 0.02
            await engine.enqueue([new(key=f"k{i}") for i in range(20)])
            await settle(engine, await claim(engine, 20))
            assert await count(engine, State.COMPLETED) == 20

    run(test)


# Cuts.


def test_tasks_enqueued_through_random_cuts_are_there_once(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        direct = cluster.url()
        async with opened(direct) as witness, opened(direct.replace(f":{cluster.port}/", f":{proxy.port}/")) as engine:
            lone = [new(key=f"k{i}" if i % 3 == 0 else None) for i in range(90)]
            batches = [[new() for _ in range(5)] for _ in range(60)]
            failed: list[list[NewTask]] = []
            acknowledged: list[NewTask] = []

            async def enqueue(tasks: list[NewTask], atomic: bool) -> None:
                try:
                    answers = await engine.enqueue(tasks, atomic=atomic)
                except StoreUnavailable:
                    failed.append(tasks)
                else:
                    assert all(answer.id == task.id for answer, task in zip(answers, tasks, strict=True))
                    acknowledged.extend(tasks)

            proxy.cut_at_random(0.06, seed=4)
            calls = [enqueue([task], False) for task in lone] + [enqueue(batch, True) for batch in batches]
            for start in range(0, len(calls), 8):
                await asyncio.gather(*calls[start : start + 8])
            assert failed, "or nothing was tried"
            assert acknowledged
            for batch in failed:
                there = [each is not None for each in await witness.get([task.id for task in batch])]
                assert all(there) or not any(there), "all or nothing"
            assert all(await witness.get([task.id for task in acknowledged]))
            proxy.heal()
            for batch in failed:
                answers = await somehow(lambda batch=batch: engine.enqueue(batch, atomic=True))
                assert {answer.outcome for answer in answers} <= {EnqueueOutcome.ENQUEUED, EnqueueOutcome.EXISTS}
            total = len(lone) + sum(len(batch) for batch in batches)
            assert await count(witness, State.PENDING) == total
            assert len(await claim(witness, total + 1)) == total
            await sound(witness)

    run(test)


class Hand:
    """A worker reduced to what matters here: it repeats its claims and settlements until they are answered."""

    def __init__(self, engine: PostgresEngine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.sequence = 0
        self.ran: list[str] = []
        self.outcomes: list[SettleOutcome] = []
        self.failures = 0

    async def work(self, done: Callable[[], bool]) -> None:
        while not done():
            tasks = await self.claim()
            self.ran += [task.id for task in tasks]
            reports = [
                Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED, result=self.name.encode())
                for task in tasks
            ]
            if reports:
                answers = await self.insist(lambda reports=reports: self.engine.settle(reports))
                self.outcomes += [answer.outcome for answer in answers]

    async def claim(self) -> list[LeasedTask]:
        self.sequence += 1
        repeat = False
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            request = ClaimRequest(
                worker=self.name, sequence=self.sequence, queues=("default",), limit=5, repeat=repeat
            )
            try:
                return (await self.engine.claim(request)).tasks
            except StoreUnavailable:
                self.failures += 1
                repeat = True
                await asyncio.sleep(0.005)
        raise AssertionError("it never recovers")

    async def insist(self, act: Callable[[], Awaitable[Any]]) -> Any:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return await act()
            except StoreUnavailable:
                self.failures += 1
                assert time.monotonic() < until, "it never recovers"
                await asyncio.sleep(0.005)


async def work_off(hands: list[Hand], total: int) -> None:
    """Until all has been settled; then everything was given once, and one outcome was recorded for each."""
    async with asyncio.timeout(2 * PATIENCE):
        await asyncio.gather(*(hand.work(lambda: sum(len(each.ran) for each in hands) >= total) for hand in hands))
    ran = [task for hand in hands for task in hand.ran]
    assert len(ran) == len(set(ran)) == total
    assert {outcome for hand in hands for outcome in hand.outcomes} <= {SettleOutcome.DONE, SettleOutcome.ALREADY}
    assert sum(hand.failures for hand in hands) > 0, "or nothing was tried"


def test_work_through_random_cuts_is_done_once(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        direct = cluster.url()
        through = direct.replace(f":{cluster.port}/", f":{proxy.port}/")
        async with opened(direct) as witness, opened(through) as one, opened(through) as other:
            await witness.enqueue([new() for _ in range(200)])
            proxy.cut_at_random(0.05, seed=7)
            await work_off([Hand(one, "one"), Hand(other, "other")], 200)
            proxy.heal()
            assert await count(witness, State.COMPLETED) == 200
            assert await count(witness, State.RUNNING) == 0
            await sound(witness)

    run(test)


@pytest.mark.parametrize("act", ["before", "after"])
def test_a_settlement_whose_answer_is_lost(cluster: Cluster, proxy: Proxy, act: str) -> None:
    async def test() -> None:
        async with opened(cluster.url(proxy.port)) as engine:
            await engine.enqueue([new()])
            (task,) = await claim(engine, 1)
            report = Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED, result=b'"marked"')
            proxy.trap(b'"marked"', act)
            (answer,) = await engine.settle([report])
            assert proxy.sprung.is_set()
            assert answer.outcome is (SettleOutcome.ALREADY if act == "after" else SettleOutcome.DONE)
            record = (await engine.get([task.id]))[0]
            assert record is not None
            assert record.result == b'"marked"'
            await sound(engine)

    run(test)


def test_a_claim_whose_answer_is_lost_is_given_again(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        async with opened(cluster.url(proxy.port)) as engine:
            await engine.enqueue([new() for _ in range(5)])
            request = {"worker": "marked", "sequence": 7, "queues": ("default",), "limit": 3}
            proxy.trap(b"marked", "after")
            with pytest.raises(StoreUnavailable, match="may be repeated"):
                await engine.claim(ClaimRequest(**request))
            assert proxy.sprung.is_set()
            again = await engine.claim(ClaimRequest(**request, repeat=True))
            assert len(again.tasks) == 3
            assert await count(engine, State.RUNNING) == 3
            await sound(engine)

    run(test)


def test_a_server_that_refuses_and_comes_back(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        async with opened(cluster.url(proxy.port)) as engine:
            await engine.enqueue([new()])
            proxy.refuse()
            for _ in range(3):
                began = time.monotonic()
                with pytest.raises(StoreUnavailable, match=r"can't be reached.*may be repeated"):
                    await engine.enqueue([new()])
                assert time.monotonic() - began < 5, "at once"
            proxy.heal()
            await engine.enqueue([new()])
            await quiet(engine)

    run(test)


# Restarts.


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_work_goes_on_after_a_restart(cluster: Cluster, mode: str) -> None:
    async def test() -> None:
        url = cluster.url(timeout="10", connect_timeout="5")
        async with opened(url) as one, opened(url) as other:
            acknowledged: list[str] = []

            async def produce(number: int) -> None:
                task = new()
                await somehow(lambda: one.enqueue([task]))
                acknowledged.append(task.id)

            hands = [Hand(one, "one"), Hand(other, "other")]
            producing = asyncio.gather(*(produce(number) for number in range(100)))
            working = asyncio.create_task(work_off(hands, 200))
            await producing
            await asyncio.to_thread(cluster.restart, mode)
            await asyncio.gather(*(produce(number) for number in range(100)))
            await working
            assert {task for hand in hands for task in hand.ran} == set(acknowledged)
            assert await count(one, State.COMPLETED) == 200
            await sound(one)

    run(test)


def test_a_server_that_is_down_is_said_to_be(cluster: Cluster) -> None:
    async def test() -> None:
        async with opened(cluster.url()) as engine:
            subscription = engine.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE)
            await asyncio.to_thread(cluster.stop)
            try:
                with pytest.raises(StoreUnavailable, match=r"can't be reached.*may be repeated"):
                    await engine.enqueue([new()])
                with pytest.raises(StoreUnavailable, match="can't be reached"):
                    await engine.get([new().id])
            finally:
                await asyncio.to_thread(cluster.start)
            await somehow(lambda: engine.enqueue([new()]))
            assert await subscription.wait(PATIENCE), "it listens again"
            subscription.close()

    run(test)


def test_a_listener_logs_an_outage_once(
    cluster: Cluster, proxy: Proxy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "LONGEST_RETRY_SECONDS", 0.1)
    caplog.set_level("INFO", logger="dibs.engines.postgres")

    async def test() -> None:
        async with opened(cluster.url(proxy.port)) as engine:
            subscription = engine.subscribe([work_topic("default")])
            for _ in range(2):  # it listens now, and has looked again
                assert await subscription.wait(PATIENCE)
            proxy.refuse()
            before = proxy.accepted
            async with asyncio.timeout(PATIENCE):
                while proxy.accepted < before + 5:
                    await asyncio.sleep(0.01)
            proxy.heal()
            assert await subscription.wait(PATIENCE)
            subscription.close()

    run(test)
    assert sum("Can't listen" in message for message in caplog.messages) == 1
    assert sum("again." in message for message in caplog.messages) == 1


# Failover.


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary that acknowledges what its standby has, and that standby."""
    primary = Cluster.new()
    standby = primary.standby()
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    yield primary, standby
    standby.remove()
    primary.remove()


def test_work_goes_on_at_the_promoted_standby(pair: tuple[Cluster, Cluster]) -> None:
    async def test() -> None:
        primary, standby = pair
        url = join_urls(primary.url(timeout="10", connect_timeout="5"), standby.url())
        async with opened(url) as one, opened(url) as other:
            subscription = other.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE)
            tasks = [new() for _ in range(100)]
            await one.enqueue(tasks)
            working = asyncio.create_task(work_off([Hand(one, "one"), Hand(other, "other")], 200))
            await asyncio.to_thread(primary.stop, "immediate")
            await asyncio.to_thread(standby.promote)
            more = [new() for _ in range(100)]
            await somehow(lambda: one.enqueue(more))
            await working
            assert await count(one, State.COMPLETED) == 200
            async with asyncio.timeout(PATIENCE):
                while not await subscription.wait(0.01):
                    await one.enqueue([new()])
            subscription.close()
            await sound(one)

    run(test)


def test_a_primary_that_became_read_only_is_left(pair: tuple[Cluster, Cluster]) -> None:
    async def test() -> None:
        old, new_primary = pair
        async with opened(join_urls(old.url(), new_primary.url())) as engine:
            await engine.enqueue([new()])
            await asyncio.to_thread(
                old.sql,
                "ALTER SYSTEM SET synchronous_standby_names = ''",
                "ALTER SYSTEM SET default_transaction_read_only = on",
                "SELECT pg_reload_conf()",
            )
            with pytest.raises(StoreUnavailable, match=r"no server that takes writes|read-only"):
                await enqueue_until_it_fails(engine)
            await asyncio.to_thread(new_primary.promote)
            await somehow(lambda: engine.enqueue([new(name="there")]))
            assert engine._opened().pool.hosts[0]["port"] == new_primary.port
            claimed = await claim(engine, 1000)
            assert claimed[-1].name == "there"

    run(test)


def test_a_host_that_does_not_answer_costs_its_time_once(cluster: Cluster, proxy: Proxy) -> None:
    async def test() -> None:
        proxy.stall()
        url = join_urls(cluster.url(proxy.port, connect_timeout="0.5"), cluster.url())
        async with opened(url) as engine:
            tried = proxy.accepted
            assert tried > 0
            await asyncio.gather(*(engine.enqueue([new()]) for _ in range(20)))
            assert proxy.accepted == tried, "the server that answered is asked first"

    run(test)


# Servers that take no writes.


def test_a_standby_can_be_read(pair: tuple[Cluster, Cluster]) -> None:
    async def test() -> None:
        primary, standby = pair
        url = primary.url()
        async with opened(url) as writer:
            task = new()
            await writer.enqueue([task])
            reader = from_url(url.replace(f":{primary.port}/", f":{standby.port}/"))
            await somehow(reader.open)  # the standby has the schema a moment later
            async with asyncio.timeout(PATIENCE):
                while (await reader.get([task.id]))[0] is None:  # it is applied a moment after it was received
                    await asyncio.sleep(0.01)
            assert await count(reader, State.PENDING) == 1
            with pytest.raises(StoreUnavailable, match=r"read-only.*Nothing was written"):
                await reader.enqueue([new()])
            with pytest.raises(StoreUnavailable, match=r"read-only.*Nothing was written"):
                await claim(reader, 1)
            assert (await reader.get([task.id]))[0] is not None
            await reader.close()
            with pytest.raises(StoreUnavailable, match="read-only"):
                await from_url(standby.url()).open()  # there is no schema of this name, and none can be made

    run(test)


def test_a_server_that_is_set_read_only_for_a_while(cluster: Cluster) -> None:
    async def test() -> None:
        async with opened(cluster.url()) as engine:
            task = new()
            await engine.enqueue([task])
            await asyncio.to_thread(
                cluster.sql, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"
            )
            try:
                with pytest.raises(StoreUnavailable, match=r"read-only.*try again once it takes writes"):
                    await enqueue_until_it_fails(engine, queue="other")
                assert await count(engine, State.PENDING) == 1
                assert (await engine.get([task.id]))[0] is not None
            finally:
                await asyncio.to_thread(
                    cluster.sql,
                    "SET default_transaction_read_only = off",
                    "ALTER SYSTEM RESET default_transaction_read_only",
                    "SELECT pg_reload_conf()",
                )
            await somehow(lambda: engine.enqueue([new()]))
            await sound(engine)

    run(test)


# Disks that are full.


@pytest.fixture
def small_disk() -> Iterator[Cluster]:
    if not has_disks():
        pytest.skip("needs the right to mount a small disk")
    cluster = Cluster.new(disk_size="64m")
    cluster.sql(
        f"CREATE TABLESPACE small LOCATION '{cluster.folder}/disk'",
        "CREATE DATABASE small TABLESPACE small",
    )
    yield cluster
    cluster.remove()


def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Cluster) -> None:
    async def test() -> None:
        async with opened(small_disk.url().replace("/postgres?", "/small?")) as engine:
            held = [new() for _ in range(20)]
            await engine.enqueue(held)
            running = await claim(engine, 10)
            filler = small_disk.disk / "filler"
            fill(filler)
            acknowledged: list[str] = []

            async def enqueue_much() -> None:
                async with asyncio.timeout(PATIENCE):
                    while True:
                        tasks = [new(args=random.randbytes(100_000)) for _ in range(5)]
                        await engine.enqueue(tasks, atomic=True)
                        acknowledged.extend(task.id for task in tasks)

            with pytest.raises(StoreUnavailable, match=r"has no room left.*try again once there is room"):
                await enqueue_much()
            assert len(await engine.get([running[0].id])) == 1, "reading goes on"
            filler.unlink()
            await settle(engine, running)
            await engine.enqueue([new()])
            assert all(await engine.get([*acknowledged, *(task.id for task in held)]))
            assert await count(engine, State.COMPLETED) == 10
            assert await count(engine, State.PENDING) == 11 + len(acknowledged)
            await sound(engine)

    run(test)


def fill(file: Path) -> None:
    """Until nothing fits on the disk any more."""
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(1 << 16)):
            pass
