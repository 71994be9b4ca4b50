"""What the tests of the CLI share."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dibs.cli.main import run

PATIENCE = 40.0
"""Seconds after which something that should happen has not."""

WIDTH = 80

SHOP = """
import asyncio
from dibs import Context, Dibs, Permanent

app = Dibs()

@app.task(queue="mail", priority="high")
async def send(to: str, subject: str = "Hi") -> str:
    return f"{subject} to {to}"

@app.task(queue="mail", retries=0)
def broken(number: int) -> None:
    raise ValueError(f"[bold]no[/bold] {number % 2}")

@app.task(queue="mail")
async def refused() -> None:
    raise Permanent("never")

@app.task(queue="slow")
async def steps(ctx: Context, count: int) -> int:
    for number in range(count):
        ctx.progress(number / count, f"step {number}")
        await asyncio.sleep(0.05)
    return count

@app.task(queue="slow")
async def endless(ctx: Context) -> None:
    ctx.progress(0)
    await asyncio.sleep(3600)
"""


class Answer:
    """How a command ended, and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """Stdout as the one JSON document that it must be."""
        return json.loads(self.out)

    def refused(self, code: int, *words: str) -> None:
        """The command failed with one plain sentence that says these words."""
        assert (self.code, self.out) == (code, ""), self.err
        assert "Traceback" not in self.err
        assert len(self.err.strip().splitlines()) == 1, self.err
        assert self.err.strip().endswith((".", "?", "!"))
        for word in words:
            assert word.lower() in self.err.lower()


class Cli:
    """Runs commands in this process, each as a fresh one would."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, answer: str = "") -> Answer:
        for name in ("shop", "other"):  # an app is closed when its command ends
            sys.modules.pop(name, None)
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        code = run(list(arguments))
        printed = self._capsys.readouterr()
        return Answer(code, printed.out, printed.err)


MakeModule = Callable[..., Path]


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A `dibs` process."""
    command = [sys.executable, "-X", "faulthandler", "-m", "dibs", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(process: subprocess.Popen[str]) -> Answer:
    """Wait for a process to end; one that hangs is made to say where."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        out, err = process.communicate()
        raise AssertionError(f"{process.args} hangs:\n{out}\n{err}") from None
    return Answer(process.returncode, out, err)


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What a command prints on a terminal of 80 columns; without colours, unless the environment says otherwise."""
    ours, theirs = pty.openpty()
    plain = {"COLUMNS": str(WIDTH), "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "dibs", *arguments]
    env = {**os.environ, **plain, **environment}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=env) as process:
        os.close(theirs)
        printed = b""
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 65_536):
                printed += part
        os.close(ours)
        assert process.stderr is not None
        assert process.wait(PATIENCE) == 0, process.stderr.read()
    return printed.decode().replace("\r\n", "\n")


def fits(text: str) -> bool:
    return all(len(line) <= WIDTH for line in text.splitlines())
