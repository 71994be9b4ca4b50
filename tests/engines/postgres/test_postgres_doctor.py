"""What `dibs doctor` says of a PostgreSQL server: each condition is brought about, and named with its remedy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from postgres_help import claim, connection, engines, new, run, settle
from postgres_roles import RIGHTS, role, url_as

from dibs.core.settings import QueueSettings, change_settings
from dibs.engines.postgres import PostgresEngine, from_url, server_findings, statements
from dibs.engines.values import Finding, Level
from servers.cluster import Cluster
from servers.postgres import new_url

PATIENCE = 30.0


async def told(engine: PostgresEngine, title: str) -> list[tuple[Level, str]]:
    return [(each.level, each.detail) for each in await engine.check() if each.title == title]


async def eventually(engine: PostgresEngine, title: str, is_there: Callable[[list[tuple[Level, str]]], bool]) -> Any:
    """Until the doctor says so: statistics arrive a little late."""
    async with asyncio.timeout(PATIENCE):
        while not is_there(found := await told(engine, title)):
            await asyncio.sleep(0.05)
        return found


def warned(found: list[tuple[Level, str]]) -> bool:
    return any(level is Level.WARNING for level, _ in found)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is long."""
    monkeypatch.setattr(server_findings, "LONG_TRANSACTION", 0.0)
    monkeypatch.setattr(server_findings, "LONG_WAIT", 0.0)


def test_a_healthy_store() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await engine.enqueue([new()])
            found: dict[str, Finding] = {each.title: each for each in await engine.check(full=True)}
            for title in ("long transactions", "indexes", "dead rows", "connections", "counts", "connection"):
                assert found[title].level is Level.OK
            assert not any(title.startswith("replication slot") for title in found)
            assert "locks" not in found
            assert "rights" not in found
            # The server of the tests gives up safety for speed, and says so.
            for title in ("fsync", "full_page_writes", "synchronous_commit", "durability"):
                assert found[title].level is Level.WARNING

    run(test)


def test_the_guide_explains_every_finding() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "postgresql.md").read_text()
    table = guide[guide.index("| finding |") : guide.index("## Long transactions")]

    async def test() -> None:
        async with engines(read_url=quote("postgresql://127.0.0.1:1/none", safe="")) as (engine,):
            for finding in await engine.check(full=True):
                assert f"`{finding.title}`" in table

    run(test)


def test_a_forgotten_transaction_is_named_with_its_pid(impatient: None) -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as other, connection() as idle:
            pid = await other.fetchval("SELECT pg_backend_pid()")
            await other.execute("SET application_name = 'report'")
            await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1")
            writer = await idle.fetchval("SELECT pg_backend_pid()")
            await idle.execute("BEGIN; CREATE TEMPORARY TABLE x (n int)")
            found = await told(engine, "long transactions")
            (mine,) = [detail for level, detail in found if level is Level.WARNING and f"pid {pid} " in detail]
            for words in ("report", "idle in transaction", "SELECT 1 FROM pg_class", f"pg_terminate_backend({pid})"):
                assert words in mine
            assert any(f"pid {writer} " in detail for _, detail in found), "its number holds others back"
            await other.execute("ROLLBACK")
            await idle.execute("ROLLBACK")
            await eventually(engine, "long transactions", lambda found: not any(f"pid {pid} " in d for _, d in found))

    run(test)


def test_queues_that_a_forgotten_transaction_slows_down_are_named(impatient: None) -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as other:
            slow = {"turns": {"fair": True}, "lanes": {"max_aging_bonus": 9}}
            for name, changes in {"plain": {}, "slots": {"per_partition": 2}, **slow}.items():
                await engine.set_queue(name, change_settings(QueueSettings(), changes), expected=0)
            await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1")
            found = await told(engine, "long transactions")
            assert found[-1][1].endswith(": lanes, slots, turns")
            await other.execute("ROLLBACK")
            await eventually(engine, "long transactions", lambda found: not warned(found))

    run(test)


def test_a_short_transaction_is_not_worth_a_word() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as other:
            await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1")
            assert not warned(await told(engine, "long transactions"))

    run(test)


def test_a_prepared_transaction_that_was_left(impatient: None) -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as other:
            if await other.fetchval("SHOW max_prepared_transactions") == "0":
                pytest.skip("this server has max_prepared_transactions = 0")
            await other.execute("BEGIN; CREATE TABLE public.left_over (n int); PREPARE TRANSACTION 'it''s left'")
            try:
                found = await told(engine, "long transactions")
                assert any("ROLLBACK PREPARED 'it''s left'" in detail for _, detail in found)
            finally:
                await other.execute("ROLLBACK PREPARED 'it''s left'")

    run(test)


