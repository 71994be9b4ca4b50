"""`dibs tasks` and `dibs dead`."""

from __future__ import annotations

import pytest
from cli_support import PATIENCE, Cli

from dibs import Dibs, Filter


def enqueue(shop: Dibs, name: str, times: int = 1, **arguments: object) -> list[str]:
    return [shop.task_named(name).enqueue(**arguments).id for _ in range(times)]


def work(shop: Dibs) -> None:
    """Run everything there is."""
    with shop.worker(until_idle=True) as worker:
        worker.wait(PATIENCE)


def test_list_newest_first_with_filters(cli: Cli, shop: Dibs) -> None:
    first, second = enqueue(shop, "shop.send", 2, to="ada")
    (slow,) = enqueue(shop, "shop.steps", count=1)
    assert [task["id"] for task in cli("tasks", "list", "--json").json["tasks"]] == [slow, second, first]
    assert [task["id"] for task in cli("tasks", "list", "--queue", "slow", "--json").json["tasks"]] == [slow]
    assert cli("tasks", "list", "--state", "dead").out == "No tasks match.\n"
    lines = cli("tasks", "list", "--min-priority", "high", "--text", "ada", "--since", "1h").out.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", second, first]


def test_pages(cli: Cli, shop: Dibs) -> None:
    ids = enqueue(shop, "shop.send", 3, to="ada")
    page = cli("tasks", "list", "--limit", "2", "--json").json
    rest = cli("tasks", "list", "--limit", "2", "--cursor", page["cursor"], "--json").json
    assert [task["id"] for task in page["tasks"] + rest["tasks"]] == ids[::-1]
    assert "--cursor" in cli("tasks", "list", "--limit", "2").err


def test_count(cli: Cli, shop: Dibs) -> None:
    enqueue(shop, "shop.send", 3, to="ada")
    assert cli("tasks", "count", "--queue", "mail").out == "3\n"
    assert cli("tasks", "count", "--json").json == {"count": 3, "more": False}


def test_show_with_history(cli: Cli, shop: Dibs) -> None:
    (task_id,) = enqueue(shop, "shop.broken", number=4)
    work(shop)
    text = cli("tasks", "show", task_id).out
    for words in (task_id, "dead (exhausted", "ValueError: [bold]no[/bold] 0", '{"number":4}', "history", "Traceback"):
        assert words in text
    data = cli("tasks", "show", task_id, "--json").json
    assert (data["task"]["state"], [line["event"] for line in data["history"]]) == ("dead", ["dead"])


def test_show_says_why_it_waits(cli: Cli, shop: Dibs) -> None:
    (task_id,) = enqueue(shop, "shop.send", to="ada")
    assert "no worker serves queue 'mail'" in cli("tasks", "show", task_id).out


def test_an_unknown_task_is_refused(cli: Cli) -> None:
    for command in (["tasks", "show"], ["tasks", "cancel"], ["why"], ["tasks", "watch"], ["dead", "replay"]):
        cli(*command, "0190163d-8694-739b-aea5-966c26f8ad91").refused(6, "0190163d-8694-739b-aea5-966c26f8ad91")


def test_cancel_by_id(cli: Cli, shop: Dibs) -> None:
    (task_id,) = enqueue(shop, "shop.send", to="ada")
    assert cli("tasks", "cancel", task_id, "--reason", "changed my mind").out == f"{task_id} cancelled\n"
    assert cli("tasks", "cancel", task_id, "--json").json == [
        {"id": task_id, "changed": False, "answer": "had ended before"}
    ]
    assert shop.tasks.get(task_id).note == "changed my mind"


def test_bulk_counts_first_and_asks(cli: Cli, shop: Dibs) -> None:
    enqueue(shop, "shop.send", 3, to="ada")
    enqueue(shop, "shop.steps", count=1)
    chosen = ("tasks", "cancel", "--all", "--queue", "mail")
    assert cli(*chosen, "--dry-run").out == "3 matched; all of them would be cancelled.\n"
    refused = cli(*chosen, answer="n\n")
    assert refused.code == 1
    assert "Cancel 3 tasks?" in refused.err
    assert "Nothing was changed." in refused.err
    assert cli(*chosen).code == 1, "nobody there to answer is a no"
    assert shop.tasks.count(Filter(state="pending")).count == 4
    assert cli(*chosen, answer="y\n").out == "3 of 3 cancelled.\n"
    assert shop.tasks.count(Filter(state="pending")).count == 1
    assert cli(*chosen, "--yes", "--json").json == {"matched": 0, "changed": 0, "dry_run": True}


