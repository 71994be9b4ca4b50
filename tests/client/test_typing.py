"""A wrong call is a type error, a right one is not: to mypy and to pyright."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[2]

Checker = Callable[[Path], set[int]]


def run(*command: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode in (0, 1), ended.stderr
    return ended.stdout


def mypy(file: Path) -> set[int]:
    """The lines with errors."""
    output = run("mypy", "--strict", "--no-error-summary", "--hide-error-context", str(file))
    return {int(found[1]) for found in re.finditer(rf"{file.name}:(\d+): error:", output)}


def pyright(file: Path) -> set[int]:
    """The lines with errors."""
    output = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, str(file)))
    errors = [each for each in output["generalDiagnostics"] if each["severity"] == "error"]
    assert output["summary"]["filesAnalyzed"] == 1
    return {each["range"]["start"]["line"] + 1 for each in errors}


@pytest.mark.slow
@pytest.mark.parametrize("check", [mypy, pyright])
def test_right_calls_are_accepted(check: Checker) -> None:
    assert check(SAMPLES / "right.py") == set()


@pytest.mark.slow
@pytest.mark.parametrize("check", [mypy, pyright])
def test_wrong_calls_are_refused(check: Checker) -> None:
    file = SAMPLES / "wrong.py"
    marked = {number for number, line in enumerate(file.read_text().splitlines(), 1) if "# wrong: " in line}
    assert len(marked) >= 15
    assert check(file) == marked
