"""The pytest plugin costs little, and is there without being asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TEST = """
import sys
from dibs import Dibs

app = Dibs("sqlite:///production.db")

@app.task
def double(number: int) -> int:
    return 2 * number

def test_it(dibs_sandbox, dibs_clock):
    sandbox = dibs_sandbox(app, eager=True)
    assert sandbox.clock is dibs_clock
    assert double.enqueue(4).result() == 8

def test_start_up_was_cheap():
    assert "hypothesis" not in sys.modules
    assert not any(name.startswith(("dibs.testing.conformance", "dibs.testing.model")) for name in sys.modules)
"""


def test_fixtures_are_found_and_nothing_slow_is_imported(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TEST)
    command = [
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:schemathesis",
        "test_shop.py",
    ]
    ended = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout
    assert not (tmp_path / "production.db").exists()
