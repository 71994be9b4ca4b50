"""`dibs worker` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_support import PATIENCE, SHOP, Cli, finish, start

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


OWN_LOGGING = """
import logging
logging.basicConfig(format="own %(levelname)s %(message)s", level="INFO")
"""
NOISY = """
import logging

@app.task(queue="noisy")
def hello() -> None:
    logging.getLogger("shop.words").info("hello", extra={"price": 3})

@app.task(queue="noisy", executor="process")
def hello_from_a_child() -> None:
    logging.getLogger("shop.words").info("hello", extra={"price": 3})
"""


def test_json_logs_of_a_worker_and_its_children_say_which_task(place: Path, shop: Dibs) -> None:
    (place / "shop.py").write_text(SHOP + NOISY)
    ids = {run_enqueue(name) for name in ("hello", "hello_from_a_child")}
    answer = finish(start("worker", "shop:app", "--json-logs", "--until-idle"))
    lines = [json.loads(line) for line in answer.err.splitlines()]
    hellos = [line for line in lines if line["message"] == "hello"]
    assert {line["task_id"] for line in hellos} == ids
    assert {(line["logger"], line["queue"], line["attempt"], line["price"]) for line in hellos} == {
        ("shop.words", "noisy", 1, 3)
    }


def test_text_logs_of_a_worker_and_its_children_say_which_task(place: Path, shop: Dibs) -> None:
    (place / "shop.py").write_text(SHOP + NOISY)
    ids = [run_enqueue(name) for name in ("hello", "hello_from_a_child")]
    answer = finish(start("worker", "shop:app", "--until-idle"))
    for task_id, name in zip(ids, ("hello", "hello_from_a_child"), strict=True):
        assert f"INFO    shop.words: hello [shop.{name} {task_id}, attempt 1]" in answer.err


def run_enqueue(name: str) -> str:
    answer = finish(start("enqueue", name, "--app", "shop:app"))
    assert answer.code == 0, answer.err
    return answer.out.strip()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "own INFO shop:app configures logging itself; Dibs adds only the facts of the running task."),
        (("--log-level", "debug"), "own WARNING shop:app configures logging itself, so --log-level is not applied."),
        (
            ("--json-logs", "--log-level=info"),
            "own WARNING shop:app configures logging itself, so --log-level and --json-logs are not applied.",
        ),
        (
            ("--json-logs", "--processes=2"),
            "own WARNING shop:app configures logging itself, so --json-logs is not applied.",
        ),
    ],
)
def test_an_app_that_configures_logging_itself(place: Path, shop: Dibs, options: tuple[str, ...], line: str) -> None:
    (place / "shop.py").write_text(OWN_LOGGING + SHOP)
    answer = finish(start("worker", "shop:app", "--until-idle", *options))
    lines = answer.err.splitlines()
    assert line in lines
    assert {each[:4] for each in lines} == {"own "}


DISABLES = """
import logging.config
logging.config.dictConfig({
    "version": 1,
    "formatters": {"lines": {"()": "dibs.observe.logs.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
})
"""


def test_an_app_that_disables_all_loggers_does_not_silence_the_worker(place: Path, shop: Dibs) -> None:
    (place / "shop.py").write_text(DISABLES + SHOP)
    shop.task_named("shop.broken").enqueue(number=1)
    answer = finish(start("worker", "shop:app", "--until-idle"))
    assert '"level":"error"' in answer.err


def test_a_first_signal_says_what_a_second_does(place: Path, shop: Dibs) -> None:
    shop.task_named("shop.steps").enqueue(count=10)
    process = start("worker", "shop:app")
    wait_until_started(shop, process)
    process.send_signal(signal.SIGINT)
    assert "Got SIGINT. A second one hands running tasks back at once." in finish(process).err


def test_the_lease_can_be_given(place: Path, shop: Dibs) -> None:
    handle = shop.task_named("shop.endless").enqueue()
    process = start("worker", "shop:app", "--lease", "2m", "--no-prefetch", "--shutdown-timeout", "0")
    wait_until_started(shop, process)
    info = handle.refresh()
    assert info.lease_expires_at is not None
    assert info.started_at is not None
    assert (info.lease_expires_at - info.started_at).total_seconds() >= 120
    process.send_signal(signal.SIGINT)
    finish(process)
