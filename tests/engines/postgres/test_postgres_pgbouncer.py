"""Behind PgBouncer in transaction mode: what conformance, which runs through it as well, does not ask for."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import asyncpg
import pytest
from postgres_help import claim, connection, new, run, settle, sound
from test_postgres_presence import beat, rescue_until

from dibs.client.app import Dibs
from dibs.core.states import State
from dibs.engines.postgres import PostgresEngine, from_url
from dibs.engines.postgres.pgbouncer import findings, is_pooled
from dibs.engines.topics import work_topic
from dibs.engines.values import Feature, Level
from dibs.errors import InvalidOption, StoreMismatch
from servers import pgbouncer
from servers.postgres import new_schema, server

pytestmark = pytest.mark.skipif(not pgbouncer.is_installed(), reason="PgBouncer is not installed here")

PATIENCE = 30.0


def url_of(schema: str, direct: str | None = None) -> str:
    past = "" if direct is None else f"&direct_url={quote(direct, safe='')}"
    return f"{pgbouncer.bouncer().url}&pgbouncer=yes&schema={schema}{past}"


@asynccontextmanager
async def opened(*urls: str) -> AsyncIterator[list[PostgresEngine]]:
    engines = [from_url(url) for url in urls]
    try:
        for engine in engines:
            await engine.open()
        yield engines
    finally:
        for engine in engines:
            await engine.close()


@pytest.fixture(scope="module")
def silent_bouncer() -> Iterator[pgbouncer.Bouncer]:
    """One that takes settings it does not know, and drops them."""
    names = "extra_float_digits,enable_seqscan,jit,default_transaction_isolation,lock_timeout,statement_timeout"
    extra = f"ignore_startup_parameters = {names},idle_in_transaction_session_timeout\n"
    made = pgbouncer.Bouncer(server(), extra)
    yield made
    made.stop()


def test_a_pooler_that_was_not_mentioned_is_refused(silent_bouncer: pgbouncer.Bouncer) -> None:
    async def test() -> None:
        for bouncer in (pgbouncer.bouncer(), silent_bouncer):
            engine = from_url(f"{bouncer.url}&schema={new_schema()}")
            with pytest.raises(StoreMismatch, match="pgbouncer=yes"):
                await engine.open()

    run(test)


def test_one_knows_a_pooler_when_one_meets_it() -> None:
    async def test() -> None:
        for url, pooled in ((server().url, False), (server().tcp_url, False), (pgbouncer.bouncer().url, True)):
            own = await asyncpg.connect(url, statement_cache_size=0)
            assert await is_pooled(own) is pooled
            await own.close()

    run(test)


def test_without_a_way_past_it_nothing_is_heard_and_nobody_missed() -> None:
    async def test() -> None:
        schema = new_schema()
        async with opened(url_of(schema), url_of(schema)) as (producer, worker):
            assert Feature.PRESENCE not in worker.features
            (finding,) = findings(worker.address)
            assert finding.level is Level.WARNING
            await producer.enqueue([new()])
            subscription = worker.subscribe([work_topic("default")])
            for _ in range(3):
                assert await subscription.wait(PATIENCE), "it rings by itself"
            assert not await subscription.wait(0.0)
            subscription.close()
            await worker.beat(beat("w"))
            async with connection() as own:
                listening = await own.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name = 'dibs'"
                )
                assert listening == 0
                assert await own.fetchval(f'SELECT presence FROM "{schema}".workers') is None

    run(test)


def test_with_a_way_past_it_rings_are_heard_and_killed_workers_missed() -> None:
    async def test() -> None:
        schema = new_schema()
        with_direct = url_of(schema, server().url)
        async with opened(url_of(schema), with_direct) as (producer, worker):
            assert Feature.PRESENCE in worker.features
            assert [finding.level for finding in findings(worker.address)] == [Level.OK]
            subscription = worker.subscribe([work_topic("default")])
            assert await subscription.wait(PATIENCE), "it rings when it begins to listen"
            for _ in range(3):
                waiting = asyncio.create_task(subscription.wait(PATIENCE))
                await producer.enqueue([new()])
                assert await waiting
            subscription.close()
            await worker.beat(beat("w"))
            held = await claim(worker, 2, "w")
            store = worker._store
            assert store is not None
            await store.presence.close()
            # Who is behind the pooler only looks for others all the same.
            (found,) = await rescue_until(producer, lambda rescued: bool(rescued.workers))
            assert (sorted(found.ids), found.workers) == (sorted(task.id for task in held), ["w"])
            await sound(producer)

    run(test)


def test_a_way_past_it_leads_to_the_same_store() -> None:
    async def test() -> None:
        async with connection() as own:
            await own.execute(f"CREATE DATABASE elsewhere_{os.getpid()}")
        elsewhere = server().url.replace("/postgres?", f"/elsewhere_{os.getpid()}?")
        with pytest.raises(StoreMismatch, match="another store"):
            await from_url(url_of(new_schema(), elsewhere)).open()
        with pytest.raises(StoreMismatch, match="pooler as well"):
            await from_url(url_of(new_schema(), pgbouncer.bouncer().url)).open()

    run(test)


def test_a_way_past_it_that_is_closed_may_open_later(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        closed = "postgresql://postgres@127.0.0.1:1/postgres"
        async with opened(url_of(new_schema(), closed)) as (engine,):
            assert "the way past the pooler is closed" in caplog.text
            await engine.enqueue([new()])
            assert await engine.beat(beat("w")) == "active"
            assert len(await claim(engine, 5)) == 1

    run(test)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("pgbouncer=maybe", "yes or no"),
        ("direct_url=postgresql%3A%2F%2Fhost%2Fdb", "pgbouncer=yes as well"),
        ("pgbouncer=yes&direct_url=host", "postgresql:// URL"),
        ("pgbouncer=yes&direct_url=mysql%3A%2F%2Fhost%2Fdb", "postgresql:// URL"),
        ("pgbouncer=yes&direct_url=postgresql%3A%2F%2Fhost%2Fdb%3Fschema%3Dx", "schema"),
        ("pgbouncer=yes&direct_url=postgresql%3A%2F%2F%5Bhost%2Fdb", "can't be read"),
        ("pgbouncer=yes&direct_ulr=x", "direct_url"),
    ],
)
def test_options_are_checked_at_the_door(options: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        from_url(f"postgresql://host/db?{options}")


def test_many_callers_share_few_sessions_and_leave_nothing_in_them() -> None:
    async def test() -> None:
        schema = new_schema()
        async with opened(*[url_of(schema)] * 4) as workers:
            await asyncio.gather(*(engine.enqueue([new(key=f"{i}") for i in range(5)]) for engine in workers))

            async def work(engine: PostgresEngine, worker: str) -> int:
                done = 0
                while found := await claim(engine, 2, worker):
                    await engine.beat(beat(worker))
                    await settle(engine, found)
                    done += len(found)
                return done

            await asyncio.gather(*(workers[0].enqueue([new() for _ in range(3)]) for _ in range(40)))
            done = await asyncio.gather(*(work(engine, f"w{i}") for i, engine in enumerate(workers * 4)))
            assert sum(done) == 125
            await asyncio.gather(*(engine.rescue() for engine in workers * 2))
            await sound(workers[0])
        async with connection() as own:
            locks = "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)"
            assert await own.fetchval(f"{locks} WHERE a.application_name = 'dibs' AND l.locktype = 'advisory'") == 0
        ways = [await asyncpg.connect(pgbouncer.bouncer().url, statement_cache_size=0) for _ in range(8)]
        for way in ways:
            await way.execute("BEGIN")  # each has a session of the pool to itself now
        for way in ways:
            assert await way.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
            assert await way.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0
            assert await way.fetchval("SHOW enable_seqscan") == "on"
            await way.execute("ROLLBACK")
            await way.close()

    run(test)


def test_defaults_that_can_not_be_set_right_are_refused() -> None:
    async def test() -> None:
        async with connection() as own:
            await own.execute(f"CREATE DATABASE serial_{os.getpid()}")
            await own.execute(f"ALTER DATABASE serial_{os.getpid()} SET default_transaction_isolation = serializable")
        url = url_of(new_schema()).replace("/postgres?", f"/serial_{os.getpid()}?")
        with pytest.raises(StoreMismatch, match="read committed"):
            await from_url(url).open()

    run(test)


@pytest.mark.parametrize("past", [False, True])
def test_a_worker_from_end_to_end(past: bool) -> None:
    app = Dibs(url_of(new_schema(), server().url if past else None))

    @app.task(retries=2, retry_base=0)
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    def triple(number: int) -> int:
        return 3 * number

    with app.worker(concurrency=4):
        began = time.monotonic()
        handles = [double.enqueue(number) for number in range(20)] + [triple.enqueue(7)]
        assert [handle.result(timeout=PATIENCE) for handle in handles] == [2 * n for n in range(20)] + [21]
        assert time.monotonic() - began < PATIENCE
        assert app.queues.list()[0].counts[State.COMPLETED] == 21
    app.close()
