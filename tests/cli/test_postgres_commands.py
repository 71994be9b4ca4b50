"""`dibs migrate` and `dibs doctor` on PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from cli_support import Cli

from servers.postgres import NEWEST, binaries, new_url, server_url


def query(text: str) -> Any:
    async def ask() -> Any:
        connection = await asyncpg.connect(server_url())
        try:
            return await connection.fetchval(text)
        finally:
            await connection.close()

    return asyncio.run(ask())


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


def test_migrate_says_what_it_does(cli: Cli) -> None:
    url = new_url()
    dry = cli("migrate", "--url", url, "--dry-run", "--json").json
    assert dry["applied"] is False
    assert dry["steps"][0] == "0001 initial"
    assert query(f"SELECT to_regnamespace('{schema_of(url)}') IS NULL"), "a dry run makes nothing"
    answer = cli("migrate", "--url", url)
    assert answer.out.startswith("Applied:\n  0001 initial\n")
    assert cli("migrate", "--url", url).out == "The store is up to date.\n"
    assert cli("migrate", "--url", url, "--sql").out == ""


def test_the_script_for_psql(cli: Cli) -> None:
    psql = binaries(NEWEST) / "psql"
    if not psql.exists():
        pytest.skip("psql is not installed")
    url = f"{new_url()}%20it's%20%22odd%22"
    script = cli("migrate", "--url", url, "--sql").out
    for words in ("ON_ERROR_STOP", "lock_timeout", "pg_advisory_xact_lock", "-- 0001 initial", "COMMIT;"):
        assert words in script
    command = [str(psql), "--no-psqlrc", "--quiet", server_url()]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert cli("migrate", "--url", url).out == "The store is up to date.\n"
    assert "counts: 0 tasks, as counted" in cli("doctor", "--url", url).out
    again = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 3, "it stops at the first error, and nothing is done twice"


def test_the_script_for_sqlite(cli: Cli, place: Any) -> None:
    import sqlite3

    url = f"sqlite:///{place}/new.db"
    script = cli("migrate", "--sql", "--url", url).out
    assert not (place / "new.db").exists(), "printing makes nothing"
    with sqlite3.connect(place / "new.db") as connection:
        connection.executescript(script)
    connection.close()
    assert cli("migrate", "--url", url).out == "The store is up to date.\n"
    assert cli("migrate", "--sql", "--url", url).out == ""
    assert cli("doctor", "--url", url).code == 0


def test_a_store_in_memory_has_nothing_to_migrate(cli: Cli) -> None:
    assert cli("migrate", "--url", "memory://", "--sql").out == ""
    cli("migrate", "--sql", "--json").refused(2, "--sql", "--json")


def test_doctor(cli: Cli) -> None:
    url = new_url(read_url=quote("postgresql://127.0.0.1:1/none", safe=""))
    cli("migrate", "--url", url)
    answer = cli("doctor", "--url", url)
    assert answer.code == 0
    for words in (
        "PostgreSQL: 1",
        "crash detection",
        "connection: straight to the server",
        "long transactions: none",
        "indexes: ",
        "read_url: does not answer",
        "counts: 0 tasks",
    ):
        assert words in answer.out


def test_doctor_of_a_broken_store(cli: Cli) -> None:
    url = new_url()
    cli("migrate", "--url", url)
    query(f"DROP INDEX {schema_of(url)}.pending")
    answer = cli("doctor", "--url", url)
    assert answer.code == 1
    assert "pending is missing" in answer.out
    assert f'CREATE INDEX pending ON "{schema_of(url)}".tasks' in answer.out


def test_migrate_as_a_role_that_may_not(cli: Cli) -> None:
    url = new_url()
    name = f"dibs_cli_{schema_of(url)}"
    query(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    try:
        refused = url.replace("postgres@", f"{name}:x@", 1)
        cli("migrate", "--url", refused).refused(1, "not up to date", "dibs migrate", "GRANT CREATE ON DATABASE")
    finally:
        query(f"DROP ROLE {name}")


def test_what_the_person_on_call_sees(cli: Cli) -> None:
    url = new_url()
    task = cli("enqueue", "shop.send", "to=ada", "--queue", "mail", "--per", "ada", "--url", url).out.strip()
    cli("enqueue", "shop.send", "to=bob", "--queue", "mail", "--after", task, "--url", url)
    cli("tasks", "edit", task, "--priority", "low", "--url", url)
    shown = cli("tasks", "show", task, "--url", url).out
    for words in ("effective 50.0", "no task is ahead", "followers, which wait for it", "priority=30"):
        assert words in shown
    assert [each["id"] for each in cli("peek", "mail", "--json", "--url", url).json] == [task]
    page = cli("tasks", "list", "--partition", "ada", "--json", "--url", url).json
    assert [each["id"] for each in page["tasks"]] == [task]
    assert "priority: 50 → 30" in cli("audit", "--target", task, "--url", url).out
    assert "make_days" in cli("chores", "--url", url).out
    assert cli("dead", "list", "--url", url).out == "No dead tasks.\n"
