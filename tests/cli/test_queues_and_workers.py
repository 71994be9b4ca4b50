"""`dibs queues`, `workers`, `top`, `why`, `peek`."""

from __future__ import annotations

import pytest
from cli_support import Cli

from dibs import Dibs


def test_list_and_show(cli: Cli, shop: Dibs) -> None:
    assert "No queues yet" in cli("queues", "list").out
    shop.task_named("shop.send").enqueue(to="ada")
    assert cli("queues", "list").out.splitlines()[1].split()[:4] == ["mail", "active", "aging", "1"]
    (queue,) = cli("queues", "list", "--json").json
    assert (queue["name"], queue["counts"]["pending"], queue["settings"]["aging"]) == ("mail", 1, 600.0)
    text = cli("queues", "show", "mail").out
    for words in ("1 pending", "10 min per point of priority", "all defaults"):
        assert words in text
    assert cli("queues", "show", "mail", "--json").json["stats"]["counts"]["pending"] == 1


def test_set_takes_durations_numbers_and_none(cli: Cli, shop: Dibs) -> None:
    changes = ("aging=5m", "max_depth=1000", "rate=2.5", "retries=7", 'tiers={"low": {"timeout": 9}}')
    assert "aging=5m " in cli("queues", "set", "mail", *changes).out
    settings = cli("queues", "set", "mail", "max_depth=none", "--json").json["settings"]
    assert (settings["aging"], settings["max_depth"], settings["rate"], settings["retries"]) == (300.0, None, 2.5, 7)
    assert settings["tiers"] == {"low": {"timeout": 9.0}}


def test_every_setting_can_be_set_and_is_shown(cli: Cli) -> None:
    from dibs.client.queues import QueueChanges

    settings = cli("queues", "set", "mail", "policy=strict", "--json").json["settings"]
    assert set(settings) == set(QueueChanges.__annotations__)
    help_text = cli("queues", "set", "--help").out
    assert all(name in help_text for name in settings)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("agng=5",), ["'agng'", "'aging'"]),
        (("aging=soon",), ["aging", "'soon'"]),
        (("policy=fair",), ["policy", "aging, tiers, strict"]),
        (("max_depth=0", "rate=x"), ["max_depth", "rate"]),
        (("burst=3",), ["burst needs a rate"]),
    ],
)
def test_wrong_settings_change_nothing(cli: Cli, changes: tuple[str, ...], words: list[str]) -> None:
    cli("queues", "set", "mail", *changes).refused(2, *words)
    assert cli("queues", "list", "--json").json == []


def test_pause_resume_drain(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail")
    assert cli("queues", "pause", "mail").out == "Queue 'mail' is now paused.\n"
    assert cli("queues", "pause", "mail").out == "Queue 'mail' is already paused.\n"
    assert cli("queues", "resume", "mail", "--json").json == {"queue": "mail", "state": "active", "changed": True}
    assert cli("queues", "drain", "mail").code == 0
    cli("enqueue", "shop.send", "to=ada", "--queue", "mail").refused(6, "draining")
    cli("queues", "pause", "male").refused(6, "'male'")


def test_delete_asks_when_tasks_would_die(cli: Cli, shop: Dibs) -> None:
    shop.task_named("shop.send").enqueue(to="ada")
    cli("queues", "delete", "mail").refused(6, "unfinished tasks")
    assert "1 waiting task dead?" in cli("queues", "delete", "mail", "--force", answer="n\n").err
    assert shop.queues.get("mail").counts["pending"] == 1
    assert cli("queues", "delete", "mail", "--force", "--yes").out == "Queue 'mail' is deleted.\n"


def test_workers(cli: Cli, shop: Dibs) -> None:
    assert "No workers" in cli("workers", "list").out
    cli("workers", "pause", "nobody").refused(6, "'nobody'")
    with shop.worker(name="w1", concurrency=3):
        (worker,) = cli("workers", "list", "--json").json
        assert (worker["id"], worker["state"], worker["concurrency"]) == ("w1", "active", 3)
        assert cli("workers", "pause", "w1").out == "Worker w1 was told to pause.\n"
        assert cli("workers", "resume", "w1", "--json").json["changed"] is True
        assert "w1" in cli("workers", "list").out
        assert cli("workers", "drain", "w1").code == 0


def test_top_once(cli: Cli, shop: Dibs) -> None:
    shop.task_named("shop.send").enqueue(to="ada")
    with shop.worker(name="w1", queues=["other"]):
        text = cli("top", "--once").out
        data = cli("top", "--json").json
    assert "1 pending" in text
    assert "w1" in text
    assert [queue["name"] for queue in data["queues"]] == ["mail"]


def test_why_and_peek(cli: Cli, shop: Dibs) -> None:
    low = shop.task_named("shop.send").using(priority="low").enqueue(to="ada").id
    high = shop.task_named("shop.send").enqueue(to="bob").id
    later = shop.task_named("shop.send").using(delay=3600).enqueue(to="eve").id
    assert [task["id"] for task in cli("peek", "mail", "--json").json] == [high, low]
    assert [line.split()[1] for line in cli("peek", "mail", "-n", "1").out.splitlines()] == ["ID", high]
    assert cli("why", low).out == "No worker serves queue 'mail': start one with `dibs worker`.\n"
    data = cli("why", later, "--json").json
    assert data["why"].startswith("it is scheduled")
    assert data["until"] is not None
    cli("peek", "mial").refused(6, "'mial'", "'mail'")
