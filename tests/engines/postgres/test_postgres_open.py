"""Opening a PostgreSQL store: what is made, what is refused, and what people are told."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from postgres_help import NOW, claim, connection, engines, new, run, settle, sound

from dibs.core.states import State
from dibs.core.times import DAY
from dibs.engines.postgres import PostgresEngine, from_url
from dibs.engines.postgres.layout import Condition, missing
from dibs.engines.values import Term
from dibs.errors import Closed, InvalidOption, StoreError, StoreMismatch, StoreUnavailable
from servers.cluster import Cluster
from servers.postgres import new_url, server_url


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


def test_many_may_open_a_new_store_at_once() -> None:
    async def test() -> None:
        url = new_url()
        workers = [from_url(url) for _ in range(6)]
        await asyncio.gather(*(engine.open() for engine in workers))
        await asyncio.gather(*(engine.enqueue([new()]) for engine in workers))
        assert (await workers[0].counts()).tasks["default"][State.PENDING] == 6
        await asyncio.gather(*(engine.close() for engine in workers))

    run(test)


def test_two_installations_in_one_database() -> None:
    async def test() -> None:
        async with engines() as (one,), engines() as (other,):
            await one.enqueue([new()])
            assert (await other.counts()).tasks == {}
            assert await claim(other, 1) == []
            assert len(await claim(one, 1)) == 1

    run(test)


def test_an_odd_name_for_a_schema() -> None:
    async def test() -> None:
        engine = from_url(f"{new_url()}%20%22odd%22%20dibs.x")
        await engine.open()
        await engine.enqueue([new()])
        await settle(engine, await claim(engine, 1))
        await sound(engine)
        await engine.close()

    run(test)


def test_migrations_are_told_before_they_are_applied() -> None:
    async def test() -> None:
        engine = from_url(new_url())
        steps = await engine.migrations()
        assert steps[0] == "0001 initial"
        assert await engine.migrations() == steps, "looking changes nothing"
        await engine.open()
        assert await engine.migrations() == []
        await engine.close()
        assert all('"some schema"' in script for _, script in missing("some schema", Condition(False, 0, False)))

    run(test)


def test_a_schema_of_somebody_else_is_left_alone() -> None:
    async def test() -> None:
        url = new_url()
        async with connection() as own:
            await own.execute(f"CREATE SCHEMA {schema_of(url)}; CREATE TABLE {schema_of(url)}.invoices (n int)")
            with pytest.raises(StoreMismatch, match="another application"):
                await from_url(url).open()
            tables = await own.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = $1", schema_of(url))
            assert tables == 1

    run(test)


def test_a_store_of_a_newer_dibs_is_refused() -> None:
    async def test() -> None:
        url = new_url()
        engine = from_url(url)
        await engine.open()
        await engine.close()
        async with connection() as own:
            await own.execute(f"UPDATE {schema_of(url)}.store SET layout = 99, oldest_reader = 99")
        with pytest.raises(StoreMismatch, match="newer Dibs"):
            await engine.open()
        async with connection() as own:
            await own.execute(f"UPDATE {schema_of(url)}.store SET layout = 99, oldest_reader = 1")
        await engine.open()  # newer, but still to be read by us
        await engine.close()

    run(test)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ada:secret@127.0.0.1:1/none?connect_timeout=2", "can't be reached"),
        ("postgresql://ada:secret@no-such-host.invalid/none?connect_timeout=2", "can't be reached|in time"),
    ],
)
def test_a_server_that_is_not_there(url: str, told: str) -> None:
    async def test() -> None:
        with pytest.raises(StoreUnavailable, match=told) as caught:
            await from_url(url).open()
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)

    run(test)


@pytest.fixture(scope="module")
def strict() -> Iterator[Cluster]:
    """A server that asks the user ada for her password, and on which she has no rights."""
    cluster = Cluster.new()
    rules = cluster.data / "pg_hba.conf"
    rules.write_text(f"host all ada 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    cluster.sql("CREATE ROLE ada LOGIN PASSWORD 'right'", "SELECT pg_reload_conf()")
    yield cluster
    cluster.remove()


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """A port at which somebody listens and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def as_ada(url: str, password: str = "right") -> str:
    return url.replace("postgres@", f"ada:{password}@")


