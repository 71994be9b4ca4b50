"""An id may be given by its beginning or its end, in every place that takes one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import click
import pytest
from cli_support import Cli
from test_every_door import COMMANDS
from test_tasks import enqueue

from dibs import Dibs, Filter
from dibs.cli import ids
from dibs.cli.ids import above
from dibs.cli.kinds import Kind
from servers import redis as redis_servers
from servers.postgres import new_url

ENDS = ("11111111", "22222222", "22223333")


def made(shop: Dibs, place: int, end: str) -> str:
    """A task with an id of our choice."""
    send = shop.task_named("shop.send").using(id=f"0198c0de-000{place}-7000-8000-0000{end}")
    return send.enqueue(to="ada").id


@pytest.fixture
def three(shop: Dibs) -> list[str]:
    return [made(shop, place, end) for place, end in enumerate(ENDS, 1)]


def shown(cli: Cli, part: str) -> str:
    return str(cli("tasks", "show", part, "--json").json["task"]["id"])


def test_by_beginning_and_by_end(cli: Cli, three: list[str]) -> None:
    for whole in three:
        for part in (whole[:13], whole[:11] + whole[11:13], whole[-8:], f"…{whole[-9:]}", whole[-20:]):
            assert shown(cli, part) == whole, part
        assert shown(cli, whole.replace("-", "")[:12]) == whole


STORES: dict[str, Callable[[Path], str]] = {
    "postgres": lambda place: new_url(),
    "redis": lambda place: f"{redis_servers.server().url}?prefix={place.name}",
    "shards": lambda place: f"{redis_servers.server().url}?prefix={place.name}s&shard=queue",
}


@pytest.mark.parametrize("kind", STORES)
def test_in_every_store(cli: Cli, place: Path, kind: str) -> None:
    url = STORES[kind](place)
    with Dibs(url) as app:

        @app.task(name="shop.send")
        def send(to: str) -> None: ...

        found = [
            send.using(queue=f"q{number}", id=f"0198c0de-000{number}-7000-8000-0000{end}").enqueue("ada").id
            for number, end in enumerate(ENDS, 1)
        ]
    for whole in found:
        for part in (whole[:13], whole[-8:]):
            assert cli("tasks", "show", part, "--json", "--url", url).json["task"]["id"] == whole
    cli("tasks", "show", "0198c0de", "--url", url).refused(2, *found)


def test_several_are_listed(cli: Cli, three: list[str]) -> None:
    cli("tasks", "show", "0198c0de").refused(2, "'0198c0de' is part of several tasks' ids", *three)
    cli("tasks", "cancel", "22222222", "0198c0de-000").refused(2, *three)


def test_none_is_said(cli: Cli, three: list[str]) -> None:
    cli("tasks", "show", "ffff").refused(6, "no task's id begins or ends with 'ffff'")
    cli("tasks", "show", "odd").refused(6, "no task has the id odd")
    cli("tasks", "show", "abc").refused(6, "no task has the id abc")
    cli("tasks", "show", "--", "----").refused(6, "----")


def test_a_walk_has_an_end(cli: Cli, shop: Dibs, three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an id is looked for among the newest, then among the newest that are unfinished or dead."""
    monkeypatch.setattr(ids, "WALK", 2)
    monkeypatch.setattr(ids, "PAGE_LIMIT", 1)
    assert shown(cli, three[2][-8:]) == three[2]
    cli("tasks", "show", three[0][-8:]).refused(6, "none of the newest 2 ends with it", "its beginning")
    assert shown(cli, three[0][:13]) == three[0]
    shop.tasks.cancel(three[1])
    shop.tasks.cancel(three[2])
    assert shown(cli, three[0][-8:]) == three[0]


def test_ranges_of_ids() -> None:
    assert above("0198c0de") == "0198c0df-0000-0000-0000-000000000000"
    assert above("ffff") is None
    assert above("0198ffff") == "01990000-0000-0000-0000-000000000000"


def test_acts_say_which_task_it_was(cli: Cli, three: list[str]) -> None:
    assert cli("tasks", "cancel", "11111111", "22222222").out == f"{three[0]} cancelled\n{three[1]} cancelled\n"
    assert cli("why", "…22223333").code == 0
    assert three[0] in cli("audit", "--target", "11111111").out
    assert cli("audit", "--target", "feedfeed").out == "No entry of the audit log matches.\n"


def test_a_schedule_may_look_like_an_id(cli: Cli, shop: Dibs) -> None:
    shop.schedules.set("feed", shop.task_named("shop.send"), every=60, kwargs={"to": "ada"})
    assert "Schedule 'feed'" in cli("why", "feed").out


def test_after(cli: Cli, shop: Dibs, three: list[str]) -> None:
    follower = cli("enqueue", "shop.send", "to=bob", "--queue", "mail", "--after", "11111111").out.strip()
    assert [need.id for need in shop.tasks.needs(follower)] == three[:1]


def test_workflows(cli: Cli, shop: Dibs) -> None:
    send = shop.task_named("shop.send")
    flows = [shop.enqueue_workflow(send.call(to="ada"), "x").id for _ in range(2)]
    for flow in flows:
        assert cli("workflows", "show", flow[-8:], "--json").json["id"] == flow
        assert len(cli("tasks", "list", "--workflow", f"…{flow[-8:]}", "--json").json["tasks"]) == 1
    cli("workflows", "show", "ffffffff").refused(6, "ffffffff")


def test_steps(cli: Cli, shop: Dibs) -> None:
    enqueue(shop, "shop.send", 3, to="ada")
    shop.tasks.cancel_matching(Filter(queue="mail"), wait=False)
    (step,) = shop.steps.list()
    assert cli("steps", "wait", step.id[-8:]).out == "cancel: 3 of 3 changed.\n"


def test_workers(cli: Cli, shop: Dibs) -> None:
    enqueue(shop, "shop.send", to="ada")
    with shop.worker(name="a-host.example.org-12345-ab12cd") as worker:
        assert cli("workers", "pause", "…ab12cd").out == f"Worker {worker.id} was told to pause.\n"
        assert cli("workers", "resume", "a-host", "--json").json["worker"] == worker.id
    cli("workers", "pause", "nobody-at-all").refused(6, "nobody-at-all")


IDS = {"ID", "[ID]...", "ID...", "STEP", "WORKER", "WORKFLOW", "TARGET"}
WHOLE = {("enqueue", "id"), ("workflows list", "before")}
"""The new id of a task, and a place in a listing, as it was printed."""


def test_every_place_that_takes_an_id_takes_a_part_of_one() -> None:
    seen = count()
    for name, command in COMMANDS.items():
        for param in command.params:
            takes_id = param.metavar in IDS or (name, param.name) in WHOLE
            if takes_id and (name, param.name) not in WHOLE:
                assert isinstance(param.type, Kind), (name, param.name)
                assert param.type.whole is not None, (name, param.name)
                next(seen)
    assert next(seen) > 20
    assert isinstance(COMMANDS["tasks show"], click.Command)
