"""`read_url`: what may be a little behind is read from a standby, everything else from the primary."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from postgres_help import NOW, claim, engines, new, run, settle
from postgres_roles import role, url_as

from dibs.core.ids import uuid7
from dibs.core.states import State
from dibs.core.task import Outcome
from dibs.engines.postgres import PostgresEngine, from_url, replica, server_findings
from dibs.engines.values import Cancel, Level, NewWorkflow, Query
from dibs.errors import InvalidOption, StoreMismatch
from servers.cluster import Cluster
from servers.postgres import new_url, server_url

PATIENCE = 30.0


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and its standby."""
    primary = Cluster.new()
    standby = primary.standby()
    yield primary, standby
    standby.remove()
    primary.remove()


@asynccontextmanager
async def open_on(pair: tuple[Cluster, Cluster], schema: str) -> AsyncIterator[tuple[PostgresEngine, Any]]:
    """An engine that reads from the standby, and a connection to that."""
    primary, standby = pair
    engine = from_url(primary.url(schema=schema, read_url=quote(standby.dsn, safe="")))
    own = await asyncpg.connect(standby.dsn)
    await engine.open()
    try:
        async with asyncio.timeout(PATIENCE):
            while not await own.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{schema}.store"):
                await asyncio.sleep(0.02)
        yield engine, own
    finally:
        await engine.close()
        await own.close()


async def caught_up(engine: PostgresEngine, tasks: int) -> None:
    """The standby knows this many tasks."""
    async with asyncio.timeout(PATIENCE):
        while len((await engine.search(Query(limit=100))).tasks) < tasks:
            await asyncio.sleep(0.02)


async def told(engine: PostgresEngine) -> tuple[Level, str]:
    ((level, detail),) = [(each.level, each.detail) for each in await engine.check() if each.title == "read_url"]
    return level, detail


