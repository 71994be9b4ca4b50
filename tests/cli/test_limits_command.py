"""Limits and shares on the command line: `queues set`, `queues show`, `top`, `why`."""

from __future__ import annotations

from typing import Any

import pytest
from cli_support import Cli

from dibs import Dibs


def settings(cli: Cli, *arguments: str) -> Any:
    return cli("queues", "set", "mail", *arguments, "--json").json["settings"]


def test_limits_of_tasks_are_set_one_by_one(cli: Cli) -> None:
    assert settings(cli, "--per-task", "send=3")["per_task"] == {"send": {"max_concurrent": 3}}
    more = settings(cli, "--per-task", "send:rate=5", "--per-task", "send:burst=10", "--per-task", "a:b:rate=0.5")
    assert more["per_task"] == {"send": {"max_concurrent": 3, "rate": 5.0, "burst": 10}, "a:b": {"rate": 0.5}}
    less = settings(cli, "--per-task", "send:max_concurrent=none", "--per-task", "a:b:rate=none")
    assert less["per_task"] == {"send": {"rate": 5.0, "burst": 10}}
    assert settings(cli, "--per-task", "send=none")["per_task"] == {}
    assert settings(cli, 'per_task={"send": 7}')["per_task"] == {"send": {"max_concurrent": 7}}


def test_limits_of_partitions_and_clients(cli: Cli) -> None:
    assert settings(cli, "--per-partition", "1")["per_partition"] == {"max_concurrent": 1}
    both = settings(cli, "--per-partition", "rate=2", "--per-partition", "burst=4", "enqueue_rate=50")
    assert both["per_partition"] == {"max_concurrent": 1, "rate": 2.0, "burst": 4}
    assert both["enqueue_rate"] == 50.0
    assert settings(cli, "--per-partition", "none", "enqueue_burst=100")["per_partition"] is None


def test_fairness(cli: Cli) -> None:
    fair = settings(cli, "--fair", "--weight", "acme=2", "--weight", "beta=0.5")
    assert (fair["fair"], fair["weights"]) == (True, {"acme": 2.0, "beta": 0.5})
    assert settings(cli, "--weight", "acme=none")["weights"] == {"beta": 0.5}
    assert settings(cli, "--no-fair")["fair"] is False
    assert settings(cli, "fair=true")["fair"] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["nothing to set"]),
        (("--per-task", "send"), ["'send'", "name=value"]),
        (("--per-task", "send=many"), ["max_concurrent", "'many'"]),
        (("--per-task", "send:burst=3"), ["per_task send limits nothing"]),
        (("--per-partition", "rat=3"), ["'rat'", "'rate'"]),
        (("--weight", "acme=0"), ["weight of tenant 'acme'"]),
        (("--per-task", "send=1", "--per-task", "send=2"), ["given twice"]),
    ],
)
def test_wrong_limits_change_nothing(cli: Cli, arguments: tuple[str, ...], words: list[str]) -> None:
    cli("queues", "set", "mail", *arguments).refused(2, *words)
    assert cli("queues", "list", "--json").json == []


def test_show_tells_limits_and_the_bound_in_words(cli: Cli, shop: Dibs) -> None:
    cli("queues", "set", "mail", "max_concurrent=10", "enqueue_rate=50", "enqueue_burst=99", "--per-partition", "1")
    cli("queues", "set", "mail", "--per-task", "shop.send:rate=5", "--fair", "--weight", "acme=2")
    send = shop.task_named("shop.send")
    for tenant in ("acme", "acme", "beta"):
        send.using(tenant=tenant, per=tenant).enqueue(to="ada")
    assert len(shop.claim(["mail"], limit=5)) == 2
    text = cli("queues", "show", "mail").out
    for words in (
        "the queue: 10 at once",
        "task shop.send: 5 starts/s",
        "each partition: 1 at once",
        "each client: 50 enqueues/s (burst 99)",
        "partition 'acme' of queue 'mail': 1 of 1 running",
        "served next, with pending tasks: acme 1 (weight 2)",
        "this holds within a tenant",
    ):
        assert words in text
    assert cli("queues", "show", "mail", "--json").json["tenants"] == [{"tenant": "acme", "pending": 1, "weight": 2.0}]


def test_top_shows_what_waits_for_a_limit_or_a_turn(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail", per_partition=1, fair=True)
    send = shop.task_named("shop.send")
    handles = [send.using(tenant=tenant, per="p").enqueue(to="ada") for tenant in ("acme", "beta", "beta", "gamma")]
    send.using(after=[handles[0]]).enqueue(to="ada")
    shop.claim(["mail"], limit=5)
    text = cli("top", "--once").out
    assert "1 blocked" in text
    assert "at their limit   partition 'p' of queue 'mail': 1 of 1 running" in text
    assert "tenants of mail  beta 2, gamma 1" in text
    assert cli("top", "--json").json["tenants"]["mail"][0]["tenant"] == "beta"


def test_top_has_no_lines_about_nothing(cli: Cli, shop: Dibs) -> None:
    shop.task_named("shop.send").enqueue(to="ada")
    text = cli("top", "--once").out
    assert not [word for word in ("limit", "tenants", "schedules") if word in text]


def test_why_has_further_lines(cli: Cli, shop: Dibs) -> None:
    send = shop.task_named("shop.send")
    extract = send.using(delay=3600).enqueue(to="ada").id
    transform = send.using(after=[extract]).enqueue(to="ada").id
    load = send.using(after=[transform], expires=60).enqueue(to="ada").id
    lines = cli("why", load).out.splitlines()
    assert lines[0].startswith(
        f"It waits for shop.send {transform}; at the root of that is shop.send {extract}: it is sch"
    )
    assert lines[1] == f"  shop.send {load} waits for shop.send {transform}."
    assert lines[2] == f"  shop.send {transform} waits for shop.send {extract}."
    assert lines[3].startswith("  It expires in ")
    assert len(cli("why", load, "--json").json["details"]) == 3


def test_enqueue_with_the_new_options(cli: Cli, shop: Dibs) -> None:
    first = cli("enqueue", "shop.send", "to=ada", "--queue", "mail").out.strip()
    options = ["--tenant", "acme", "--per", "p1", "--expires", "1h", "--after", first]
    by_name = cli("enqueue", "shop.send", "to=ada", "--queue", "mail", *options).out.strip()
    by_signature = cli("enqueue", "shop.send", "to=ada", "--app", "shop:app", *options).out.strip()
    for task_id in (by_name, by_signature):
        info = shop.tasks.get(task_id)
        assert (info.tenant, info.partition, info.state) == ("acme", "p1", "blocked")
        assert info.expires_at is not None
    shop.queues.set("mail", enqueue_rate=0.001)
    cli("enqueue", "shop.send", "to=ada", "--queue", "mail")
    cli("enqueue", "shop.send", "to=ada", "--queue", "mail").refused(6, "enqueues faster", "try again in")
