"""PostgreSQL with Redis beside it: Redis makes it faster, and nothing depends on it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dibs import Dibs
from dibs.core.ids import uuid7
from dibs.core.limits import TOKEN, refill, spend, tokens
from dibs.core.settings import Limit, QueueSettings
from dibs.core.task import NewTask
from dibs.core.times import HOUR, SECOND
from dibs.engines.accelerated import Beside, RedisAccelerator, from_url, redis_address
from dibs.engines.accelerator import Ask
from dibs.engines.base import Subscription
from dibs.engines.open import open_engine, shown_url, with_accelerator
from dibs.engines.postgres import PostgresEngine
from dibs.engines.topics import ended_topic, work_topic
from dibs.engines.values import EnqueueOutcome, Level
from dibs.errors import InvalidOption
from dibs.testing.tasks import changed
from servers.postgres import new_url
from servers.redis import Server

PATIENCE = 20.0
SOON = 1.5
"""A second, and what a busy machine adds."""
ENQUEUED, LIMITED = EnqueueOutcome.ENQUEUED, EnqueueOutcome.LIMITED
numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One of its own: these tests kill it."""
    made = Server()
    yield made
    made.remove()


@pytest.fixture
def redis(server: Server) -> Server:
    server.revive()
    server.command("FLUSHALL")
    return server


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def new(**facts: Any) -> NewTask:
    number = next(numbers)
    made = uuid7(time.time_ns() // 1_000_000, 0, number)
    return changed(NewTask(id=made, queue="default", name="work"), **facts)


@asynccontextmanager
async def engines(redis: Server, many: int = 2) -> AsyncIterator[list[PostgresEngine]]:
    """Open engines on one new store."""
    url = with_accelerator(new_url(), redis.url)
    opened = [from_url(url) for _ in range(many)]
    try:
        for engine in opened:
            await engine.open()
        yield opened
    finally:
        for engine in opened:
            await engine.close()


def beside(engine: PostgresEngine) -> RedisAccelerator:
    found = engine._opened().notifier.accelerator
    assert isinstance(found, RedisAccelerator)
    return found


def outages(engine: PostgresEngine) -> int:
    assert isinstance(engine.accelerate, Beside)
    return engine.accelerate.outages


class Notified:
    """How many NOTIFYs an engine sends."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.number = 0
        lend = engine._opened().pool.lend
        notifier = engine._opened().notifier

        class Counting:
            def __getattr__(_, name: str) -> Any:
                return getattr(notifier_pool, name)

            def lend(_) -> Any:
                self.number += 1
                return lend()

        notifier_pool = notifier.pool
        notifier.pool = Counting()  # type: ignore[assignment]


async def until(ready: Callable[[], object], patience: float = PATIENCE) -> float:
    """Wait until it is so; how many seconds that took."""
    began = time.monotonic()
    async with asyncio.timeout(patience):
        while not ready():
            await asyncio.sleep(0.005)
    return time.monotonic() - began


async def listening(engine: PostgresEngine, *topics: str) -> Subscription:
    """A subscription that is confirmed on both ways, with nothing left to wake it."""
    found = engine.subscribe(topics)
    accelerator = beside(engine)
    channels = {accelerator.keys.channel(topic) for topic in topics}
    await until(lambda: channels <= accelerator.listening.heard)
    while await found.wait(0.3):
        pass
    return found


def lines(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    told = [record.getMessage() for record in caplog.records]
    return [line for line in told if all(word in line for word in words)]


# Waking.


def test_a_wake_up_goes_by_redis_and_not_by_notify(redis: Server) -> None:
    async def test() -> None:
        async with engines(redis) as (worker, producer):
            waiting = await listening(worker, work_topic("default"))
            notified = Notified(producer)
            for _ in range(3):
                await producer.enqueue([new()])
                assert await waiting.wait(PATIENCE)
                while await waiting.wait(0.1):  # once more, a little later
                    pass
            assert notified.number == 0
            waiting.close()

    run(test)


def test_behind_a_pooler_workers_are_woken_by_redis(redis: Server) -> None:
    async def test() -> None:
        async with engines(redis) as (worker, producer):
            worker._opened().notifier.direct = None
            waiting = worker.subscribe([work_topic("default")])
            accelerator = beside(worker)
            await until(lambda: accelerator.listening.heard)
            while await waiting._listener.wait(0.3):  # type: ignore[attr-defined]  # not one that polls
                pass
            await producer.enqueue([new()])
            assert await waiting._listener.wait(PATIENCE)  # type: ignore[attr-defined]
            waiting.close()

    run(test)


def test_what_nobody_hears_by_redis_is_notified_but_for_ends(redis: Server) -> None:
    """There may be processes without Redis."""

    async def test() -> None:
        async with engines(redis) as (producer, _):
            plain = open_engine(new_url())
            assert isinstance(plain, PostgresEngine)
            plain.address = producer.address  # on the same store, without Redis
            await plain.open()
            waiting = plain.subscribe([work_topic("default")])
            while await waiting.wait(0.5):
                pass
            notified = Notified(producer)
            await producer.enqueue([new()])
            assert await waiting.wait(PATIENCE)
            assert notified.number == 1
            await producer._opened().notifier.send([ended_topic("default")])
            assert notified.number == 1
            waiting.close()
            await plain.close()

    run(test)


def test_a_process_without_redis_wakes_one_that_has_it(redis: Server) -> None:
    async def test() -> None:
        async with engines(redis, 1) as (worker,):
            waiting = await listening(worker, work_topic("default"))
            plain = PostgresEngine(worker.address)
            await plain.open()
            await plain.enqueue([new()])
            assert await waiting.wait(PATIENCE)
            waiting.close()
            await plain.close()

    run(test)


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_without_redis_an_idle_worker_gets_work_within_a_second(
    redis: Server, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with engines(redis) as (worker, producer):
            waiting = await listening(worker, work_topic("default"))
            getattr(redis, how)()
            await producer.enqueue([new()])
            began = time.monotonic()
            while not (given := await waiting.wait(PATIENCE)):
                pass
            assert given
            assert time.monotonic() - began < SOON
            await until(lambda: not beside(worker).is_up and not beside(producer).is_up)
            assert (outages(worker), outages(producer)) == (1, 1)
            assert len(lines(caplog, "is away, so PostgreSQL does without it")) == 2  # one for each app
            (finding,) = [each for each in await worker.check() if each.title == "accelerator"]
            assert finding.level is Level.WARNING

            redis.revive()
            await until(lambda: beside(worker).is_up)
            while await waiting.wait(0.6):
                pass

            async def is_used_again() -> bool:
                notified = Notified(producer)
                await producer.enqueue([new()])
                assert await waiting.wait(PATIENCE)
                while await waiting.wait(0.1):
                    pass
                return notified.number == 0 and beside(producer).is_up

            async with asyncio.timeout(PATIENCE):
                while not await is_used_again():
                    pass
            assert len(lines(caplog, "is back, and is used again")) == 2
            (finding,) = [each for each in await worker.check() if each.title == "accelerator"]
            assert finding.level is Level.OK
            assert "which is up" in finding.detail
            waiting.close()

    run(test)


def test_a_worker_that_is_cut_off_from_redis_polls(redis: Server) -> None:
    """Others still publish there, so it would hear nothing."""

    async def test() -> None:
        async with engines(redis) as (worker, producer):
            waiting = await listening(worker, work_topic("default"))
            other = await listening(producer, work_topic("default"))
            beside(worker).listening.address = from_address(worker)
            redis.command("CLIENT", "KILL", "TYPE", "pubsub")
            await until(lambda: not beside(worker).is_up, SOON)
            while await other.wait(0.3):
                pass
            notified = Notified(producer)
            await producer.enqueue([new()])
            began = time.monotonic()
            assert await waiting.wait(PATIENCE)
            assert time.monotonic() - began < SOON
            assert notified.number == 0
            waiting.close()
            other.close()

    run(test)


def test_a_worker_that_may_not_listen_to_redis_polls(redis: Server, caplog: pytest.LogCaptureFixture) -> None:
    redis.command("ACL", "SETUSER", "deaf", "on", ">x", "~*", "resetchannels", "+@all", "-subscribe")

    async def test() -> None:
        async with engines(redis) as (_, producer):
            deaf = from_url(with_accelerator(new_url(), redis.url.replace("://", "://deaf:x@")))
            deaf.address = producer.address
            await deaf.open()
            waiting = deaf.subscribe([work_topic("default")])
            await until(lambda: not beside(deaf).is_up)
            assert outages(deaf) == 1
            assert lines(caplog, "is away, so PostgreSQL does without it", "does not allow")
            began = time.monotonic()
            assert await waiting.wait(PATIENCE)
            assert time.monotonic() - began < SOON
            waiting.close()
            await deaf.close()

    run(test)
    redis.command("ACL", "DELUSER", "deaf")


def from_address(engine: PostgresEngine) -> Any:
    return structs.replace(beside(engine).address, places=(("127.0.0.1", 1),))


def test_it_opens_and_works_without_redis(redis: Server) -> None:
    async def test() -> None:
        redis.kill()
        async with engines(redis, 1) as (engine,):
            waiting = engine.subscribe([work_topic("default")])
            assert [each.outcome for each in await engine.enqueue([new()])] == [ENQUEUED]
            await until(lambda: not beside(engine).is_up)
            waiting.close()

    run(test)


def test_siblings_and_forked_children_have_connections_of_their_own(redis: Server) -> None:
    async def test() -> None:
        async with engines(redis, 1) as (engine,):
            sibling = engine.sibling()
            await sibling.open()
            assert isinstance(sibling, PostgresEngine)
            waiting = await listening(sibling, work_topic("default"))
            await engine.enqueue([new()])
            assert await waiting.wait(PATIENCE)
            waiting.close()
            await sibling.close()
            assert sibling.accelerate is engine.accelerate

    run(test)
    app = Dibs(new_url(), accelerator=redis.url)
    task = app.task(nothing)
    task.enqueue()
    if (child := os.fork()) == 0:
        code = 1
        try:
            task.enqueue()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    task.enqueue()
    assert app.queues.get("default").counts["pending"] == 3
    app.close()


def nothing() -> None:
    pass


# Limits.


def test_a_rate_holds_over_several_engines(redis: Server) -> None:
    async def test() -> None:
        async with engines(redis, 3) as many:
            await many[0].set_queue("default", QueueSettings(enqueue_rate=0.001, enqueue_burst=20), expected=0)

            async def produce(engine: PostgresEngine) -> list[EnqueueOutcome]:
                return [(await engine.enqueue([new(client="a")]))[0].outcome for _ in range(20)]

            found = [each for part in await asyncio.gather(*map(produce, many)) for each in part]
            assert (found.count(ENQUEUED), found.count(LIMITED)) == (20, 40)
            assert await rows_of(many[0]) == 0  # none of them wrote to PostgreSQL's bucket
            answers = await many[1].enqueue([new(client="b") for _ in range(30)])
            assert [each.outcome for each in answers] == [ENQUEUED] * 20 + [LIMITED] * 10

    run(test)


async def rows_of(engine: PostgresEngine) -> int:
    async with engine._opened().lend() as connection:
        found: int = await connection.fetchval(f'SELECT count(*) FROM "{engine.address.schema}".buckets')
        return found


def test_what_is_not_spent_is_given_back(redis: Server) -> None:
    async def test() -> None:
        async with engines(redis, 1) as (engine,):
            await engine.set_queue("default", QueueSettings(enqueue_rate=0.001, enqueue_burst=5), expected=0)
            first = new(client="a")
            await engine.enqueue([first])
            for _ in range(3):  # nothing of this is new but one, and none if it is all or nothing
                await engine.enqueue([first, first])
                refused = [new(client="a") for _ in range(6)]
                assert ENQUEUED not in {each.outcome for each in await engine.enqueue(refused, atomic=True)}
            answers = await engine.enqueue([first, *(new(client="a") for _ in range(5))])
            assert [each.outcome for each in answers].count(ENQUEUED) == 4

    run(test)


def test_when_redis_goes_away_at_most_one_burst_more_gets_in(redis: Server) -> None:
    async def test() -> None:
        async with engines(redis) as many:
            await many[0].set_queue("default", QueueSettings(enqueue_rate=0.001, enqueue_burst=5), expected=0)
            accepted = 0
            for step in range(30):
                if step == 10:
                    redis.kill()
                if step == 20:
                    redis.revive()
                    for engine in many:
                        await until(lambda engine=engine: tried(engine))
                (answer,) = await many[step % 2].enqueue([new(client="a")])
                accepted += answer.outcome is ENQUEUED
            # Redis', PostgreSQL's, and Redis' once more, because this one came back empty.
            assert accepted == 15

    run(test)


def tried(engine: PostgresEngine) -> bool:
    """Whether its rest is over."""
    return all(time.monotonic() >= each for each in beside(engine).rests_until.values())


def test_a_full_redis_still_wakes(redis: Server) -> None:
    async def test() -> None:
        async with engines(redis) as (worker, producer):
            await worker.set_queue("default", QueueSettings(enqueue_rate=1000, enqueue_burst=1000), expected=0)
            waiting = await listening(worker, work_topic("default"))
            redis.command("CONFIG", "SET", "maxmemory", "1")
            try:
                notified = Notified(producer)
                assert [each.outcome for each in await producer.enqueue([new(client="a")])] == [ENQUEUED]
                assert await waiting.wait(PATIENCE)
                assert (notified.number, outages(producer)) == (0, 1)
                assert beside(producer).is_up
            finally:
                redis.command("CONFIG", "SET", "maxmemory", "0")
            waiting.close()

    run(test)


def test_the_script_refills_as_the_core_does(redis: Server) -> None:
    limits = st.builds(
        Limit,
        max_concurrent=st.none(),
        rate=st.floats(0.001, 10_000),
        burst=st.none() | st.integers(1, 1000),
    )
    steps = st.lists(st.tuples(limits, st.integers(0, 100), st.integers(-SECOND, HOUR)), max_size=8)

    @settings(max_examples=50, deadline=None)
    @given(steps)
    def check(asked: list[tuple[Limit, int, int]]) -> None:
        async def test() -> None:
            accelerator = Beside(redis_address(redis.url))(str(next(numbers)), lambda _: None, lambda: None)
            now, kept = 1_760_000_000 * SECOND, None
            for limit, wanted, later in asked:
                now += later
                full = refill(kept, limit, now)
                taken = min(wanted, tokens(full))
                kept = spend(full, taken)
                assert await accelerator.take([Ask(("q", "c"), limit, wanted)], now) == [(taken, kept.level)]
                assert kept.level < TOKEN or taken == wanted
            await accelerator.close()

        asyncio.run(test())

    check()


# What is given.


@pytest.mark.parametrize("url", ["sqlite:///x.db", "memory://", "redis://localhost", "mysql://h/d"])
def test_only_postgresql_has_an_accelerator(url: str) -> None:
    with pytest.raises(InvalidOption, match="accelerator= is for a postgresql:// store only"):
        Dibs(url, accelerator="redis://localhost")


@pytest.mark.parametrize("wrong", ["http://secret@h", "localhost:6379", "", "postgresql://h/d"])
def test_an_accelerator_is_a_redis(wrong: str) -> None:
    with pytest.raises(InvalidOption, match="accelerator must be the URL of a Redis server") as error:
        Dibs("postgresql://h/d", accelerator=wrong)
    assert "secret" not in str(error.value)
    with pytest.raises(InvalidOption, match="accelerator must be the URL of a Redis server"):
        open_engine(f"postgresql://h/d?accelerator={wrong}")


def test_bad_input_is_told() -> None:
    with pytest.raises(InvalidOption, match="accelerator must be the URL of a Redis server"):
        Dibs("postgresql://h/d", accelerator=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="names an accelerator already"):
        Dibs("postgresql://h/d?accelerator=redis%3A%2F%2Fh", accelerator="redis://h")
    with pytest.raises(InvalidOption, match="Did you mean 'accelerator'"):
        open_engine("postgresql://h/d?acelerator=redis%3A%2F%2Fh")
    with pytest.raises(InvalidOption, match="prefix"):
        Dibs("postgresql://h/d", accelerator="redis://h?prefix=a%20b")


def test_the_parameter_is_an_option_of_the_url() -> None:
    app = Dibs("postgresql://h/d?schema=s", accelerator="rediss://:secret@h:1/2?prefix=p")
    engine = open_engine(app.url)
    assert isinstance(engine, PostgresEngine)
    assert isinstance(engine.accelerate, Beside)
    address = engine.accelerate.address
    assert (address.places, address.database, address.prefix, address.tls) == ((("h", 1),), 2, "p", True)
    assert "secret" not in shown_url(app.url)
    assert "secret" not in repr(app)