def test_a_wrong_password(strict: Cluster) -> None:
    async def test() -> None:
        with pytest.raises(StoreUnavailable, match=r"does not let us in.*Check the user and the password") as caught:
            await from_url(as_ada(strict.url(), "wr0ng")).open()
        assert "wr0ng" not in str(caught.value)

    run(test)


def test_a_server_that_never_answers(silent: int) -> None:
    async def test() -> None:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await from_url(f"postgresql://ada@127.0.0.1:{silent}/x?connect_timeout=0.5").open()
        assert time.monotonic() - began < 5

    run(test)


def test_several_servers_none_of_which_is_there(silent: int) -> None:
    async def test() -> None:
        url = f"postgresql://ada@127.0.0.1:1,127.0.0.1:{silent}/x?connect_timeout=0.5"
        with pytest.raises(StoreUnavailable, match=r"127.0.0.1:1,127.0.0.1:\d+/x.*(can't be reached|in time)"):
            await from_url(url).open()

    run(test)


def test_of_several_servers_what_one_said_is_told(strict: Cluster) -> None:
    async def test() -> None:
        for ports in ((1, strict.port), (strict.port, 1)):
            hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
            with pytest.raises(StoreUnavailable, match="password authentication failed"):
                await from_url(f"postgresql://ada:wrong@{hosts}/postgres?sslmode=disable").open()

    run(test)


def test_a_role_without_the_right_to_make_a_schema(strict: Cluster) -> None:
    async def test() -> None:
        with pytest.raises(StoreError, match="GRANT CREATE ON DATABASE"):
            await from_url(as_ada(strict.url())).open()

    run(test)


def test_a_role_without_rights_on_the_tables(strict: Cluster) -> None:
    async def test() -> None:
        url = strict.url()
        owner = from_url(url)
        await owner.open()
        await owner.close()
        guest = from_url(as_ada(url))
        with pytest.raises(StoreError, match=r"permission denied.*GRANT USAGE"):
            await guest.open()
        own = await asyncpg.connect(strict.dsn)
        await own.execute(f"GRANT USAGE ON SCHEMA {guest.address.schema} TO ada")
        with pytest.raises(StoreError, match=r"permission denied.*GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"):
            await guest.open()
        await own.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {guest.address.schema} TO ada")
        await own.close()
        await guest.open()
        await guest.enqueue([new()])
        await guest.close()

    run(test)


def test_a_server_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    old = asyncpg.ServerVersion(major=12, minor=9, micro=0, releaselevel="final", serial=0)
    monkeypatch.setattr(asyncpg.Connection, "get_server_version", lambda self: old)

    async def test() -> None:
        with pytest.raises(StoreMismatch, match=r"runs PostgreSQL 12\.9. Dibs needs 14 or newer"):
            await from_url(new_url()).open()

    run(test)


