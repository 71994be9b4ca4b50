"""`dibs simulate`: what it prints, draws and refuses."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from cli_support import Cli

from dibs import Dibs

FEW = ("simulate", "--tasks", "2000")
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "simulate.md"
SHOWN = re.compile(r"^```sh\n(dibs simulate .*?)```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_one_run(cli: Cli) -> None:
    answer = cli(*FEW, "--tenants", "3", "--fair", "aging=1m", "--workers", "2", "--concurrency", "4")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith("2,000 tasks within 4 min (made up, steady, 8 per second, seed 0)")
    assert "2 workers × 4 = 8 slots; settings: aging=1m fair=true" in lines
    first = [line.split()[0] for line in lines if line]
    for word in ("utilisation", "critical", "normal", "low", "all", "tenant-1", "OVERTAKEN", "backlog"):
        assert word in first


def test_the_same_as_json(cli: Cli) -> None:
    data = cli(*FEW, "--mix", "low:1,95:1", "--json", "policy=tiers", "promote_low=5s").json
    assert (data["arrivals"]["tasks"], data["recommended"]) == (2000, None)
    (case,) = data["cases"]
    assert (case["workers"], case["concurrency"]) == (1, 10)
    assert (case["settings"]["policy"], case["settings"]["promote_low"]) == ("tiers", 5)
    report = case["report"]
    assert set(report["by_priority"]) == {"low", "95"}
    assert report["wait"]["tasks"] == 2000
    assert {(each["priority"], each["by"]) for each in report["overtaking"]} <= {(30, 95)}
    again = cli(*FEW, "--mix", "low:1,95:1", "--json", "policy=tiers", "promote_low=5s").json
    assert again == data


def test_how_many_workers(cli: Cli) -> None:
    asked = (*FEW, "--rate", "30", "--sweep", "workers=1..5", "--target", "critical:p95<50ms", "--target", "all:p99<1m")
    out = cli(*asked).out
    assert "workers=4 is the first to meet every target: the P95 wait of critical is" in out
    assert "With workers=3 the P95 wait of critical is" in out
    data = cli(*asked, "--json").json
    assert data["recommended"] == "workers=4"
    met = [all(target["met"] for target in case["targets"]) for case in data["cases"]]
    assert met == [False, False, False, True, True]


def test_which_ageing(cli: Cli) -> None:
    asked = (*FEW, "--rate", "12", "--sweep", "aging=100ms,1s,10m", "--target", "critical:p99<1s", "--json")
    data = cli(*asked).json
    assert [case["settings"]["aging"] for case in data["cases"]] == [0.1, 1, 600]
    assert data["recommended"] == "aging=1s"


def test_two_sweeps_make_every_combination(cli: Cli) -> None:
    data = cli(*FEW, "--sweep", "policy=strict,aging", "--sweep", "concurrency=5,10", "--json").json
    assert [case["case"] for case in data["cases"]] == [
        "policy=strict concurrency=5",
        "policy=strict concurrency=10",
        "policy=aging concurrency=5",
        "policy=aging concurrency=10",
    ]


def test_no_value_is_good_enough(cli: Cli) -> None:
    out = cli(*FEW, "--sweep", "workers=1,2", "--rate", "50", "--target", "low:max<1ms").out
    assert "None meets every target: with workers=2 the longest wait of low is" in out
    one = cli(*FEW, "--rate", "50", "--target", "low:max<1ms", "--target", "critical:p50<1h").out
    assert "MISSED  the longest wait of low is" in one
    assert "met     the P50 wait of critical is" in one


def test_limits_as_in_queues_set(cli: Cli) -> None:
    limits = ("--per-task", "send=2", "--per-task", "send:rate=3", "--per-partition", "1", "--weight", "tenant-1=2")
    names = ("--names", "send:1,report:2", "--partitions", "4", "--tenants", "2")
    data = cli(*FEW, *names, *limits, "--fair", "--json").json
    settings = data["cases"][0]["settings"]
    assert settings["per_task"] == {"send": {"max_concurrent": 2, "rate": 3}}
    assert (settings["per_partition"], settings["fair"]) == ({"max_concurrent": 1}, True)
    assert settings["weights"] == {"tenant-1": 2}
    assert {turn["tenant"] for turn in data["cases"][0]["report"]["turns"]} == {"tenant-1", "tenant-2"}


def test_a_pattern_that_is_not_seen_is_mentioned(cli: Cli) -> None:
    assert "less than one period of 24.0 h" in cli(*FEW, "--pattern", "daily").out
    assert "less than one period" not in cli(*FEW, "--pattern", "daily", "--period", "2m").out


def test_the_guide_shows_what_is_printed(cli: Cli) -> None:
    examples = SHOWN.findall(GUIDE.read_text())
    assert len(examples) == 4
    for command, shown in examples:
        assert cli(*shlex.split(command.replace("\\\n", " "))[1:]).out == shown


@pytest.mark.parametrize("extra", [("--tenants", "3"), ("--sweep", "workers=1,2")], ids=["one run", "a sweep"])
def test_a_picture(cli: Cli, place: Path, extra: tuple[str, ...]) -> None:
    answer = cli(*FEW, *extra, "--svg", "out.svg")
    assert answer.err == "Drawn into out.svg.\n"
    root = ET.parse(place / "out.svg").getroot()
    space = {"svg": "http://www.w3.org/2000/svg"}
    words = [each.text for each in root.iterfind("svg:text", space)]
    assert {"critical", "normal", "low", "P95"} <= set(words)
    width, height = (float(root.get("viewBox", "").split()[place]) for place in (2, 3))
    dots = root.findall("svg:circle", space)
    assert len(dots) > 9
    assert all(0 < float(dot.get("cx", 0)) < width and 0 < float(dot.get("cy", 0)) < height for dot in dots)


def test_from_a_queue(cli: Cli, shop: Dibs) -> None:
    send = shop.task_named("shop.send")
    handles = [send.using(priority="low" if number % 2 else "critical").enqueue(to="ada") for number in range(20)]
    shop.queues.set("mail", aging=30)
    with shop.worker(concurrency=2):
        shop.wait(handles, timeout=30)
    data = cli("simulate", "--from-queue", "mail", "--concurrency", "2", "--json", "max_concurrent=1").json
    assert (data["arrivals"]["tasks"], data["arrivals"]["recorded_wait"]["tasks"]) == (20, 20)
    case = data["cases"][0]
    assert (case["settings"]["aging"], case["settings"]["max_concurrent"]) == (30, 1)
    assert {who: waits["tasks"] for who, waits in case["report"]["by_priority"].items()} == {"critical": 10, "low": 10}
    assert case["report"]["wait"]["max"] > 0

    faster = cli("simulate", "--from-queue", "mail", "--load", "2", "--tasks", "7", "--json").json
    assert faster["arrivals"]["tasks"] == 7
    out = cli("simulate", "--from-queue", "mail").out
    assert "(recorded from queue 'mail')" in out
    assert "They really waited: P50" in out


def test_from_a_queue_without_completed_tasks(cli: Cli, shop: Dibs) -> None:
    shop.queues.set("mail", aging=30)
    cli("simulate", "--from-queue", "mail").refused(6, "'mail'", "no completed tasks")
    cli("simulate", "--from-queue", "mial").refused(6, "'mial'")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tasks", "0"], ["--tasks", "10,000,000"]),
        (["--rate", "0"], ["--rate"]),
        (["--mix", "urgent:3"], ["'urgent'", "critical"]),
        (["--mix", "low:x"], ["--mix", "'low:x'"]),
        (["--mix", "low:0"], ["--mix", "above 0"]),
        (["--duration", "0"], ["--duration"]),
        (["--workers", "0"], ["--workers"]),
        (["agging=3"], ["'agging'", "'aging'"]),
        (["--sweep", "workers=x"], ["--workers"]),
        (["--sweep", "workers=5..1"], ["5..1"]),
        (["--sweep", "aging=soon"], ["aging", "'soon'"]),
        (["--sweep", "workers=1..20", "--sweep", "concurrency=1..20"], ["400 runs"]),
        (["--target", "critical"], ["not a target"]),
        (["--target", "critical:p95<soon"], ["--target", "'soon'"]),
        (["--load", "2"], ["--load", "--from-queue"]),
        (["--from-queue", "mail", "--rate", "3", "--mix", "low"], ["--rate", "--mix"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_can_not_be_is_refused(cli: Cli, arguments: list[str], words: list[str]) -> None:
    cli("simulate", *arguments).refused(2, *words)