def test_a_slot_that_nobody_uses() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as other:
            name = f"left_{engine.address.schema}"
            await other.execute(f"SELECT pg_create_physical_replication_slot('{name}', true)")
            try:
                ((level, detail),) = await told(engine, f"replication slot {name}")
                assert level is Level.WARNING
                assert "MiB of the log" in detail
                assert f"pg_drop_replication_slot('{name}')" in detail
            finally:
                await other.execute(f"SELECT pg_drop_replication_slot('{name}')")
            assert await told(engine, f"replication slot {name}") == []

    run(test)


def test_a_missing_index_comes_with_how_to_make_it() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await own.execute(f"DROP INDEX {schema}.pending, {schema}.finished_ids")
            await own.execute(f"ALTER TABLE {schema}.edges DROP CONSTRAINT edges_pkey")
            found = await told(engine, "indexes")
            assert [level for level, _ in found] == [Level.ERROR] * 3
            lost = [detail for _, detail in found if "primary key" in detail]
            assert lost
            assert lost[0].startswith("edges_pkey")
            for _, detail in found:
                if "make it: " in detail:
                    await own.execute(detail.partition("make it: ")[2])
            await own.execute(f"ALTER TABLE {schema}.edges ADD PRIMARY KEY (dependent, slot)")
            assert [level for level, _ in await told(engine, "indexes")] == [Level.OK]

    run(test)


def test_every_index_of_the_layout_is_expected() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            rows = await own.fetch(statements.statement("indexes", "any"), engine.address.schema)
            known = server_findings.expected_indexes(engine.address.schema)
            # Those of partitions come with their parent; a UNIQUE is a promise that the tests of the layout keep.
            rest = {row["name"] for row in rows} - set(known)
            assert all(re.match(r"finished_(other|\d+)_|tracks_queue_", name) for name in rest), rest

    run(test)


def test_an_invalid_index() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await engine.enqueue([new(), new()])
            with pytest.raises(Exception, match="could not create unique index"):
                await own.execute(f"CREATE UNIQUE INDEX CONCURRENTLY broken ON {schema}.tasks (state)")
            ((level, detail),) = await told(engine, "indexes")
            assert level is Level.WARNING
            assert f'DROP INDEX "{schema}"."broken"' in detail
            await own.execute(f'DROP INDEX "{schema}"."broken"')
            assert not warned(await told(engine, "indexes"))

    run(test)


def test_dead_rows_and_who_should_remove_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_findings, "MANY_DEAD", 100)

    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            assert not warned(await told(engine, "dead rows"))
            await own.execute(f"ALTER TABLE {schema}.tasks SET (autovacuum_enabled = false)")
            ((level, detail),) = await told(engine, "autovacuum")
            assert level is Level.WARNING
            assert "is off for tasks" in detail
            await engine.enqueue([new() for _ in range(300)])
            await settle(engine, await claim(engine, 300))
            found = await eventually(engine, "dead rows", warned)
            detail = next(detail for _, detail in found if detail.startswith("tasks has"))
            assert "never vacuumed" in detail
            assert f'VACUUM "{schema}".tasks' in detail
            await own.execute(f"VACUUM {schema}.tasks")
            await own.execute(detail_of(await told(engine, "autovacuum")))
            await eventually(engine, "dead rows", lambda found: not any("tasks has" in d for _, d in found))
            assert await told(engine, "autovacuum") == []

    def detail_of(found: list[tuple[Level, str]]) -> str:
        return found[0][1].partition(": ")[2]

    run(test)


def test_who_waits_for_whom(impatient: None) -> None:
    """For the lock on all queues, and for a row."""

    async def test() -> None:
        async with engines(2) as (engine, doctor), connection() as other:
            schema = engine.address.schema
            await engine.enqueue([new()])
            pid = await other.fetchval("SELECT pg_backend_pid()")
            key = f"{statements.quoted(schema)}.queues"
            await other.execute("BEGIN")
            await other.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", key)
            waiting = asyncio.create_task(engine.enqueue([new()]))
            found = await eventually(doctor, "locks", warned)
            assert f"(advisory) that pid {pid} has" in found[0][1]
            assert f"pg_terminate_backend({pid})" in found[0][1]
            await other.execute("ROLLBACK")
            await asyncio.wait_for(waiting, PATIENCE)
            assert await told(doctor, "locks") == []
            (task,) = await claim(engine, 1)
            await other.execute(f"BEGIN; SELECT 1 FROM {schema}.tasks WHERE id = '{task.id}' FOR UPDATE")
            settling = asyncio.create_task(settle(engine, [task]))
            found = await eventually(doctor, "locks", warned)
            assert f"that pid {pid} has" in found[0][1]
            await other.execute("ROLLBACK")
            await asyncio.wait_for(settling, PATIENCE)

    run(test)


