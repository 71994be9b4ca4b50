"""`dibs worker` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_support import PATIENCE, Cli, finish, start

from dibs import Dibs, Filter
from dibs.cli.worker import own_command


def test_until_idle(place: Path, shop: Dibs) -> None:
    handle = shop.task_named("shop.send").enqueue(to="ada")
    answer = finish(start("worker", "shop:app", "--until-idle", "--name", "w1"))
    assert answer.code == 0, answer.err
    info = handle.refresh()
    assert (info.state, info.result, info.worker) == ("completed", "Hi to ada", "w1")


def test_sigterm_finishes_what_runs_and_the_exit_code_tells(place: Path, shop: Dibs) -> None:
    handle = shop.task_named("shop.steps").enqueue(count=30)
    process = start("worker", "shop:app", "--json-logs")
    wait_until_started(shop, process)
    process.send_signal(signal.SIGTERM)
    answer = finish(process)
    assert (answer.code, handle.refresh().state) == (0, "completed")
    lines = [json.loads(line) for line in answer.err.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])


def test_work_that_is_handed_back_shows_in_the_exit_code(place: Path, shop: Dibs) -> None:
    handle = shop.task_named("shop.endless").enqueue()
    process = start("worker", "shop:app", "--shutdown-timeout", "0")
    wait_until_started(shop, process)
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 3
    assert handle.refresh().state == "pending"


def wait_until_started(shop: Dibs, process: subprocess.Popen[str]) -> None:
    """Until a task has said so itself: one that is claimed may not have started yet, and would be handed back."""
    until = time.monotonic() + PATIENCE
    while not any(info.progress is not None for info in shop.tasks.search(Filter(state="running")).tasks):
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            pytest.fail(finish(process).err)
        time.sleep(0.01)


def test_several_processes(place: Path, shop: Dibs) -> None:
    handles = [shop.task_named("shop.send").enqueue(to=str(number)) for number in range(50)]
    answer = finish(start("worker", "shop:app", "--processes", "2", "--until-idle", "--queues", "mail"))
    assert answer.code == 0, answer.err
    assert {handle.refresh().state for handle in handles} == {"completed"}


def test_the_command_for_children_leaves_out_what_is_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["dibs", "worker", "a:b", "--processes", "3", "--queues", "x"])
    assert own_command(("--processes",))[1:] == ["-m", "dibs", "worker", "a:b", "--queues", "x"]
    monkeypatch.setattr("sys.argv", ["dibs", "worker", "a:b", "--processes=3", "--reload"])
    assert own_command(("--processes",))[3:] == ["worker", "a:b", "--reload"]
    assert own_command(("--reload",))[3:] == ["worker", "a:b", "--processes=3"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--reserve", "80"], ["PRIORITY:SLOTS"]),
        (["--reserve", "80:10"], ["reserve"]),
        (["--concurrency", "0"], ["concurrency"]),
        (["--processes", "2", "--name", "x"], ["--name"]),
        (["--processes", "0"], ["--processes"]),
        (["--queues", "a b"], ["queue"]),
        (["--log-level", "loud"], ["loud"]),
    ],
)
def test_wrong_usage(cli: Cli, options: list[str], words: list[str]) -> None:
    cli("worker", "shop:app", *options).refused(2, *words)
