"""What the person on call sees: one task with all that belongs to it, what comes next, the audit log and the chores."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from cli_support import Cli, fits, on_a_terminal
from test_store_commands import do_chores
from test_tasks import enqueue, work

from dibs import Dibs
from dibs.cli.long_search import Found
from dibs.cli.options import act_on_all
from dibs.cli.tasks import tell_all
from dibs.client.error_groups import ErrorGroup, add_to
from dibs.client.info import TaskInfo
from dibs.client.tasks import Acted, Count, Filter
from dibs.core.states import State
from dibs.core.task import Failure
from dibs.core.times import EPOCH, HOUR

# One task.


def test_show_says_where_a_task_is_in_its_queue(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail", policy="tiers")
    first, second = enqueue(shop, "shop.send", 2, to="ada")
    text = cli("tasks", "show", second).out
    assert re.search(r"priority +70, effective \d+", text)
    assert re.search(r"position +1 task ahead", text)
    assert re.search(r"retries +3\n", text)
    assert re.search(r"updated +20", text)
    assert re.search(r"position +no task is ahead", cli("tasks", "show", first).out)
    data = cli("tasks", "show", second, "--json").json
    assert (data["ahead"], data["starts_at"], data["followers"]) == (1, None, [])
    assert data["task"]["effective_priority"] > 0


def test_show_says_when_the_next_step_comes(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail", policy="tiers")
    task = shop.task_named("shop.send").using(priority="low").enqueue(to="ada").id
    assert "It is promoted to the next tier in 10 min" in cli("tasks", "show", task).out
    assert "It is promoted to the next tier in 10 min" in cli("why", task).out


def test_show_names_followers(cli: Cli, shop: Dibs) -> None:
    (task,) = enqueue(shop, "shop.send", to="ada")
    follower = shop.task_named("shop.steps").using(after=task).enqueue(count=1).id
    text = cli("tasks", "show", task).out
    assert re.search(rf"followers, which wait for it\n.*\n +{follower} +blocked +shop.steps +slow", text)
    followers = cli("tasks", "show", task, "--json").json["followers"]
    assert followers == [{"id": follower, "name": "shop.steps", "state": "blocked"}]


def test_show_says_how_long_each_failed_run_took(cli: Cli, shop: Dibs) -> None:
    (task,) = enqueue(shop, "shop.broken", number=1)
    work(shop)
    assert re.search(r"ran \d+(\.\d+)? m?s from \d\d:\d\d:\d\d: ", cli("tasks", "show", task).out)
    (line,) = cli("tasks", "show", task, "--json").json["history"]
    assert line["ran"] >= 0
    assert line["started_at"] is not None


def test_history_shows_times_not_numbers(cli: Cli, shop: Dibs) -> None:
    (task,) = enqueue(shop, "shop.send", to="ada")
    cli("tasks", "edit", task, "--delay", "1h")
    assert re.search(r"due_at=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s+UTC", cli("tasks", "show", task).out)


def test_a_completed_task_shows_no_old_progress(cli: Cli, shop: Dibs) -> None:
    (task,) = enqueue(shop, "shop.steps", count=3)
    work(shop)
    text = cli("tasks", "show", task).out
    assert "completed" in text
    assert "progress" not in text


def test_cancelling_a_running_task_is_a_request(cli: Cli, shop: Dibs) -> None:
    (task,) = enqueue(shop, "shop.send", to="ada")
    shop.claim(["mail"])
    assert cli("tasks", "cancel", task).out == f"{task} is running, and was asked to stop\n"
    assert cli("tasks", "cancel", task, "--json").json == [{"id": task, "changed": True, "answer": "asked to stop"}]


# What comes next.


def test_peek_shows_effective_priorities_in_order(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail", policy="tiers")
    low = shop.task_named("shop.send").using(priority="low").enqueue(to="ada").id
    (high,) = enqueue(shop, "shop.send", to="ada")
    text = cli("peek", "mail").out
    assert fits(text), text
    heading, *lines = text.splitlines()
    assert heading.split() == ["#", "ID", "PRI", "EFF", "TASK", "AGE", "NEXT", "STEP"]
    assert [line.split()[:3] for line in lines] == [["1", high, "70"], ["2", low, "30"]]
    assert lines[1].endswith("in 10 min")


# Searching far.


def fill(shop: Dibs, count: int) -> str:
    """One old task, and many newer ones."""
    (old,) = enqueue(shop, "shop.send", to="needle")
    send = shop.task_named("shop.send")
    for _ in range(0, count, 1000):
        shop.enqueue_many([send.call(to="ada") for _ in range(1000)])
    return old


def test_a_list_goes_on_until_it_finds(cli: Cli, shop: Dibs) -> None:
    old = fill(shop, 11_000)
    page = shop.tasks.search(Filter(text="needle"))
    assert not page.tasks, "one page alone does not reach it"
    answer = cli("tasks", "list", "--text", "needle")
    assert old in answer.out
    assert re.fullmatch(r"Looked at 11,\d{3} tasks, to the oldest\.\n", answer.err)
    answer = cli("tasks", "list", "--text", "needle", "--json")
    assert [task["id"] for task in answer.json["tasks"]] == [old]
    assert (answer.json["visited"] > 11_000, answer.json["cursor"]) == (True, None)
    assert cli("tasks", "cancel", "--all", "--text", "needle", "--yes").out == "1 of 1 cancelled.\n"


def test_a_count_that_stopped_says_so() -> None:
    assert [str(Count(12, True)), str(Count(0, True)), str(Count(1200, False))] == ["12 or more", "0 or more", "1,200"]


def test_an_act_goes_on_where_counting_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    def act(*, dry_run: bool = False, **_: object) -> Acted:
        return Acted(0, 0, True, more=True) if dry_run else Acted(3, 3, False)

    done = act_on_all("Cancel", act, dry_run=False, yes=True, wait=True)
    assert done == Acted(3, 3, False)
    tell_all("cancel", act(dry_run=True), no_wait=False, as_json=False, dry_run=True)
    assert capsys.readouterr().out == "0 or more matched; all of them would be cancelled.\n"


class Interrupted:
    """The tasks of an app, until the user has waited long enough."""

    def __init__(self, tasks: Any, after: int) -> None:
        self.tasks = self
        self._tasks = tasks
        self._left = after

    def search(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._tasks.search(*arguments, **options)


def test_ctrl_c_shows_what_was_found(shop: Dibs) -> None:
    ids = enqueue(shop, "shop.send", 3, to="ada")
    found = Found(None)
    found.read(Interrupted(shop.tasks, 0), Filter(), 50, quiet=True)  # type: ignore[arg-type]
    assert (found.interrupted, found.tasks, found.how_far()) == (True, [], "Looked at 0 tasks, to the oldest.")
    found = Found(None)
    found.next_page(shop, Filter(), 2)
    assert [info.id for info in found.tasks] == ids[:0:-1]
    assert re.fullmatch(r"Looked at \d tasks, back to \d{4}-\d\d-\d\d \d\d:\d\d\.", found.how_far())
    found.read(Interrupted(shop.tasks, 0), Filter(), 50, quiet=True)  # type: ignore[arg-type]
    assert (found.interrupted, len(found.tasks), found.cursor) == (True, 2, ids[1])


def test_list_by_partition(cli: Cli, shop: Dibs) -> None:
    mine = shop.task_named("shop.send").using(per="ada").enqueue(to="ada").id
    enqueue(shop, "shop.send", to="bob")
    assert [task["id"] for task in cli("tasks", "list", "--partition", "ada", "--json").json["tasks"]] == [mine]


def test_edit_all_in_every_way(cli: Cli, shop: Dibs) -> None:
    (task,) = enqueue(shop, "shop.send", to="ada")
    options = ("--delay", "1h", "--deadline", "2h", "--expires", "3h", "--set-metadata", "a=1", "--priority", "low")
    assert cli("tasks", "edit", "--all", "--queue", "mail", *options, "--yes").out == "1 of 1 changed.\n"
    info = shop.tasks.get(task)
    assert (info.state, info.priority, info.metadata) == (State.SCHEDULED, 30, {"a": 1})
    assert info.deadline is not None
    assert info.expires_at is not None


# Errors that are alike.


def dead(message: str, *, traceback: str = "", task_id: str = "1") -> TaskInfo:
    error = Failure(type="MailError", message=message, traceback=traceback)
    return TaskInfo(
        id=task_id, name="send", queue="mail", state=State.DEAD, created_at=EPOCH, reason="exhausted", error=error
    )


def grouped(*infos: TaskInfo) -> list[ErrorGroup]:
    groups: dict[tuple[str, ...], ErrorGroup] = {}
    for info in infos:
        add_to(groups, info)
    return list(groups.values())


@pytest.mark.parametrize(
    ("one", "other", "masked"),
    [
        ("no to u50@x.org", "no to u51@y.example.org", "no to <email>"),
        ("timeout after 30 s", "timeout after 12.5 s", "timeout after <n> s"),
        ("no row 'ada'", 'no row "bob\'s"', "no row <text>"),
        (
            "order 0198c0de-0000-7000-8000-000000000000 gone",
            "order 0198C0DE-0000-7000-8000-00000000000F gone",
            "order <uuid> gone",
        ),
        ("at 0x7f3a", "at 0xdeadbeef", "at <hex>"),
        ("commit 3f2a9bc1d is bad", "commit 99aa11bb22cc is bad", "commit <hex> is bad"),
        ("10.0.0.1:5432 refused", "10.0.0.22:5433 refused", "<n> refused"),
    ],
)
def test_errors_that_differ_in_values_are_alike(one: str, other: str, masked: str) -> None:
    (group,) = grouped(dead(one), dead(other, task_id="2"))
    assert (group.count, group.error_message, group.message, group.example) == (2, masked, masked, "1")


def test_errors_that_differ_in_words_or_place_are_not_alike() -> None:
    assert len(grouped(dead("no such user"), dead("no such order"))) == 2
    here = 'Traceback (most recent call last):\n  File "/srv/app/mail.py", line 12, in send\n    raise X\nX: no\n'
    there = here.replace("12", "40")
    assert [group.place for group in grouped(dead("no", traceback=here), dead("no", traceback=there))] == [
        "mail.py:12",
        "mail.py:40",
    ]


def test_what_is_the_same_for_all_is_not_masked() -> None:
    (group,) = grouped(dead("no room in 'mail'\nat all"), dead("no room in 'mail'\nat all"))
    assert (group.error_message, group.message) == ("no room in <text>", "no room in 'mail'\nat all")


def test_a_long_message_is_whole_in_a_pipe(cli: Cli, shop: Dibs) -> None:
    enqueue(shop, "shop.send", to="ada")
    (claim,) = shop.claim(["mail"])
    shop.settle(claim, "permanent", error="x " * 300 + "end")
    assert f"Error: {'x ' * 300}end" in cli("dead", "list").out


# The audit log.


def test_the_audit_log(cli: Cli, shop: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("audit").out == "Nothing was changed by hand.\n"
    ids = enqueue(shop, "shop.send", 2, to="ada")
    monkeypatch.setenv("DIBS_ACTOR", "ada")
    cli("tasks", "edit", ids[0], "--priority", "5", "--delay", "1h")
    cli("queues", "set", "mail", "aging=5m", "rate=5")
    monkeypatch.setenv("DIBS_ACTOR", "bob")
    cli("tasks", "cancel", ids[1])
    text = cli("audit").out
    lines = text.splitlines()
    assert re.fullmatch(rf"20\d\d-\S+ \S+ \S+  bob  cancel  {ids[1]}", lines[0])
    assert "state: pending → cancelled" in lines[1]
    assert "aging: 10 min → 5 min" in text
    assert "rate: none → 5" in text
    assert re.search(r"priority: 70 → 5; due_at: none → 20\d\d-", text)
    assert cli("audit", "--actor", "ada").out.count("  ada  ") == 2
    assert cli("audit", "--act", "edit").out.count("  edit  ") == 1
    assert ids[0] in cli("audit", "--target", ids[0]).out
    assert cli("audit", "--since", "0").out == "No entry of the audit log matches.\n"
    first = cli("audit", "--limit", "1")
    assert first.err == f"More: --before {(number := cli('audit', '--limit', '1', '--json').json[0]['n'])}\n"
    assert cli("audit", "--before", str(number)).out == "".join(f"{line}\n" for line in lines[2:])
    entry = cli("audit", "--act", "edit", "--json").json[0]
    assert (entry["before"]["priority"], entry["after"]["priority"]) == (70, 5)


def test_the_audit_log_of_acts_on_all(cli: Cli, shop: Dibs) -> None:
    ids = enqueue(shop, "shop.send", 7, to="ada")
    cli("tasks", "cancel", *ids[:2])
    cli("tasks", "edit", "--all", "--queue", "mail", "--priority", "low", "--yes")
    text = cli("audit").out
    assert "edit matching" in text
    assert "priority: → 30" in text
    assert "queues mail" in text
    assert "5 of 5 tasks" in text
    assert "edit matching ended" in cli("audit", "--target", ids[4]).out
    cli("tasks", "cancel", "--all", "--queue", "mail", "--state", "pending", "--reason", "backlog", "--yes")
    text = cli("audit", "--act", "cancel matching").out
    assert "states pending, queues mail; reason: backlog" in text


# Chores.


def test_chores(cli: Cli, shop: Dibs) -> None:
    run, engine, now = shop.hub.runner.run, shop.hub.engine, time.time_ns() // 1000
    text = cli("chores").out
    assert fits(text), text
    assert re.search(r"prune_dead +never +– +0 +0 +nothing", text)
    run(do_chores(engine, now))
    text = cli("chores").out
    assert fits(text), text
    assert re.search(r"prune_dead +\S+ m?s ago +\S+ m?s +0 +0 +nothing", text)
    assert "late" not in text
    run(do_chores(engine, now + 1))
    data = {chore["name"]: chore for chore in cli("chores", "--json").json}
    assert (data["prune_dead"]["late"], data["prune_dead"]["more"]) == (False, False)


def test_late_chores(cli: Cli, shop: Dibs) -> None:
    run, engine, now = shop.hub.runner.run, shop.hub.engine, time.time_ns() // 1000
    shop.queues.set("mail", policy="tiers")
    new = [shop.task_named("shop.send").using(priority=10).call(to="ada").new for _ in range(2_500)]
    run(engine.enqueue(new, now=now - 2 * HOUR))
    run(do_chores(engine, now - HOUR, "rerank"))
    text = cli("chores").out
    assert re.search(r"rerank +60 min ago, late .* more +for 60 min", text)
    assert "rerank is late: promotions and deadlines take effect late.\n" in text
    assert fits(text), text


# On a terminal.


def test_a_terminal_gets_lines_that_fit(shop: Dibs) -> None:
    for number in range(2):
        enqueue(shop, "shop.send", to=f"u{number}@example.org")
    for number, claim in enumerate(shop.claim(["mail"], limit=2)):
        shop.settle(claim, "permanent", error=f"no to u{number}@x.org " + "because of the weather " * 10)
    (task,) = enqueue(shop, "shop.send", to="ada")
    text = on_a_terminal("dead", "list")
    assert fits(text), text
    assert "    Error: no to <email> because of the weather" in text
    assert text.splitlines()[1].endswith("…")
    for command in ("chores", "peek"):
        text = on_a_terminal(command, *(["mail"] if command == "peek" else []))
        assert fits(text), text
    assert task in text
