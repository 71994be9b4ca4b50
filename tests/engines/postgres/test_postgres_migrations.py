"""Layouts: each step from the one before, the sum of all, several versions of Dibs on one store, and little rights."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from postgres_help import NOW, claim, connection, engines, new, run, settle, sound
from postgres_roles import RIGHTS, role, url_as
from postgres_schema import FILE, describe, layout_only

from dibs.core.states import State
from dibs.core.times import DAY
from dibs.engines.postgres import PostgresEngine, from_url, layout, statements
from dibs.engines.postgres.layout import prepare
from dibs.engines.values import Beat, Level, Query
from dibs.errors import StoreBusy, StoreError, StoreMismatch
from servers.postgres import new_url, server_url

HERE = Path(__file__).parent
every_script = layout.migration_scripts


def one_more(schema: str) -> dict[int, tuple[str, str]]:
    """The steps that the next version of Dibs knows."""
    script = f"ALTER TABLE {statements.quoted(schema)}.tasks ADD COLUMN extra integer;"
    return {**every_script(schema), 99: ("one more", script)}


def schema_of(url: str) -> str:
    return from_url(url).address.schema


async def make(url: str) -> None:
    engine = from_url(url)
    await engine.open()
    await engine.close()


def test_the_layout_is_the_sum_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        plain, at_once, by_steps = new_url(), new_url(), new_url()
        await make(plain)
        await make(by_steps)
        monkeypatch.setattr(layout, "migration_scripts", one_more)
        await make(by_steps)
        await make(at_once)
        async with connection() as own:
            assert await describe(own, schema_of(by_steps)) == await describe(own, schema_of(at_once))
            stored = await own.fetchrow(f"SELECT layout, oldest_reader FROM {schema_of(by_steps)}.store")
            assert tuple(stored) == (99, layout.OLDEST_READER)
            whole = await describe(own, schema_of(plain))
            assert layout_only(whole) == FILE.read_text().splitlines(), (
                "the layout is not the one that is written down. If that is meant: a new step in migrations/, and "
                "python tests/engines/postgres/postgres_schema.py"
            )

    run(test)


def test_every_function_is_of_a_version() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            found = await own.fetch(
                "SELECT proname FROM pg_proc WHERE pronamespace = $1::regnamespace", engine.address.schema
            )
            names = {row[0] for row in found} - {"to_time", "to_json"}
            assert names == set(statements.function_names())
            assert all(name.endswith(statements.fingerprint()) for name in names)

    run(test)


def test_a_change_of_a_function_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(statements.function_sources())
    before = statements.fingerprint.__wrapped__()
    known["promote"] = known["promote"].replace("LIMIT most", "LIMIT most + 0")
    monkeypatch.setattr(statements, "function_sources", lambda: known)
    assert statements.fingerprint.__wrapped__() != before


def test_an_old_worker_survives_a_migration() -> None:
    """It goes on with its own layout and functions while a newer process migrates and works beside it."""

    async def keep_working(old: PostgresEngine, enough: asyncio.Event) -> int:
        done = 0
        while not enough.is_set():
            await old.enqueue([new() for _ in range(3)])
            claimed = await claim(old, 5)
            await settle(old, claimed)
            done += len(claimed)
        return done

    async def test() -> None:
        url = new_url()
        old = from_url(url)
        await old.open()
        assert await old.migrations() == []
        enough = asyncio.Event()
        working = asyncio.create_task(keep_working(old, enough))
        newer = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "postgres_newer.py"), url, "25", stdout=-1, env=environment()
        )
        out, _ = await asyncio.wait_for(newer.communicate(), 60)
        enough.set()
        done = await working
        assert newer.returncode == 0
        assert done > 0
        claimed = await claim(old, 1000)
        await settle(old, claimed)
        counts = (await old.counts()).tasks
        assert counts["default"][State.COMPLETED] == done + len(claimed)
        assert counts["newer"][State.COMPLETED] == 25
        await sound(old)
        await old.close()
        async with connection() as own:
            assert await own.fetchval(f"SELECT layout FROM {old.address.schema}.store") == 99
            versions = await own.fetch(
                "SELECT DISTINCT right(proname, 8) FROM pg_proc WHERE pronamespace = $1::regnamespace "
                "AND proname LIKE 'claim%'",
                old.address.schema,
            )
            assert {row[0] for row in versions} == {statements.fingerprint(), out.decode().strip()}
        await old.open()  # an old process may also start again
        assert len(await old.enqueue([new()])) == 1
        await old.close()

    run(test)


LEFT_BEHIND = """
CREATE FUNCTION {schema}.claim_00000000() RETURNS int RETURN 1;
CREATE FUNCTION {schema}.claim_11111111() RETURNS int RETURN 1;
CREATE FUNCTION {schema}.claim_22222222() RETURNS int RETURN 1;
CREATE FUNCTION {schema}.mine() RETURNS int RETURN 1;
INSERT INTO {schema}.code_versions VALUES ('00000000', now() - interval '31 days');
INSERT INTO {schema}.code_versions VALUES ('11111111', now() - interval '29 days');
UPDATE {schema}.code_versions SET used_at = now() - interval '31 days' WHERE version = '{version}';
DROP FUNCTION {schema}.lock_queues_{version}
"""


def test_functions_that_nobody_has_used_for_long_are_dropped() -> None:
    """When a version makes its own. Those that may be in use stay, and those that nobody knows of."""

    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await own.execute(LEFT_BEHIND.format(schema=schema, version=statements.fingerprint()))
            await prepare(own, engine.address)
            found = await own.fetch("SELECT proname FROM pg_proc WHERE pronamespace = $1::regnamespace", schema)
            names = {row[0] for row in found} - {"to_time", "to_json"} - set(statements.function_names())
            assert names == {"claim_11111111", "claim_22222222", "mine"}
            await engine.enqueue([new()])
            await settle(engine, await claim(engine, 1))

    run(test)


def test_opening_and_signs_of_life_say_that_a_version_is_used() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            table = f"{engine.address.schema}.code_versions"

            async def age() -> bool:
                return bool(await own.fetchval(f"SELECT now() - used_at > interval '1 day' FROM {table}"))

            for use in (lambda: prepare(own, engine.address), lambda: engine.beat(beat())):
                await own.execute(f"UPDATE {table} SET used_at = now() - interval '20 days'")
                assert await age()
                await use()
                assert not await age()

    def beat() -> Beat:
        return Beat(id="w", host="here", pid=1, version="1", queues=("default",), names=None)

    run(test)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"}


def test_a_migration_that_waits_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long read is under way; the step needs the whole table; work goes on all the time."""

    async def test() -> None:
        async with engines() as (engine,), connection() as reader, connection() as own:
            schema = engine.address.schema
            await reader.execute(f"BEGIN; SELECT count(*) FROM {schema}.tasks")
            monkeypatch.setattr(layout, "migration_scripts", one_more)
            monkeypatch.setattr(layout, "LOCK_TIMEOUT", "SET LOCAL lock_timeout = '100ms'")
            migrating = asyncio.create_task(make_again(engine))
            await waits_for_a_lock(own, schema)
            for _ in range(20):
                await engine.enqueue([new()])
            assert not migrating.done()
            await reader.execute("COMMIT")
            await asyncio.wait_for(migrating, 30)
            assert await own.fetchval(f"SELECT layout FROM {schema}.store") == 99
            await settle(engine, await claim(engine, 20))
            await sound(engine)

    async def make_again(engine: PostgresEngine) -> None:
        again = PostgresEngine(engine.address)
        await again.open()
        await again.close()

    run(test)


