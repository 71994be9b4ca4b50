"""`dibs tokens`: the token is shown once, its file never holds it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from cli_support import Cli

from dibs.cli.tokens import SCOPES
from dibs.engines.http.protocol import Scope
from dibs.server.tokens import TokenFile

FILE = "dibs-tokens.json"


def test_create_prints_the_token_alone_and_once(cli: Cli, place: Path) -> None:
    answer = cli("tokens", "create", "ci", "--scope", "produce,read", "--scope", "consume", "--queue", "mail,web")
    assert answer.code == 0
    secret = answer.out.removesuffix("\n")
    assert secret.startswith("dibs_")
    assert not set(secret) & set(" \n")
    assert secret not in answer.err
    for words in ("produce, consume, read", "mail, web", "only this once", FILE):
        assert words in " ".join(answer.err.split())
    (token,) = TokenFile(place / FILE).read()
    assert (token.name, token.scopes, token.queues) == ("ci", ("produce", "consume", "read"), ("mail", "web"))
    assert secret not in (place / FILE).read_text()
    assert TokenFile(place / FILE).find(secret) == token


def test_the_file_is_its_owners_only(cli: Cli, place: Path) -> None:
    before = os.umask(0)
    try:
        cli("tokens", "create", "ci", "--scope", "read", "--tokens", "sub/tokens.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((place / "sub/tokens.json").stat().st_mode) == 0o600


def test_json(cli: Cli, place: Path) -> None:
    made = cli("tokens", "create", "ci", "--scope", "admin", "--rate", "2.5", "--expires", "90d", "--json")
    assert made.err == ""
    assert made.json["token"].startswith("dibs_")
    assert made.json["file"] == str(place / FILE)
    (listed,) = cli("tokens", "list", "--json").json
    assert (listed["name"], listed["scopes"], listed["queues"], listed["rate"]) == ("ci", ["admin"], None, 2.5)
    assert listed["expired"] is False
    assert listed["expires_at"] > listed["created_at"]
    assert cli("tokens", "revoke", "ci", "--json").json == {"token": "ci", "revoked": True}
    assert cli("tokens", "list", "--json").json == []


def test_list_shows_what_tokens_may_do_and_no_secrets(cli: Cli, place: Path) -> None:
    secret = cli("tokens", "create", "ci", "--scope", "read", "--rate", "10", "--expires", "90d").out.strip()
    cli("tokens", "create", "ops", "--scope", "operate", "--queue", "mail")
    listed = cli("tokens", "list")
    (token, _) = TokenFile(place / FILE).read()
    assert secret not in listed.out
    assert token.sha256 not in listed.out
    head, first, second = (line.split("  ") for line in listed.out.splitlines())
    assert head[0] == "TOKEN"
    assert [each.strip() for each in first if each][:4] == ["ci", "read", "all", "10/s"]
    assert "never" in second[-1]
    assert all(len(line) <= 80 for line in listed.out.splitlines())


def test_a_token_that_has_expired_says_so(cli: Cli, place: Path) -> None:
    cli("tokens", "create", "ci", "--scope", "read", "--expires", "1d")
    file = place / FILE
    stored = json.loads(file.read_text())
    stored["tokens"][0]["expires_at"] = "2020-01-01T00:00:00Z"
    file.write_text(json.dumps(stored))
    assert "expired" in cli("tokens", "list").out
    assert cli("tokens", "list", "--json").json[0]["expired"] is True


def test_revoke(cli: Cli, place: Path) -> None:
    secret = cli("tokens", "create", "ci", "--scope", "read").out.strip()
    cli("tokens", "create", "ops", "--scope", "operate")
    assert cli("tokens", "revoke", "ci").out == "Token 'ci' is revoked.\n"
    assert TokenFile(place / FILE).find(secret) is None
    assert [token.name for token in TokenFile(place / FILE).read()] == ["ops"]


def test_the_help_names_every_scope() -> None:
    assert ", ".join(Scope) == SCOPES


def test_no_tokens(cli: Cli) -> None:
    listed = cli("tokens", "list")
    assert (listed.code, listed.out.count("\n")) == (0, 1)
    assert "dibs tokens create" in listed.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "ci"], ["--scope"]),
        (["create", "ci", "--scope", "reed"], ["reed", "read"]),
        (["create", "ci", "--scope", ","], ["scopes"]),
        (["create", "a@b", "--scope", "read"], ["@"]),
        (["create", "ci", "--scope", "read", "--queue", "a b"], ["queue"]),
        (["create", "ci", "--scope", "read", "--rate", "0"], ["--rate"]),
        (["create", "ci", "--scope", "read", "--rate", "nan"], ["--rate"]),
        (["create", "ci", "--scope", "read", "--expires", "2020-01-01T00:00:00Z"], ["passed"]),
        (["create", "ci", "--scope", "read", "--expires", "soon"], ["soon"]),
        (["create", "there", "--scope", "read"], ["already"]),
        (["revoke", "ther"], ["ther", "there"]),
        (["revoke", "there", "--tokens", "no.json"], ["no.json"]),
        (["list", "--tokens", "broken.json"], ["broken.json", "can't be read"]),
        (["create", "ci", "--scope", "read", "--tokens", "shop.py/tokens.json"], ["can't be"]),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_written(
    cli: Cli, place: Path, arguments: list[str], words: list[str]
) -> None:
    cli("tokens", "create", "there", "--scope", "read")
    (place / "broken.json").write_text("{")
    before = (place / FILE).read_text()
    cli("tokens", *arguments).refused(2, *words)
    assert (place / FILE).read_text() == before
