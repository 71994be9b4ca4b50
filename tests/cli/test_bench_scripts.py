"""The scripts in bench/, small; the peers themselves are only there after `make bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli_support import PATIENCE

BENCH = Path(__file__).parents[2] / "bench"


def run(script: str, *options: str) -> Any:
    command = [sys.executable, str(BENCH / script), *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_compare() -> None:
    report = run("compare.py", "--only", "Dibs", "--tasks", "300", "--rounds", "1", "--samples", "5")
    rows = {row["name"]: row for row in report["rows"]}
    assert set(rows) == {"Dibs", "raw sqlite3, FULL", "raw sqlite3, NORMAL"}
    assert rows["Dibs"]["durability"] == "FULL"
    assert rows["raw sqlite3, FULL"]["dibs_drain_ratio"] > 0


def test_depth() -> None:
    report = run("depth.py", "--shallow", "200", "--deep", "1000", "--rounds", "1", "--priorities", "5")
    assert report["ratio"] > 0


def test_idle() -> None:
    report = run("idle.py", "--seconds", "0.5")
    assert 0 < report["memory_mib"] < 200


def test_sizes() -> None:
    report = run("sizes.py", "--tasks", "2000")["new"]
    assert all(0 < report[f"bytes of a {state} task"] < 1000 for state in ("waiting", "running", "finished"))
    assert report["bytes of heartbeats, minute 2"] < report["bytes of heartbeats, minute 1"]


def test_limits() -> None:
    report = run("limits.py", "--tasks", "200", "--batch", "20", "--rounds", "1", "--full", "1000")
    limits = {"1 per partition", "beside a full partition", "fair tenants", "max_concurrent alone", "all at once"}
    assert set(report) == {"no limits", *limits}
    assert all(row["per_second"] > 0 for row in report.values())


def test_limits_that_are_never_full() -> None:
    few = ("--waiting", "100", "300", "--rounds", "1", "--rate", "200", "--seconds", "0.5")
    report = run("limits.py", "--case", "never-full", *few)
    cases = {"no limits", "50 partitions of 20"}
    assert {depth: set(each) for depth, each in report["drain"].items()} == {"100": cases, "300": cases}
    assert set(report["flow"]) == cases
    assert all(each["out_per_second"] > 0 for each in report["flow"].values())


def test_waiting() -> None:
    report = run("waiting.py", "--tasks", "1500", "--rounds", "1")
    assert report["unblock"] > 0
    assert report["drain_joined"] > 0