async def waits_for_a_lock(own: Any, schema: str) -> None:
    async with asyncio.timeout(30):
        while not await own.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1",
            f'%"{schema}".tasks ADD COLUMN%',
        ):
            await asyncio.sleep(0.01)


def test_a_migration_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        url = new_url(timeout="2")
        await make(url)
        monkeypatch.setattr(layout, "migration_scripts", one_more)
        monkeypatch.setattr(layout, "LOCK_TIMEOUT", "SET LOCAL lock_timeout = '100ms'")
        async with connection() as other:
            await other.execute(f"BEGIN; LOCK TABLE {schema_of(url)}.tasks IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreBusy, match=r"could not be brought up to date.*Nothing was changed"):
                await make(url)
            await other.execute("ROLLBACK")
        await make(url)

    run(test)


def test_a_step_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than other statements may."""

    def a_slow_one(schema: str) -> dict[int, tuple[str, str]]:
        return {**every_script(schema), 99: ("one more", "SELECT pg_sleep(2.5)")}

    async def test() -> None:
        url = new_url(timeout="2")
        monkeypatch.setattr(layout, "migration_scripts", a_slow_one)
        await make(url)
        assert await from_url(url).migrations() == []

    run(test)


def test_the_script_does_what_opening_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        opened, scripted = new_url(), new_url()
        async with connection() as own:
            await apply(own, from_url(scripted))
            assert await from_url(scripted).migrations() == []
            monkeypatch.setattr(layout, "migration_scripts", one_more)
            await make(opened)
            script = await apply(own, from_url(scripted))
            assert await describe(own, schema_of(scripted)) == await describe(own, schema_of(opened))
            with pytest.raises(asyncpg.RaiseError, match="another layout"):
                await own.execute(script)
            await own.execute("ROLLBACK")
            assert await from_url(scripted).migrations(sql=True) == []

    async def apply(own: Any, engine: PostgresEngine) -> str:
        parts = await engine.migrations(sql=True)
        assert parts[0] == "\\set ON_ERROR_STOP on"
        script = "\n".join(parts[1:])
        await own.execute(script)
        return script

    run(test)


def test_steps_are_not_taken_back_by_older_code(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        url = new_url()
        await make(url)
        async with connection() as own:
            store = f"{schema_of(url)}.store"
            await own.execute(f"UPDATE {store} SET layout = 99")
            known = dict(statements.function_sources())
            monkeypatch.setattr(layout, "function_names", lambda: [f"{name}_older" for name in known])
            monkeypatch.setattr(
                layout,
                "functions",
                lambda schema: [
                    text.replace(statements.fingerprint(), "older") for text in statements.functions(schema)
                ],
            )
            await prepare(own, from_url(url).address)
            assert await own.fetchval(f"SELECT layout FROM {store}") == 99

    run(test)


@pytest.mark.parametrize("name", ['My "Q"', "it's", "naïve.dibs.queue", "a\\b", "$1", "SELECT"])
def test_odd_names_for_schemas_don_t_meet(name: str) -> None:
    async def test() -> None:
        workers = [from_url(f"{new_url()}{quote(name)}{number}") for number in (1, 2)]
        for engine in workers:
            await engine.open()
            await engine.enqueue([new(partition="p")])
        one, other = workers
        assert one.address.schema.endswith(f"{name}1")
        async with connection() as own:
            # Changing the queues of one store blocks nothing in the other.
            key = f"{statements.quoted(one.address.schema)}.queues"
            await own.execute("BEGIN")
            await own.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", key)
            await asyncio.wait_for(settle(other, await claim(other, 1)), 20)
            held = asyncio.create_task(claim(one, 1))
            await own.fetchval("SELECT 1")
            assert not held.done()
            await own.execute("ROLLBACK")
            await settle(one, await asyncio.wait_for(held, 20))
        for engine in workers:
            term = await engine.lead("w")
            assert term is not None
            assert (await engine.chore("make_days", term)).done > 0
            await sound(engine)
            await engine.close()

    run(test)


def test_the_guide_says_which_rights_are_needed() -> None:
    guide = (HERE.parents[2] / "docs" / "guides" / "postgresql.md").read_text()
    for right in RIGHTS:
        assert right.format(schema="dibs").replace("ROLE", "shop") in guide


def test_a_role_without_the_right_to_make_anything() -> None:
    async def test() -> None:
        url = new_url()
        await make(url)
        schema = schema_of(url)
        async with role(*(right.format(schema=schema) for right in RIGHTS)) as name:
            engine = from_url(url_as(url, name))
            await engine.open()
            await engine.enqueue([new(key="k"), new(tenant="t", partition="p")], now=NOW)
            await settle(engine, await claim(engine, 2, now=NOW), now=NOW)
            for day in range(10):
                now = NOW + day * DAY
                term = await engine.lead("w", now=now)
                assert term is not None
                for chore in (await engine.about()).chores:
                    assert not (await engine.chore(chore.name, term, now=now)).refused
            assert (await engine.search(Query())).tasks == []
            async with connection() as own:
                left = await own.fetch("SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace", schema)
                days = {row[0] for row in left if row[0].startswith(f"finished_{NOW // DAY}")}
                assert days == set(), "days are made and dropped without owning them"
            assert [each for each in await engine.check(full=True) if each.level is Level.ERROR] == []
            await engine.close()

    run(test)


def test_a_role_that_may_only_look() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            schema = engine.address.schema
            await engine.enqueue([new()], now=NOW)
            grants = (f"GRANT USAGE ON SCHEMA {schema} TO ROLE", f"GRANT SELECT ON {schema}.all_tasks TO ROLE")
            async with role(*grants) as name:
                own = await asyncpg.connect(url_as(server_url(), name))
                try:
                    assert len(await own.fetch(f"SELECT * FROM {schema}.all_tasks")) == 1
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await own.fetch(f"SELECT * FROM {schema}.tasks")
                    for verb in ("make_day", "drop_day"):
                        with pytest.raises(asyncpg.InsufficientPrivilegeError):
                            await own.fetch(statements.statement(verb, schema), NOW // DAY)
                finally:
                    await own.close()

    run(test)


def test_rights_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        url = new_url()
        async with role() as name:
            with pytest.raises(StoreMismatch, match=r"dibs migrate.*GRANT CREATE ON DATABASE"):
                await make(url_as(url, name))
        await make(url)
        monkeypatch.setattr(layout, "migration_scripts", one_more)
        async with role(*(right.format(schema=schema_of(url)) for right in RIGHTS)) as name:
            with pytest.raises(StoreMismatch, match=r"not up to date.*dibs migrate"):
                await make(url_as(url, name))
        async with role() as name:
            with pytest.raises(StoreError, match=r"permission denied"):
                await make(url_as(url, name))

    run(test)


def test_an_owner_of_an_empty_schema_may_move_in() -> None:
    """Without the right to make schemas."""

    async def test() -> None:
        url = new_url()
        async with role(f"CREATE SCHEMA {schema_of(url)} AUTHORIZATION ROLE") as name:
            await make(url_as(url, name))

    run(test)
