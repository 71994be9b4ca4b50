"""A short part of `make chaos`, from a fixed seed; and bugs that it must find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.planted import PLANTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stops and kills processes as Linux does")

TESTS = Path(__file__).parents[1]
SHOWS = {
    "no-fence": ("stop", 10, 0.4, "a lease has one outcome"),
    "no-wake-ups": ("pause", 3, 0.25, "idle workers wake"),
    "no-hold-off": ("stop-all", 3, 0.25, "losses are explained"),
}
"""Which faults show a bug, a seed by which they come late and last long enough (newcomers rescue nothing at first), how
many minutes that takes, and which check finds it."""


def storm(folder: Path, *arguments: str) -> dict[str, Any]:
    """The report of a run on one store."""
    command = [sys.executable, "-m", "chaos", *arguments, "--rate", "25", "--lease", "2", "--out", str(folder)]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (folder / "chaos.json").exists(), done.stderr
    (report,) = json.loads((folder / "chaos.json").read_text())
    assert done.returncode == bool(report["findings"])
    return report


@pytest.mark.parametrize(("store", "seed"), [("sqlite", 1), ("postgres", 2), ("redis", 3)])
def test_nothing_is_found_in_a_short_storm(store: str, seed: int, tmp_path: Path) -> None:
    report = storm(tmp_path, store, "--minutes", "0.25", "--seed", str(seed))
    assert report["findings"] == []
    assert report["figures"]["tasks"] > 100
    assert report["figures"]["faults"]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_nothing_is_found_in_many_storms(store: str, seed: int, tmp_path: Path) -> None:
    assert storm(tmp_path, store, "--minutes", "2", "--seed", str(seed))["findings"] == []


@pytest.mark.parametrize(
    "bug", [bug if bug == "no-fence" else pytest.param(bug, marks=pytest.mark.soak) for bug in PLANTS]
)
def test_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    fault, seed, minutes, check = SHOWS[bug]
    timing = ["--minutes", str(minutes), "--seed", str(seed)]
    report = storm(tmp_path, "sqlite", *timing, "--plant", bug, "--only", fault)
    assert check in {name for name, _ in report["findings"]}
