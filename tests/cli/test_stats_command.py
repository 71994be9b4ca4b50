"""`dibs stats`, and what `dibs top` says about rates."""

from __future__ import annotations

import re

import pytest
from cli_support import Cli, fits, on_a_terminal

from dibs import Dibs
from dibs.cli import top
from dibs.cli.top import Frame
from dibs.client.workers import WorkerInfo
from dibs.engines.figures import Minute
from dibs.engines.values import Beat

TIMEOUT = 20.0


def work_off(shop: Dibs) -> None:
    handles = [shop.task_named("shop.send").enqueue(to="ada") for _ in range(3)]
    handles.append(shop.task_named("shop.broken").enqueue(number=1))
    with shop.worker(queues=["mail"]):
        shop.wait(handles, TIMEOUT)


def test_figures_by_tier_task_error_and_time(cli: Cli, shop: Dibs) -> None:
    work_off(shop)
    shop.task_named("shop.send").enqueue(to="bob")
    text = cli("stats", "mail").out
    rows = [line.split() for line in text.splitlines()]
    assert ["shop.send", "1", "0", "4", "3", "0", "0"] in rows
    assert ["shop.broken", "0", "0", "1", "0", "1", "1"] in rows
    assert ["high", "1", "0", "4", "3", "0", "0"] in [row[:7] for row in rows]
    assert ["ValueError", "1"] in rows
    assert "5 enqueued, 4 claimed, 3 completions, 1 failures" in text
    assert sum(int(row[2]) for row in rows if len(row) > 3 and row[1][2:3] == ":") == 3


def test_it_fits_eighty_columns(cli: Cli, shop: Dibs) -> None:
    @shop.task(name="a.module.with_a_long_name.and_a_task_with_one")
    def long() -> None: ...

    long.enqueue()
    text = on_a_terminal("stats")
    assert fits(text), text
    assert re.search(r"^…\w+\.and_a_task_with_one ", text, re.MULTILINE)
    assert " a.module.with_a_long_name.and_a_task_with_one " in f" {cli('stats').out.replace(chr(10), ' ')}"


def test_for_scripts(cli: Cli, shop: Dibs) -> None:
    work_off(shop)
    found = cli("stats", "mail", "--since", "10m", "--resolution", "5m", "--json").json
    assert (found["queue"], found["resolution"]) == ("mail", 300.0)
    assert sum(point["completed"] for point in found["series"]) == 3
    assert 2 <= len(found["series"]) <= 3
    assert found["stats"]["counters"]["completions"] == 3
    assert found["stats"]["errors"] == {"ValueError": 1}


def test_a_long_time_is_shown_in_few_lines(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail")
    assert len(cli("stats", "--since", "7d", "--json").json["series"]) <= 25
    assert len(cli("stats", "--since", "6h", "--until", "5h", "--json").json["series"]) <= 25


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), ["no queue is called 'nowhere'"]),
        (("--since", "30d"), ["7 days"]),
        (("--since", "1h", "--until", "2h"), ["before"]),
        (("--since", "7d", "--resolution", "1m"), ["points"]),
        (("--resolution", "90s"), ["whole minutes"]),
    ],
)
def test_wrong_questions(cli: Cli, shop: Dibs, arguments: tuple[str, ...], words: list[str]) -> None:
    shop.queues.set("mail")
    answer = cli("stats", *arguments)
    answer.refused(answer.code, *words)
    assert answer.code != 0


# top.


def test_rates_between_two_frames_are_counted(shop: Dibs) -> None:
    """What has ended between them is there at once, whenever workers report their minutes."""
    first = Frame(shop)
    send = shop.task_named("shop.send")
    for _ in range(30):
        send.enqueue(to="ada")
    for claim in shop.claim(["mail"], limit=30):
        shop.settle(claim, "completed")
    later = Frame(shop)
    first.at, later.at = 100.0, 110.0
    assert top.pace_text(later, first) == "last 10.0 s: 3.0/s completed, 0.0% of attempts failed"
    assert top.rate(later, first, "mail") == "3"
    assert top.rate(later, first, "other") == "0"


def test_few_completions_are_not_none(shop: Dibs) -> None:
    frame = Frame(shop)
    assert "0/s completed" in top.pace_text(frame, None)
    minute = Minute(minute=shop.hub.clock.now() // 60_000_000, worker="w", queue="mail", tier="low", completed=2)
    said = Beat(id="w", host="h", pid=1, version="1", queues=("mail",), names=None, minutes=[minute])
    shop.hub.runner.run(shop.hub.engine.beat(said))
    assert "2.0/min completed" in top.pace_text(Frame(shop), None)


def test_prefetched_tasks_are_told_apart(shop: Dibs) -> None:
    frame = Frame(shop)
    info = {"host": "h", "pid": 1, "version": "1", "queues": (), "names": None, "capabilities": ()}
    worker = WorkerInfo(
        id="w",
        state="active",  # type: ignore[arg-type]
        concurrency=4,
        running=4,
        buffered=1,
        started_at=None,
        seen_at=None,
        **info,  # type: ignore[arg-type]
    )
    frame.workers = [worker]
    assert "4 of 4 slots busy, 1 prefetched" in top.heading(frame, None).plain