def test_locks_of_another_installation_are_not_ours(impatient: None) -> None:
    async def test() -> None:
        async with engines() as (engine,), engines() as (neighbour,), connection() as other:
            key = f"{statements.quoted(neighbour.address.schema)}.queues"
            await other.execute("BEGIN")
            await other.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", key)
            waiting = asyncio.create_task(neighbour.enqueue([new()]))
            async with engines() as (_,), connection() as own, asyncio.timeout(PATIENCE):
                while not await own.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
            assert await told(engine, "locks") == []
            await other.execute("ROLLBACK")
            await asyncio.wait_for(waiting, PATIENCE)

    run(test)


def test_the_layout_and_whose_functions_there_are() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            ((level, detail),) = await told(engine, "layout")
            assert level is Level.OK
            assert detail.endswith(f"functions {statements.fingerprint()}")
            await own.execute(f"CREATE FUNCTION {engine.address.schema}.claim_00000000() RETURNS int RETURN 1")
            ((_, detail),) = await told(engine, "layout")
            assert "1 other version has left functions" in detail

    run(test)


def test_settings_of_a_role_and_of_a_session() -> None:
    """`synchronous_commit` may be on for the server, and off for us."""

    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            database = await own.fetchval("SELECT current_database()")
            for value, level in (("on", Level.OK), ("off", Level.WARNING)):
                await own.execute(f"ALTER DATABASE {database} SET synchronous_commit = {value}")
                try:
                    again = PostgresEngine(engine.address)
                    await again.open()
                    ((found, detail),) = await told(again, "synchronous_commit")
                    await again.close()
                finally:
                    await own.execute(f"ALTER DATABASE {database} RESET synchronous_commit")
                assert found is level
                assert ("set by the database" in detail) is (level is Level.WARNING)

    run(test)


def test_days_without_a_partition() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            title, schema = "days of finished tasks", engine.address.schema
            assert not warned(await told(engine, title)), "the first days come with the store"
            for row in await own.fetch(statements.statement("days", schema), schema):
                await own.execute(f"DROP TABLE {schema}.finished_{row['day']}")
            term = await engine.lead("w")
            assert term is not None
            assert warned(await told(engine, title))
            await engine.chore("make_days", term)
            assert not warned(await told(engine, title))

    run(test)


def test_a_safe_server_with_few_connections_that_nobody_cleans() -> None:
    cluster = Cluster.new(autovacuum="off", max_connections="14", fsync="on", full_page_writes="on")

    async def test() -> None:
        engine = from_url(cluster.url())
        await engine.open()
        for title in ("fsync", "full_page_writes", "synchronous_commit", "durability", "connections"):
            ((level, _),) = await told(engine, title)
            assert level is Level.OK, title
        ((level, detail),) = await told(engine, "autovacuum")
        assert (level, detail) == (Level.WARNING, "off: dead rows are never removed; set autovacuum = on")
        crowd = [await asyncpg.connect(cluster.dsn) for _ in range(10)]
        found = await eventually(engine, "connections", warned)
        assert "of 11 sessions are in use: raise max_connections" in found[0][1]
        for each in crowd:
            await each.close()
        await eventually(engine, "connections", lambda found: not warned(found))
        await engine.close()

    try:
        run(test)
    finally:
        cluster.remove()


def test_what_a_role_may_not_see_is_said(impatient: None) -> None:
    async def test() -> None:
        url = new_url()
        maker = from_url(url)
        await maker.open()
        await maker.close()
        async with (
            role(*(right.format(schema=maker.address.schema) for right in RIGHTS)) as name,
            connection() as other,
        ):
            await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1")
            pid = await other.fetchval("SELECT pg_backend_pid()")
            engine = from_url(url_as(url, name))
            await engine.open()
            ((level, detail),) = await told(engine, "rights")
            assert level is Level.WARNING
            assert f'GRANT pg_monitor TO "{name}"' in detail
            assert not any(f"pid {pid} " in d for _, d in await told(engine, "long transactions"))
            async with connection() as own:
                await own.execute(detail.partition(": ")[2])
            assert await told(engine, "rights") == []
            assert any(f"pid {pid} " in d for _, d in await told(engine, "long transactions"))
            await engine.close()

    run(test)