def test_search_is_from_the_standby_and_all_else_is_not(
    pair: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with open_on(pair, "behind") as (engine, standby):
            first = new()
            await engine.enqueue([first])
            await caught_up(engine, 1)
            assert (await told(engine))[0] is Level.OK
            await standby.execute("SELECT pg_wal_replay_pause()")
            try:
                await behind(engine, first.id)
                monkeypatch.setattr(replica, "LATE_SECONDS", 0.0)
                level, detail = await told(engine)
                assert level is Level.WARNING
                assert "bytes of the log behind" in detail
            finally:
                await standby.execute("SELECT pg_wal_replay_resume()")
            await caught_up(engine, 3)

    async def behind(engine: PostgresEngine, first: str) -> None:
        """With a standby that has stood still since its first task."""
        second = new()
        await engine.enqueue([second])
        assert [task.id for task in (await engine.search(Query())).tasks] == [first]
        assert [task.id for task in (await engine.peek("default", 10)).tasks] == [first]
        # What is waited for, decided by or written is not behind.
        assert [record is not None for record in await engine.get([first, second.id])] == [True, True]
        assert (await engine.peek("default", 0, until=second.id)).position is not None
        assert ((await engine.counts()).tasks)["default"][State.PENDING] == 2
        claimed = await claim(engine, 5)
        assert {task.id for task in claimed} == {first, second.id}
        await settle(engine, claimed[:1])
        await settle(engine, claimed[1:], Outcome.PERMANENT)
        assert ((await engine.counts()).tasks)["default"][State.COMPLETED] == 1
        assert len(await engine.history(claimed[1].id)) == 1
        assert [queue.name for queue in await engine.queues()] == ["default"]
        flow = uuid7(NOW // 1000, 0, 1)
        member = new(workflow=flow)
        await engine.enqueue([member], workflow=NewWorkflow(flow))
        await engine.act([Cancel(member.id)], actor="ada")
        (cancelled,) = (await engine.search(Query(workflow=flow))).tasks
        assert cancelled.state is State.CANCELLED, "how a workflow has ended is not behind"
        assert await engine.audit() == await engine.workflows() == []

    run(test)


def test_a_standby_with_a_long_query_keeps_dead_rows(
    pair: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells the primary which rows it needs."""
    monkeypatch.setattr(server_findings, "OLD_SLOT", 0)

    async def test() -> None:
        async with open_on(pair, "feedback") as (engine, standby):
            await standby.execute("ALTER SYSTEM SET hot_standby_feedback = on")
            await standby.execute("SELECT pg_reload_conf()")
            await standby.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1")
            async with asyncio.timeout(PATIENCE):
                while not (found := [each for each in await engine.check() if each.title.startswith("standby ")]):
                    await engine.enqueue([new()])
                while found[0].level is not Level.WARNING:
                    await engine.enqueue([new()])
                    found = [each for each in await engine.check() if each.title.startswith("standby ")]
            assert "dead rows for" in found[0].detail
            await standby.execute("ROLLBACK")
            await standby.execute("ALTER SYSTEM RESET hot_standby_feedback")
            await standby.execute("SELECT pg_reload_conf()")

    run(test)


def test_a_standby_that_is_gone_is_done_without(
    pair: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dibs.engines.postgres")

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "read_url" in record.getMessage()]

    async def test() -> None:
        async with open_on(pair, "gone") as (engine, _):
            await engine.enqueue([new()])
            await caught_up(engine, 1)
            pair[1].stop("immediate")
            try:
                for _ in range(5):
                    await engine.enqueue([new()])
                    assert len((await engine.search(Query())).tasks) > 1
                assert len(lines()) == 1
                assert "read from the primary" in lines()[0]
                level, detail = await told(engine)
                assert level is Level.WARNING
                assert "does not answer" in detail
            finally:
                await asyncio.to_thread(pair[1].start)
            assert len((await engine.search(Query())).tasks) == 6, "it is left alone for a while"
            assert len(lines()) == 1
            monkeypatch.setattr(replica.Readiness, "is_worth_a_try", lambda _: True)
            await caught_up(engine, 6)
            async with asyncio.timeout(PATIENCE):
                while len(lines()) < 2:
                    await engine.search(Query())
            assert "answers again" in lines()[1]

    run(test)


def test_a_read_url_that_leads_elsewhere_is_refused() -> None:
    async def test() -> None:
        async with engines() as (other,):
            await other.enqueue([new()])
            url = new_url()
            engine = from_url(url)
            await engine.open()
            await engine.close()
            wrong = await elsewhere(engine.address.schema)
            try:
                engine = from_url(f"{url}&read_url={quote(wrong, safe='')}")
                await engine.open()
                with pytest.raises(StoreMismatch, match="read_url leads to another store"):
                    await engine.search(Query())
                assert (await told(engine))[0] is Level.ERROR
                await engine.close()
            finally:
                await drop(wrong)

    async def elsewhere(schema: str) -> str:
        """Another database that has a store in a schema of the same name."""
        own = await asyncpg.connect(server_url())
        await own.execute(f"CREATE DATABASE other_{schema}")
        await own.close()
        wrong = server_url().replace("/postgres?", f"/other_{schema}?")
        engine = from_url(f"{wrong}&schema={schema}")
        await engine.open()
        await engine.close()
        return wrong

    async def drop(wrong: str) -> None:
        name = wrong.partition("?")[0].rpartition("/")[2]
        own = await asyncpg.connect(server_url())
        await own.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await own.close()

    run(test)


def test_nothing_is_ever_written_there() -> None:
    """The reader's role may only look, and each of its transactions is read-only."""

    async def test() -> None:
        url = new_url()
        maker = from_url(url)
        await maker.open()
        await maker.close()
        schema = maker.address.schema
        grants = (
            f"GRANT USAGE ON SCHEMA {schema} TO ROLE",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO ROLE",
            "ALTER USER ROLE SET default_transaction_read_only = on",
        )
        async with role(*grants) as name:
            engine = from_url(f"{url}&read_url={quote(url_as(server_url(), name), safe='')}")
            await engine.open()
            tasks = [new(key=f"k{n}", tenant="t") for n in range(5)]
            await engine.enqueue(tasks)
            claimed = await claim(engine, 3)
            await settle(engine, claimed)
            await engine.act([Cancel(tasks[3].id)], actor="ada")
            assert len((await engine.search(Query())).tasks) == 5
            assert len((await engine.peek("default", 10)).tasks) == 1
            assert [entry.actor for entry in await engine.audit()] == ["ada"]
            assert (
                await engine.stats("default", 0, 1)
                == (await engine.standing("default", tenants=100)).tenants
                == await engine.workflows()
                == []
            )
            assert (await told(engine))[1].endswith("which is no standby")
            own = await asyncpg.connect(server_url())
            assert await own.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = $1", name) > 0
            await own.close()
            await engine.close()

    run(test)


def test_a_reader_that_is_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        nowhere = quote("postgresql://ada:secret@127.0.0.1:1/none", safe="")
        async with engines(read_url=nowhere) as (engine,):
            await engine.enqueue([new()])
            assert len((await engine.search(Query())).tasks) == 1
            assert len((await engine.peek("default", 1)).tasks) == 1
            assert "secret" not in caplog.text
            assert caplog.text.count("read_url does not answer") == 1

    run(test)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("read_url=mysql://x", "read_url must be a postgresql"),
        ("read_url=", "read_url must be a postgresql"),
        ("read_url=postgresql://h/d%3Fschema%3Dx", "read_url"),
    ],
)
def test_wrong_ways_to_read(option: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        from_url(f"postgresql://h/d?{option}")


def test_any_of_several_readers_will_do() -> None:
    engine = from_url(f"postgresql://h/d?read_url={quote('postgresql://a,b/d?sslmode=disable', safe='')}")
    assert engine.address.read_dsn == "postgresql://a,b/d?sslmode=disable&target_session_attrs=any"
    one = from_url(f"postgresql://h/d?read_url={quote('postgresql://a/d', safe='')}")
    assert one.address.read_dsn == "postgresql://a/d?target_session_attrs=any"