def test_bulk_without_waiting(cli: Cli, shop: Dibs) -> None:
    assert cli("steps", "list").out == "Nothing goes on in the background.\n"
    enqueue(shop, "shop.send", 3, to="ada")
    begun = cli("tasks", "cancel", "--all", "--yes", "--no-wait")
    (step,) = shop.steps.list()
    assert begun.out == f"3 matched. A worker goes on with it: dibs steps wait {step.id}\n"
    assert step.id in cli("steps", "list").out
    assert cli("steps", "list", "--json").json[0]["ended_at"] is None
    assert cli("steps", "wait", step.id).out == "cancel: 3 of 3 changed.\n"
    assert cli("steps", "wait", step.id, "--json").json["changed"] == 3
    assert "3 of 3" in cli("steps", "list").out
    cli("steps", "wait", "nothing").refused(6, "nothing")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tasks", "cancel"), ["--all"]),
        (("tasks", "cancel", "x", "--all"), ["--all"]),
        (("tasks", "purge", "x", "--dry-run"), ["--dry-run"]),
        (("tasks", "purge", "x", "--no-wait"), ["--no-wait"]),
        (("tasks", "edit", "x"), ["nothing to change", "--priority"]),
        (("tasks", "edit", "--all"), ["nothing to change", "--priority"]),
        (("tasks", "list", "--state", "compleeted"), ["'compleeted'", "'completed'"]),
        (("tasks", "list", "--limit", "0"), ["limit"]),
        (("tasks", "lst"), ["lst", "See dibs tasks --help"]),
        (("dead", "purge", "--all", "--state", "completed"), ["No such option", "--state"]),
    ],
)
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...], words: list[str]) -> None:
    cli(*arguments).refused(2, *words)


def test_edit(cli: Cli, shop: Dibs) -> None:
    one, two = enqueue(shop, "shop.send", 2, to="ada")
    assert cli("tasks", "edit", one, "--priority", "low", "--delay", "1h", "--set-metadata", "a=1").code == 0
    info = shop.tasks.get(one)
    assert (info.priority, info.state, info.metadata) == (30, "scheduled", {"a": 1})
    assert cli("tasks", "edit", "--all", "--queue", "mail", "--priority", "5", "--yes").out == "2 of 2 changed.\n"
    assert shop.tasks.get(two).priority == 5


def test_dead_tasks_are_grouped_by_error(cli: Cli, shop: Dibs) -> None:
    for number in range(5):
        enqueue(shop, "shop.broken", number=number)
    enqueue(shop, "shop.refused")
    assert cli("dead", "list").out == "No dead tasks.\n"
    work(shop)
    groups = cli("dead", "list", "--json").json["groups"]
    found = [(group["count"], group["name"], group["reason"], group["error_message"]) for group in groups]
    assert found == [
        (5, "shop.broken", "exhausted", "[bold]no[/bold] <n>"),
        (1, "shop.refused", "permanent", "never"),
    ]
    told = cli("dead", "list").out
    assert "5 × shop.broken in mail: exhausted, newest " in told
    assert "ValueError: [bold]no[/bold] <n>" in told
    assert f"{groups[0]['example']} (shop.py:" in told
    cli("dead", "purge", "--all", "--name", "shop.broken", "--text", "no[/bold] 0", "--yes")
    assert "2 × shop.broken" in (told := cli("dead", "list").out)
    assert "ValueError: [bold]no[/bold] 1" in told, "what is the same for all of them is not masked"


def test_replay_and_purge_the_dead(cli: Cli, shop: Dibs) -> None:
    ids = [*enqueue(shop, "shop.broken", 2, number=1), *enqueue(shop, "shop.refused")]
    kept = enqueue(shop, "shop.send", to="ada")[0]
    work(shop)
    assert cli("dead", "replay", ids[0]).out == f"{ids[0]} replayed\n"
    assert cli("dead", "replay", "--all", "--name", "shop.broken", "--into", "other", "--yes").out == (
        "1 of 1 replayed.\n"
    )
    assert (shop.tasks.get(ids[0]).state, shop.tasks.get(ids[1]).queue) == ("pending", "other")
    assert cli("dead", "purge", "--all", "--yes").out == "1 of 1 purged.\n"
    assert shop.tasks.get(kept).state == "completed", "purging the dead leaves others alone"
    cli("tasks", "replay", kept).refused(6, "not dead")


def test_what_was_done_is_told_though_another_task_is_unknown(cli: Cli, shop: Dibs) -> None:
    first, second = enqueue(shop, "shop.send", 2, to="ada")
    told = cli("tasks", "cancel", first, "nowhere", second)
    assert (told.code, told.out) == (6, f"{first} cancelled\n")
    assert shop.tasks.get(second).state == "pending"


def test_watch_follows_to_the_end(cli: Cli, shop: Dibs) -> None:
    (good,) = enqueue(shop, "shop.steps", count=3)
    (bad,) = enqueue(shop, "shop.refused")
    with shop.worker():
        watched = cli("tasks", "watch", good, "--timeout", "30")
        failed = cli("tasks", "watch", good, bad, "--json")
    assert (watched.code, watched.out) == (0, f"{good} completed: 3\n")
    assert (failed.code, [task["state"] for task in failed.json]) == (1, ["completed", "dead"])


def test_watch_gives_up(cli: Cli, shop: Dibs) -> None:
    (task_id,) = enqueue(shop, "shop.steps", count=3)
    answer = cli("tasks", "watch", task_id, "--timeout", "50ms")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out == f"{task_id} is still pending; to go on waiting: dibs tasks watch {task_id}\n"
