"""`dibs enqueue`: with the app's signatures, and without."""

from __future__ import annotations

import pytest
from cli_support import Cli

from dibs import Dibs


def test_it_prints_the_id(cli: Cli, shop: Dibs) -> None:
    answer = cli("enqueue", "shop.send", "to=ada", "--app", "shop:app")
    info = shop.tasks.get(answer.out.strip())
    assert (info.name, info.queue, info.priority, info.args) == ("shop.send", "mail", 70, {"to": "ada"})


def test_json_is_one_document(cli: Cli) -> None:
    data = cli("enqueue", "shop.send", "to=ada", "--app", "shop:app", "--json").json
    assert data == {"id": data["id"], "name": "shop.send", "queue": "mail", "duplicate": False}


def test_a_text_parameter_takes_what_looks_like_a_number(cli: Cli, shop: Dibs) -> None:
    task_id = cli("enqueue", "shop.send", "to=42", "--app", "shop:app").out.strip()
    assert shop.tasks.get(task_id).args == {"to": "42"}


def test_without_the_app_values_are_json_or_text(cli: Cli, shop: Dibs) -> None:
    given = ("n=3", "flag=true", "list=[1, 2]", "name=ada")
    task_id = cli("enqueue", "elsewhere.job", *given, "--queue", "other").out.strip()
    info = shop.tasks.get(task_id)
    assert (info.queue, info.args) == ("other", {"n": 3, "flag": True, "list": [1, 2], "name": "ada"})


def test_arguments_as_one_json_object(cli: Cli, shop: Dibs) -> None:
    task_id = cli("enqueue", "a.b", "--args", '{"x": {"y": 1}}', "z=2", "--queue", "q").out.strip()
    assert shop.tasks.get(task_id).args == {"x": {"y": 1}, "z": 2}


def test_options_reach_the_task(cli: Cli, shop: Dibs) -> None:
    options = ["--queue", "q", "--priority", "critical", "--delay", "2h", "--retries", "7", "--timeout", "90s"]
    options += ["--metadata", "customer=7", "--requires", "gpu", "--deadline", "3h"]
    info = shop.tasks.get(cli("enqueue", "a.b", *options).out.strip())
    assert (info.state, info.priority, info.retries, info.timeout) == ("scheduled", 90, 7, 90.0)
    assert (info.metadata, info.requires) == ({"customer": 7}, ("gpu",))
    assert info.due_at is not None
    assert info.deadline is not None
    assert 3500 < (info.deadline - info.due_at).total_seconds() < 3700


def test_a_key_stands_for_one_task(cli: Cli) -> None:
    first = cli("enqueue", "shop.send", "to=ada", "--key", "k", "--app", "shop:app").out.strip()
    again = cli("enqueue", "shop.send", "to=ada", "--key", "k", "--app", "shop:app", "--json").json
    assert (again["id"], again["duplicate"]) == (first, True)
    cli("enqueue", "shop.send", "to=bob", "--key", "k", "--app", "shop:app").refused(6, "'k'", first)


def test_waiting_for_the_result(cli: Cli, shop: Dibs) -> None:
    with shop.worker():
        answer = cli("enqueue", "shop.send", "to=ada", "--queue", "mail", "--wait", "20")
        failed = cli("enqueue", "shop.refused", "--queue", "mail", "--wait", "20")
    assert (answer.code, answer.out.split(" ", 1)[1]) == (0, "completed: Hi to ada\n")
    assert failed.code == 1
    assert "dead (permanent): dibs.errors.Permanent: never" in failed.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("shop.send", "nobody=1", "--app", "shop:app"), ["nobody", "to, subject"]),
        (("shop.sent", "to=a", "--app", "shop:app"), ["'shop.sent'", "Did you mean 'shop.send'?"]),
        (("shop.broken", "number=x", "--app", "shop:app"), ["shop.broken", "int"]),
        (("shop.send",), ["--queue", "--app"]),
        (("a.b", "--queue", "q", "--priority", "hihg"), ["'hihg'", "'high'"]),
        (("a.b", "--queue", "q", "--priority", "101"), ["0 to 100"]),
        (("a.b", "--queue", "q", "--delay", "soon"), ["'soon'", "15m"]),
        (("a.b", "--queue", "q", "--at", "2030-01-01T00:00"), ["time zone"]),
        (("a.b", "--queue", "q", "--args", "[1]"), ["--args", "JSON object"]),
        (("a.b", "--queue", "q", "word"), ["'word'", "name=value"]),
        (("a.b", "--queue", "q", "x=1", "x=2"), ["'x'", "twice"]),
        (("a.b", "--queue", "q", "--id", "7"), ["UUID"]),
        (("a.b", "--queue", "q", "--url", "sqlite:///x.db", "--app", "shop:app"), ["--url", "--app"]),
        (("a.b", "--queue", "q", "--url", "sqllite:///x.db"), ["'sqllite'", "'sqlite'"]),
    ],
)
def test_wrong_usage_is_one_sentence(cli: Cli, arguments: tuple[str, ...], words: list[str]) -> None:
    cli("enqueue", *arguments).refused(2, *words)
