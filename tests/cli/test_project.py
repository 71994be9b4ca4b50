"""`[tool.dibs]` in pyproject.toml, DIBS_APP and DIBS_URL: commands work without naming a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import Cli, finish, start

OTHER = "from dibs import Dibs\napp = Dibs('sqlite:///project.db')\n@app.task(queue='own')\ndef job() -> None: ...\n"


@pytest.fixture
def project(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an app on a file beside it, and nothing in the environment."""
    monkeypatch.delenv("DIBS_URL")
    (place / "other.py").write_text(OTHER)
    return place


def say(project: Path, text: str) -> None:
    (project / "pyproject.toml").write_text(text)


def test_the_tutorials_commands_work_as_pasted(cli: Cli, project: Path) -> None:
    say(project, "[project]\nname = 'x'\n[tool.dibs]\napp = 'other:app'\n")
    assert cli("enqueue", "job").code == 0
    for line in ("tasks list --state pending", "top --once", "doctor", "dead list", "queues show own"):
        assert cli(*line.split()).code == 0, line
    answer = finish(start("worker", "--until-idle", cwd=project))
    assert answer.code == 0, answer.err
    assert str(project / "project.db") in answer.err
    assert cli("tasks", "count", "--state", "completed").out == "1\n"


def test_from_a_folder_below(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths are those of the project, not of the folder where the command is given."""
    say(project, "[tool.dibs]\napp = 'other:app'\n")
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[project]\nname = 'without'\n")
    monkeypatch.chdir(below)
    assert cli("enqueue", "job").code == 0
    assert (project / "project.db").exists()
    say(project, "[tool.dibs]\nurl = 'sqlite:///project.db?busy_timeout=2'\n")
    assert cli("tasks", "count").out == "1\n"
    assert Path.cwd() == below
    assert list(below.iterdir()) == [below / "pyproject.toml"]


def test_options_then_environment_then_project(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("option", "variable", "project"):
        cli("enqueue", "job", "--queue", name, "--url", f"sqlite:///{name}.db")
    say(project, "[tool.dibs]\nurl = 'sqlite:///project.db'\n")

    def names(*options: str) -> list[str]:
        return [queue["name"] for queue in cli("queues", "list", "--json", *options).json]

    assert names() == ["project"]
    monkeypatch.setenv("DIBS_URL", "sqlite:///variable.db")
    assert names() == ["variable"]
    assert names("--url", "sqlite:///option.db") == ["option"]
    monkeypatch.setenv("DIBS_APP", "other:app")
    assert names() == ["project"], "the app of the environment goes before its store"
    assert names("--url", "sqlite:///option.db") == ["option"]


def test_the_app_of_the_environment(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_APP", "other:app")
    assert cli("enqueue", "job").code == 0
    assert cli("queues", "list", "--json").json[0]["name"] == "own"
    answer = finish(start("worker", "--until-idle", cwd=project))
    assert answer.code == 0, answer.err


def test_a_worker_needs_an_app(cli: Cli, project: Path) -> None:
    cli("worker").refused(2, "which app?", "MODULE:APP", "DIBS_APP", "pyproject.toml")
    say(project, "[tool.dibs]\nurl = 'sqlite:///project.db'\n")
    cli("worker").refused(2, "which app?")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.dibs]\nap = 'other:app'\n", ["no 'ap'", "Did you mean 'app'?", "app or url"]),
        ("[tool.dibs]\nurl = 7\n", ["url", "must be a text, not 7"]),
        ("[tool.dibs]\nurl = ''\n", ["must be a text"]),
        ("[tool.dibs]\nurl = 'sqlite:///x.db'\napp = 'other:app'\n", ["one of app and url"]),
        ("[tool.dibs]\n", ["one of app and url"]),
        ("[tool]\ndibs = 'x'\n", ["is a table: app, url"]),
        ("[tool.dibs\n", ["can't read", "pyproject.toml"]),
        ("[tool.dibs]\napp = 'nothing:app'\n", ["no module 'nothing'"]),
        ("[tool.dibs]\nurl = 'sqlite:///nothing.db'\n", ["no store at", "nothing.db"]),
    ],
)
def test_what_is_wrong_in_a_project(cli: Cli, project: Path, text: str, words: list[str]) -> None:
    say(project, text)
    cli("tasks", "list").refused(1 if "nothing.db" in text else 2, *words)
    assert not (project / "nothing.db").exists()


def test_other_pyprojects_are_left_alone(cli: Cli, project: Path) -> None:
    for text in ("", "[tool]\nx = 1\n", "tool = 7\n"):
        say(project, text)
        cli("tasks", "list").refused(2, "no store is named", "pyproject.toml")


def test_help_says_so(cli: Cli) -> None:
    text = " ".join(cli("--help").out.split())
    for words in ("--url", "--app", "DIBS_APP", "DIBS_URL", "[tool.dibs]", "pyproject.toml", "./dibs.db"):
        assert words in text
