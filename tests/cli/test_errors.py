"""Errors are one plain sentence with a documented exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import Cli, finish, on_a_terminal, start

from dibs import Dibs
from dibs.cli.codes import ExitCode
from dibs.worker import ExitCode as WorkerExitCode


def test_exit_codes_agree_with_the_worker() -> None:
    ours = {code.value: code.name for code in ExitCode}
    named = {"CLEAN": "OK"}
    assert {code.value: named.get(code.name, code.name) for code in WorkerExitCode}.items() <= ours.items()


def test_no_store_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.delenv("DIBS_URL")
    cli("tasks", "list").refused(2, "--url", "DIBS_URL")
    assert not (place / "dibs.db").exists(), "looking makes nothing"


def test_a_foreign_file(cli: Cli, place: Path) -> None:
    (place / "notes.txt").write_text("not a database, " * 100)
    cli("queues", "list", "--url", f"sqlite:///{place}/notes.txt").refused(1, "notes.txt")


def test_a_directory_that_is_not_there(cli: Cli, place: Path) -> None:
    cli("queues", "list", "--url", f"sqlite:///{place}/nowhere/x.db").refused(1, "nowhere")


@pytest.mark.parametrize(
    ("content", "spec", "code", "words"),
    [
        ("import nothing_of_the_sort\n", "other:app", 1, ["other", "nothing_of_the_sort", "line 1"]),
        ("x = 1 / 0\n", "other:app", 1, ["ZeroDivisionError", "other.py, line 1"]),
        ("x = (\n", "other:app", 1, ["other", "SyntaxError"]),
        ("import sys\nsys.exit(3)\n", "other:app", 1, ["SystemExit"]),
        ("from dibs import Dibs\nx = Dibs('nosuch://')\n", "other:app", 1, ["InvalidOption", "nosuch"]),
        ("app = 7\n", "other:app", 2, ["is an int, not a Dibs app"]),
        ("from dibs import Dibs\nqueue = Dibs('memory://')\n", "other:quee", 2, ["'quee'", "'queue'"]),
        ("", "other", 2, ["no Dibs app"]),
        ("from dibs import Dibs\na = Dibs()\nb = Dibs()\n", "other", 2, ["other:a, other:b"]),
        ("", "nowhere:app", 2, ["'nowhere'"]),
        ("", "other.py:app", 2, ["MODULE:APP"]),
    ],
)
def test_an_app_that_can_not_be_loaded(
    cli: Cli, place: Path, content: str, spec: str, code: int, words: list[str]
) -> None:
    (place / "other.py").write_text(content)
    for command in (["worker", spec], ["tasks", "list", "--app", spec]):
        cli(*command).refused(code, *words)


def test_the_only_app_of_a_module_needs_no_name(cli: Cli) -> None:
    assert cli("queues", "list", "--app", "shop").code == 0


def test_unexpected_errors_have_no_traceback_unless_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("dibs.cli.why.emit", broken)
    monkeypatch.setattr("dibs.cli.queues.emit", broken)
    answer = cli("queues", "list", "--json")
    answer.refused(1, "Unexpected KeyError: 'surprise'", "--traceback")
    with pytest.raises(KeyError):
        cli("--traceback", "queues", "list", "--json")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["tasks", "list", "--since", "99999999d"], ["'99999999d' is more than a hundred years", "--since"]),
        (["tasks", "list", "--before", f"{'9' * 400}d"], ["is more than a hundred years"]),
        (["tasks", "list", "--min-priority", "²"], ["priority '²' is not known"]),
        (["tasks", "list", "--cursor", "odd"], ["cursor must be one that an earlier page gave, not 'odd'"]),
        (["tasks", "list", "--limit", "x" * 100_000], ["not a valid integer"]),
        (["tasks", "list", "--metadata", "a=\udcff"], ["can't be carried as JSON"]),
        (["enqueue", "shop.send", "--queue", "mail", "to=\udcff"], ["can't be carried as JSON"]),
        (["enqueue", "shop.send", "--queue", "mail", "--args", "\udcff"], ["--args must be a JSON object"]),
        (["queues", "list", "--url", ""], ["'' is not a store URL"]),
        (["queues", "show", "mail", "--window", "30d"], ["window must be at most 7 days"]),
        (["x" * 100_000], ["No such command"]),
        (["worker", "shop:app", "--processes", "100000000"], ["from 1 to 1,000"]),
        (["worker", "shop:app", "--shutdown-timeout", "99d"], ["shutdown_timeout must be a number from 0 to 86,400"]),
        (["worker", "shop:app", "--reserve", "²:²"], ["is not PRIORITY:SLOTS"]),
        (["top", "--once", "--interval", "9999d"], ["--interval must be a number from 0.1 to 3,600"]),
        (["bench", "--concurrency", "0"], ["--concurrency must be a whole number from 1 to 10,000"]),
        (["bench", ""], ["'' is not a store URL"]),
        (["demo", "--tasks", "10000000"], ["--tasks must be a whole number from 200 to 100,000"]),
        (["demo", "--url", ""], ["'' is not a store URL"]),
        (["simulate", "--rate", "nan"], ["--rate must be a number"]),
        (["simulate", "--sweep", f"workers=0..{'9' * 5000}"], ["--workers must be a whole number"]),
        (["simulate", "--sweep", "aging=1..99", "--sweep", "workers=1..99", "--sweep", "keep=1..99"], ["970,299 runs"]),
    ],
)
def test_odd_words(cli: Cli, shop: Dibs, line: list[str], words: list[str]) -> None:
    shop.task_named("shop.send").enqueue(to="ada")
    answer = cli(*line)
    answer.refused(2, *words)
    assert len(answer.err) < 500


def test_interrupted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dibs.cli.queues.emit", interrupt)
    assert cli("queues", "list", "--json").code == 130


def test_a_reader_that_leaves_early_is_no_error(place: Path, shop: Dibs) -> None:
    task = shop.task_named("shop.send")
    shop.enqueue_many([task.call(to="ada" * 100) for _ in range(900)])
    with start("tasks", "list", "--limit", "900", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_colour_on_a_terminal_only(shop: Dibs, cli: Cli) -> None:
    shop.task_named("shop.send").enqueue(to="ada")
    # A terminal that knows colours: what starts the tests may have a dumb one.
    assert "\x1b[33m" in on_a_terminal("tasks", "list", TERM="xterm-256color", NO_COLOR="")
    assert "\x1b[33m" not in on_a_terminal("tasks", "list", TERM="xterm-256color")
    assert "\x1b" not in cli("tasks", "list").out


def test_python_m_dibs(place: Path) -> None:
    answer = finish(start("--version"))
    assert (answer.code, answer.out[:5]) == (0, "dibs,")


@pytest.mark.parametrize("words", [(), ("tasks",), ("queues",)])
def test_help_without_a_command_is_whole(cli: Cli, words: tuple[str, ...]) -> None:
    answer = cli(*words)
    assert "…" not in answer.err
    assert answer.err.rstrip("\n") == cli(*words, "--help").out.rstrip("\n")


def test_an_app_that_runs_its_worker_when_it_is_imported_is_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs_at_once.py").write_text(
        f"from dibs import Dibs\napp = Dibs('sqlite:///{tmp_path}/tasks.db')\nwith app.worker():\n    pass\n"
    )
    cli("worker", "runs_at_once:app", "--until-idle").refused(1, "importing runs_at_once runs a worker", "__main__")
