"""Commands and large payloads: `enqueue` uploads, `tasks` tells where they are, `doctor` looks at the blob store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import Cli

from dibs import Dibs

BIG = "x" * 300_000


def large_payloads(cli: Cli) -> tuple[int, str, str]:
    answer = cli("doctor", "--json")
    (found,) = [each for each in answer.json["findings"] if each["title"] == "large payloads"]
    return answer.code, found["level"], found["detail"]


def test_the_doctor_says_that_there_is_none(cli: Cli, shop: Dibs) -> None:
    assert large_payloads(cli) == (0, "ok", "no blob store, so arguments and results over 262,144 bytes are refused")


def test_the_doctor_tries_it(cli: Cli, shop: Dibs, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_BLOBS", str(place / "blobs"))
    code, level, detail = large_payloads(cli)
    assert (code, level) == (0, "ok")
    assert detail.startswith(f"{place / 'blobs'}, readable and writable, ")


def test_one_that_can_not_be_used_is_an_error(
    cli: Cli, shop: Dibs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "file").write_text("")
    monkeypatch.setenv("DIBS_BLOBS", str(place / "file"))
    code, level, detail = large_payloads(cli)
    assert (code, level) == (1, "error")
    assert "can't write to the blob directory" in detail


@pytest.mark.parametrize(
    "options", [["shop.send", "--app", "shop"], ["anything", "--queue", "mail"]], ids=["app", "url"]
)
def test_enqueue_uploads(
    cli: Cli, shop: Dibs, place: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    arguments = ["--args", json.dumps({"to": BIG})]
    cli("enqueue", *options, *arguments).refused(2, "DIBS_BLOBS")
    monkeypatch.setenv("DIBS_BLOBS", str(place / "blobs"))
    task_id = cli("enqueue", *options, *arguments, "--json").json["id"]
    shown = cli("tasks", "show", task_id, "--json").json["task"]
    assert shown["args"]["size"] == 300_009
    assert (place / "blobs" / shown["args"]["blob"]).stat().st_size == 300_009