def dibs(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command, as people start it."""
    return subprocess.run(
        [sys.executable, "-m", "dibs", *words], capture_output=True, text=True, check=False, timeout=60, cwd=folder
    )


@pytest.mark.parametrize("where", ["refused", "silent", "unknown host", "wrong password", "no database"])
def test_commands_say_in_one_line_why_there_is_no_store(
    where: str, tmp_path: Path, strict: Cluster, silent: int
) -> None:
    url, told = {
        "refused": ("postgresql://ada@127.0.0.1:1/x?", "can't be reached"),
        "silent": (f"postgresql://ada@127.0.0.1:{silent}/x?", "did not answer in time"),
        "unknown host": ("postgresql://ada@no-such-host.invalid/x?", "can't be reached"),
        "wrong password": (f"{as_ada(strict.url(), 'wr0ng')}&", "does not let us in"),
        "no database": (f"{strict.url().replace('/postgres?', '/nowhere?')}&", "no such database"),
    }[where]
    url += "connect_timeout=2"
    (tmp_path / "shop.py").write_text(f"from dibs import Dibs\n\napp = Dibs({url!r})\n")
    words = ("worker", "shop:app") if where in ("refused", "wrong password") else ("doctor", "--url", url)
    done = dibs(*words, folder=tmp_path)
    assert done.returncode == 1
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "wr0ng" not in done.stderr
    assert done.stdout == ""


def test_a_database_that_is_not_there() -> None:
    async def test() -> None:
        with pytest.raises(StoreUnavailable, match="no such database"):
            await from_url(server_url().replace("/postgres?", "/nowhere?")).open()

    run(test)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://x", "does not name a PostgreSQL"),
        ("postgresql://h/d?scheme=x", "Did you mean 'schema'"),
        ("postgresql://h/d?schema=pg_x", "schema must be"),
        ("postgresql://h/d?pool_size=0", "pool_size must be"),
        ("postgresql://h/d?timeout=soon", "timeout must be"),
        ("postgresql://h:abc/d", "port must be a number"),
        ("postgresql://h:1,g:99999/d", "port must be a number"),
        ("postgresql:///d?host=h,g&port=1,x", "port must be a number"),
        ("postgresql://u@[::1/d", "can't be read"),
        ("postgresql://h/d?pgbouncer=maybe", "yes or no"),
    ],
)
def test_wrong_urls(url: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        from_url(url)


@pytest.mark.parametrize("option", ["sslmode=perhaps", "target_session_attrs=best"])
def test_options_that_the_driver_refuses(option: str) -> None:
    async def test() -> None:
        with pytest.raises(InvalidOption, match="can't be used"):
            await from_url(f"postgresql://ada@127.0.0.1:1/x?{option}").open()

    run(test)


def test_a_closed_engine_says_so() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await engine.close()
            with pytest.raises(Closed):
                await engine.counts()

    run(test)


def test_works_without_prepared_statements() -> None:
    async def test() -> None:
        async with engines(pgbouncer="yes") as (engine,):
            await engine.enqueue([new() for _ in range(5)])
            await settle(engine, await claim(engine, 5))
            await sound(engine)

    run(test)


async def lead(engine: PostgresEngine, now: int) -> Term:
    term = await engine.lead("leader", now=now)
    assert term is not None
    return term


def test_finished_tasks_go_to_their_day_and_with_it() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            made = await engine.chore("make_days", await lead(engine, NOW), now=NOW)
            assert made.done == 3
            again = await engine.chore("make_days", await lead(engine, NOW), now=NOW)
            assert again.done == 0
            tasks = [new() for _ in range(10)]
            await engine.enqueue(tasks, now=NOW)
            await settle(engine, await claim(engine, 10, now=NOW), now=NOW)
            async with connection() as own:
                name = f"{engine.address.schema}.finished_{NOW // DAY}"
                assert await own.fetchval(f"SELECT count(*) FROM {name}") == 10
                later = NOW + 9 * DAY
                pruned = await engine.chore("prune_finished", await lead(engine, later), now=later)
                assert (pruned.done, pruned.more) == (10, False)
                assert await own.fetchval("SELECT to_regclass($1)", name) is None
            assert await engine.get([tasks[0].id]) == [None]
            assert ((await engine.counts()).tasks)["default"][State.COMPLETED] == 0
            await sound(engine)

    run(test)


def test_counts_are_the_same_folded_or_not() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await engine.enqueue([new() for _ in range(7)], now=NOW)
            await settle(engine, await claim(engine, 3, now=NOW), now=NOW)
            before = (await engine.counts()).tasks, (await engine.counts()).counters
            folded = await engine.chore("fold_counts", await lead(engine, NOW), now=NOW)
            assert folded.done > 0
            assert ((await engine.counts()).tasks, (await engine.counts()).counters) == before
            await sound(engine)

    run(test)
