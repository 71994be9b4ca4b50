"""Which store a command uses: looking creates none, and no command ever prints a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit

import click
import pytest
from cli_support import Cli
from test_every_door import COMMANDS, words
from test_postgres_commands import query, schema_of

from dibs import Dibs
from servers import redis as redis_servers
from servers.postgres import new_url

CREATING = {"enqueue", "schedules add", "queues set", "migrate", "bench", "demo", "serve"}
"""Commands with --url that make a store where there is none."""

ENDLESS = {"events"}
"""Commands that follow a store until they are told to stop."""

SECRET = "s3cret-w0rd"
ANY = "0198c0de-0000-7000-8000-000000000000"
IDS = {"task_id": ANY, "task_ids": ANY, "workflow_id": ANY, "step_id": ANY, "topics": "system.metrics"}


NEEDED = {"tasks edit": {"priority": "5"}, "simulate": {"from_queue": "mail"}, "events": {"limit": "1"}}
"""Without these options, the command would not come as far as the store, or not end."""


def has_url(command: click.Command) -> bool:
    return any(each.name == "url" and isinstance(each, click.Option) for each in command.params)


LOOKING = sorted(name for name, command in COMMANDS.items() if has_url(command) and name not in CREATING)


def line(name: str, url: str) -> list[str]:
    """A command line that would do something, on the store of this URL."""
    return words(name, {"url": url, **NEEDED.get(name, {})}, IDS)


def test_looking_commands_are_found() -> None:
    assert {"tasks list", "tasks cancel", "queues pause", "doctor", "backup", "top", "why", "dead list"} <= set(LOOKING)


def test_looking_creates_no_file(cli: Cli, place: Path) -> None:
    there = sorted(place.iterdir())
    for name in LOOKING:
        cli(*line(name, "sqlite:///typo.db")).refused(1, f"there is no store at {place / 'typo.db'}")
        assert sorted(place.iterdir()) == there, name


def test_looking_creates_no_file_for_an_app(cli: Cli, place: Path) -> None:
    (place / "other.py").write_text("from dibs import Dibs\napp = Dibs('sqlite:///typo.db')\n")
    cli("tasks", "list", "--app", "other:app").refused(1, f"there is no store at {place / 'typo.db'}")
    assert not (place / "typo.db").exists()


def test_looking_creates_no_schema(cli: Cli) -> None:
    url = new_url()
    for name in LOOKING:
        if name != "backup":  # refused before it opens the store
            cli(*line(name, url)).refused(1, "there is no store at PostgreSQL at", schema_of(url))
    assert query(f"SELECT to_regnamespace('{schema_of(url)}') IS NULL")


@pytest.mark.parametrize(
    "arguments",
    [
        ("enqueue", "shop.send", "to=ada", "--queue", "mail"),
        ("queues", "set", "mail", "rate=5"),
        ("schedules", "add", "hourly", "shop.send", "to=ada", "--every", "1h", "--queue", "mail"),
        ("migrate",),
    ],
)
def test_making_commands_create(cli: Cli, place: Path, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments, "--url", "sqlite:///new.db").code == 0
    assert (place / "new.db").exists()
    assert cli("queues", "list", "--url", "sqlite:///new.db").code == 0


def test_without_a_url_the_file_looked_for_is_named(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIBS_URL")
    cli("tasks", "list").refused(2, "no store is named", str(place / "dibs.db"))
    assert cli("enqueue", "shop.send", "to=ada", "--queue", "mail").code == 0
    assert (place / "dibs.db").exists()
    assert len(cli("tasks", "list", "--json").json["tasks"]) == 1


def with_secret(url: str) -> str:
    """The same server, which lets everybody in, by a URL with a password in every place."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    nested = quote(f"postgresql://postgres:{SECRET}@{host}{parts.path}?{parts.query.partition('&schema=')[0]}", safe="")
    return f"{url.replace(parts.netloc, f'postgres:{SECRET}@{host}', 1)}&read_url={nested}"


def check_silent(cli: Cli, arguments: list[str]) -> str:
    answer = cli(*arguments, answer="n\n")
    assert SECRET not in answer.out + answer.err, arguments
    return answer.out + answer.err


def test_no_command_prints_a_password(cli: Cli) -> None:
    url = with_secret(new_url())
    check_silent(cli, line("doctor", url))
    check_silent(cli, ["enqueue", "shop.send", "to=ada", "--queue", "mail", "--url", url])
    for name in (*LOOKING, "queues set", "migrate"):
        if name not in ENDLESS:
            check_silent(cli, line(name, url))
    assert "postgres:***@" in check_silent(cli, ["top", "--once", "--url", url])
    assert "***" in check_silent(cli, ["backup", "copy.db", "--url", url])


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@127.0.0.1:1/x",
        f"postgresql://u:{SECRET}@127.0.0.1:1/x#part",
        f"postgresql://u:{SECRET}@127.0.0.1:0/x",
        f"postgresql://u:{SECRET}@127.0.0.1:1/x?password={SECRET}&odd=1",
        f"postgresql://u@127.0.0.1:1/x?sslpassword={SECRET}&pool_size=no",
        f"postgresql://u:{SECRET}@127.0.0.1:1/x?direct_url=postgresql%3A%2F%2Fu%3A{SECRET}%40h%3A0%2Fx&pgbouncer=yes",
        f"postgresql://u:{SECRET}@[::1/x",
        f"postgresqql://u:{SECRET}@h/x",
        f"postgresql:u:{SECRET}@h/x",
        f"u:{SECRET}@h/x",
    ],
)
def test_no_error_prints_a_password(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tasks list", "doctor", "enqueue", "migrate", "backup"):
        check_silent(cli, line(name, url))
    check_silent(cli, ["bench", url])
    check_silent(cli, ["demo", "--url", url])
    monkeypatch.setenv("DIBS_URL", url)
    check_silent(cli, ["tasks", "list"])
    check_silent(cli, ["worker", "shop:app", "--until-idle"])


def test_an_app_does_not_show_its_password(tmp_path: Path) -> None:
    assert repr(Dibs(f"postgresql://u:{SECRET}@h/x")) == "<Dibs postgresql://u:***@h/x>"
    assert repr(Dibs(f"sqlite:///{tmp_path}/a.db")) == f"<Dibs sqlite:///{tmp_path}/a.db>"


def test_looking_creates_nothing_in_redis(cli: Cli, place: Path) -> None:
    server = redis_servers.server()
    url = f"{server.url}?prefix={place.name}"
    for name in LOOKING:
        if name != "backup":  # refused before it opens the store
            cli(*line(name, url)).refused(1, "there is no store in Redis at", place.name)
    assert server.command("KEYS", f"*{place.name}*") == []
