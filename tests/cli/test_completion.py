"""What a shell offers: commands, states, and what is in the store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from test_tasks import enqueue

from dibs import Dibs
from dibs.cli.main import cli as root
from dibs.core.states import State


def offered(*words: str) -> list[str]:
    """What may stand in place of the last word."""
    completion = ShellComplete(root, {}, "dibs", "_DIBS_COMPLETE")
    return [item.value for item in completion.get_completions(list(words[:-1]), words[-1])]


def test_commands_and_options(place: Path) -> None:
    assert offered("que") == ["queues"]
    assert offered("tasks", "ca") == ["cancel"]
    assert "--state" in offered("tasks", "list", "--st")


def test_words_that_are_always_the_same(place: Path) -> None:
    assert offered("tasks", "list", "--state", "") == list(State)
    assert offered("tasks", "list", "--state", "p") == ["pending"]
    assert offered("enqueue", "x", "--priority", "h") == ["high"]
    assert offered("queues", "set", "mail", "max_d") == ["max_depth="]
    assert "task.failed" in offered("events", "task.f")


def test_what_is_in_the_store(shop: Dibs) -> None:
    ids = enqueue(shop, "shop.send", 3, to="ada")
    shop.schedules.set("hourly", shop.task_named("shop.send"), every=3600, kwargs={"to": "ada"})
    assert offered("queues", "pause", "") == ["mail"]
    assert offered("tasks", "list", "--queue", "m") == ["mail"]
    assert offered("schedules", "show", "h") == ["hourly"]
    assert offered("tasks", "show", "") == ids[::-1]
    assert offered("tasks", "cancel", ids[0][:30]) == [each for each in ids[::-1] if each.startswith(ids[0][:30])]
    assert offered("why", "hou") == ["hourly"]
    assert offered("tasks", "list", "--name", "") == ["shop.send"]
    flow = shop.enqueue_workflow(shop.task_named("shop.send").call(to="ada"), "x").id
    assert offered("workflows", "show", "") == [flow]


def test_tasks_of_the_app(shop: Dibs) -> None:
    names = ["shop.broken", "shop.endless", "shop.refused", "shop.send", "shop.steps"]
    assert offered("enqueue", "--app", "shop:app", "") == names


@pytest.mark.parametrize("url", ["sqlite:///typo.db", "postgresql://127.0.0.1:1/x", "nonsense"])
def test_a_store_that_is_not_there_offers_nothing(place: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert offered("queues", "show", "--url", url, "") == []
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert not (place / "typo.db").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(place: Path, shell: str) -> None:
    """The line of the guide prints a script that the shell, where it is installed, can read."""
    command = [sys.executable, "-m", "dibs"]
    env = {**os.environ, "_DIBS_COMPLETE": f"{shell}_source"}
    script = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert "dibs" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
