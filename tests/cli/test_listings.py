"""Listings fit a terminal of 80 columns, and are whole in a pipe."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from cli_support import WIDTH, Cli, fits, on_a_terminal
from rich.console import Console
from rich.text import Text
from test_tasks import enqueue, work

from dibs import Dibs
from dibs.cli.queues import expendable
from dibs.client.workers import WorkerInfo
from dibs.core.states import State
from dibs.terminal import Listing, table, unique_end, wrap

LONG = "a.module.with_a_long_name.and_a_task_with_one_that_is_longer"
IDS = ("01a1e471-087e-7c00-aaaa-0123456789ab", "01a1e471-087e-7c00-aaaa-0123456779ab")


def printed(made: Listing, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(made)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def tasks() -> Listing:
    made = table(
        *("ID", "STATE", "PRI", "TASK", "NOTE"),
        right=["PRI"],
        ids=["ID"],
        short={"TASK": 10, "NOTE": 10},
        leave=["PRI", "TASK"],
    )
    for each in IDS:
        made.add_row(each, Text("pending"), "50", "shop.mail.send_receipt", "the weather is bad")
    return made


@pytest.mark.parametrize(
    ("width", "heading", "line"),
    [
        (120, "ID STATE PRI TASK NOTE", f"{IDS[0]} pending 50 shop.mail.send_receipt the weather is bad"),
        (75, "ID STATE PRI TASK NOTE", f"{IDS[0]} pending 50 …d_receipt the weathe…"),
        (60, "ID STATE PRI TASK NOTE", "…456789ab pending 50 …il.send_receipt the weather is b…"),
        (45, "ID STATE TASK NOTE …", "…456789ab pending …d_receipt the weath…"),
        (36, "ID STATE NOTE …", "…456789ab pending the weather …"),
    ],
)
def test_what_gives_way(width: int, heading: str, line: str) -> None:
    """Texts get shorter, ids are shown by their ends, then columns leave; nothing is cut without an ellipsis."""
    lines = printed(tasks(), width)
    assert [" ".join(each.split()) for each in lines[:2]] == [heading, line]
    assert max(map(len, lines)) <= width


def test_ends_tell_ids_apart() -> None:
    assert unique_end(set(IDS)) == 8
    assert unique_end({"1-0123456789", "2-0123456789"}) == 12
    assert unique_end({"w1", "eu-w1"}) == 5
    assert unique_end(set()) == 0


def test_long_lines_go_on_at_a_blank() -> None:
    def lines(text: str) -> list[str]:
        file = io.StringIO()
        wrap(Console(file=file, width=20, force_terminal=True, color_system=None), text, 4)
        return [line.rstrip() for line in file.getvalue().splitlines()]

    assert lines("of the weather which is bad today") == ["of the weather", "    which is bad", "    today"]
    assert lines("one\n\ntwo") == ["one", "", "two"]
    secret = "x" * 30
    assert lines(f"the token {secret} is") == ["the token", f"    {secret}", "    is"], "it can be copied"
    assert lines("") == [""]


def fill(shop: Dibs, place: Path) -> str:
    """Something with a long name in every listing; the id of a task."""

    @shop.task(name=LONG, queue="a_queue_with_a_long_name")
    def long(text: str = "x" * 300) -> None: ...

    enqueue(shop, "shop.broken", 3, number=1)
    enqueue(shop, "shop.refused")
    work(shop)
    for name in ("mail", "a_queue_with_a_long_name"):
        shop.queues.set(name, aging=60, per_task={"shop.send": 1})
    task = long.using(delay=3600).enqueue("ada").id
    shop.task_named("shop.send").using(after=[task], priority="critical").enqueue(to="ada")
    shop.task_named("shop.send").enqueue(to="ada")
    shop.schedules.set("a_schedule_with_a_long_name", long, cron="30 2 * * mon-fri", tz="Europe/Zurich")
    shop.enqueue_workflow(long.call("bob"), "a_workflow_with_a_long_name")
    shop.tasks.edit_matching(shop_filter(), priority=20, wait=False)
    return task


def shop_filter() -> object:
    from dibs import Filter

    return Filter(queue="mail", state="pending")


COMMANDS = (
    "tasks list", "dead list", "queues list", "queues show a_queue_with_a_long_name", "peek mail", "schedules list",
    "schedules show a_schedule_with_a_long_name", "workflows list", "steps list", "audit", "chores", "stats",
    "top --once", "tokens list", "doctor", "workers list --all", "simulate --tasks 500 --tenants 3",
    "simulate --tasks 500 --sweep workers=1..2 --sweep concurrency=5,10 --target critical:p95<30s",
    "bench memory:// --tasks 100 --samples 10",
)  # fmt: skip


@pytest.fixture
def full(shop: Dibs, place: Path, cli: Cli) -> str:
    scopes = "produce,consume,read,operate,admin,payloads"
    cli("tokens", "create", "a-token-with-a-long-name", "--scope", scopes, "--queue", "mail,web,reports,slow")
    return fill(shop, place)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_listing_fits(full: str, command: str) -> None:
    text = on_a_terminal(*command.split())
    assert fits(text), text


def test_a_task_is_shown_whole(full: str) -> None:
    assert full in on_a_terminal("tasks", "show", full)


def test_ids_in_a_listing_lead_to_their_tasks(full: str, cli: Cli) -> None:
    heading, *lines = on_a_terminal("tasks", "list").splitlines()
    assert heading.split()[:2] == ["ID", "STATE"]
    assert heading.split()[-1] in ("NOTE", "…")
    shown = [line.split()[0] for line in lines]
    assert f"…{full[-8:]}" in shown
    found = [cli("tasks", "show", each, "--json").json["task"]["id"] for each in shown]
    assert found == [task["id"] for task in cli("tasks", "list", "--json").json["tasks"]]


def test_a_pipe_gets_all(full: str, cli: Cli) -> None:
    for command in COMMANDS:
        if not command.startswith(("simulate", "bench", "top")):
            assert "…" not in cli(*command.split()).out, command
    text = cli("tasks", "list").out
    assert full in text
    assert LONG in text
    assert "produce, consume, read, operate, admin, payloads" in cli("tokens", "list").out


def test_a_long_note_is_whole_in_a_pipe(shop: Dibs, cli: Cli) -> None:
    enqueue(shop, "shop.send", to="ada")
    (claim,) = shop.claim(["mail"])
    shop.settle(claim, "permanent", error="x " * 300 + "end")
    assert f"permanent: Error: {'x ' * 300}end\n" in cli("tasks", "list").out
    assert fits(text := on_a_terminal("tasks", "list")), text


def test_workers_are_shown_by_their_ends() -> None:
    from datetime import UTC, datetime

    from dibs.cli.workers import worker_table
    from dibs.core.task import WorkerState

    now = datetime.now(UTC)
    info = WorkerInfo(
        id="ip-10-0-12-34.eu-west-1.compute.internal-12345-ab12cd",
        state=WorkerState.ACTIVE,
        queues=("mail", "reports", "thumbnails"),
        capabilities=("gpu", "large-memory"),
        concurrency=10,
        running=3,
        buffered=0,
        names=None,
        pid=12345,
        host="ip-10-0-12-34.eu-west-1.compute.internal",
        started_at=now,
        seen_at=now,
        version="0.1.0",
    )
    lines = printed(worker_table([info]), WIDTH)
    assert max(map(len, lines)) <= WIDTH
    assert lines[1].startswith("…5-ab12cd  active")


def test_empty_states_leave_first() -> None:
    counts = [dict.fromkeys(State, 0) | {State.CANCELLED: 3}, {State.SCHEDULED: 1}]
    assert expendable(counts) == ["COMPLETED", "BLOCKED", "RETRYING", "CANCELLED", "SCHEDULED", "RUNNING"]
