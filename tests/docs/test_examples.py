"""Every example runs in a fresh directory, ends by itself, and prints what it says it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

PRINTS = {
    "first_steps": [
        "enqueued: pending pending",
        "Hello, Ada!",
        "sent 2 characters",
        "in the end: completed completed",
        "called in place: 15",
    ],
    "priorities": [
        "urgent first: alarm, thumbnail, report",
        "with ageing: alarm, thumbnail, high after 6 h, report, high after 7 h",
        "bound: 10 min per point of priority: at most 21 h 40 min",
        "low can be overtaken by high for: 6:40:00",
        "bound of a strict queue: none",
    ],
    "retries": [
        "fetch completed in attempt 2",
        "dead, permanent, after 1: dibs.errors.Permanent: 4711 is not a card",
        "dead, permanent, after 1: ValueError: invalid literal",
        "dead, exhausted, after 3: OSError: out of paper",
        "replayed 1: printed",
        "its history: failed, failed, dead, replayed",
    ],
    "idempotent_payment": [
        "same task: True duplicate: False True",
        "conflict with the same task: True",
        "paid 19.90 for 42",
        "after the end: True paid 19.90 for 42",
        "payments: 1",
    ],
    "progress_and_cancel": [
        "state: running progress is known: True",
        "a running one: asked to stop",
        "cancelled by: user",
        "note: wrong edition",
        "a waiting one: cancelled and now cancelled",
        "cancelled twice: had ended before which is False",
    ],
    "hard_timeout": [
        "spin: TimeoutError: the run took longer than its timeout of 1 s",
        "eat a little: 8388608",
        *(["eat too much: MemoryError: the task needed more memory"] if sys.platform == "linux" else []),
    ],
    "sticky_routing": [
        "cat.jpg resized by worker-a",
        "owl.jpg resized by worker-a",
        "dog.jpg: pending",
        "why: it requires host:b, and no worker of queue 'default' offers that.",
        "dog.jpg resized by worker-b",
    ],
    "schedules": [
        "report-us of 2026-01-01T14:00 UTC: us",
        "report-eu of 2026-01-02T08:00 UTC: eu",
        "clean-up: every 1 h, 1 fired, 23 skipped",
        "run by hand: 1 next: None",
        "month ends: 31 Jan, 28 Feb, 31 Mar",
        "Zurich: Fri 27 Mar 09:00 CET, Mon 30 Mar 09:00 CEST",
    ],
    "exactly_once": [
        "order 0, interrupted nowhere: paid in attempt 1",
        "order 1, interrupted before completing: paid in attempt 2",
        "order 2, interrupted before the commit: paid in attempt 2",
        "order 3, interrupted after the commit: paid in attempt 1",
        "payments: [(0, 1), (1, 2), (2, 2), (3, 1)]",
    ],
    "limits": [
        "start: acme, beta",
        "partition acme: 1 of 1 running",
        "enqueued 4, then: come back in 0.5 s",
        "sent at once: 2",
        "after 0.2 s: 1",
        "shares of 12: {'big': 6, 'small': 3, 'tiny': 3}",
    ],
    "middleware": [
        "middleware.divide, attempt 1: ZeroDivisionError: division by zero",
        "middleware.divide, attempt 2: ZeroDivisionError: division by zero",
        "ended: completed, dead",
        "runs timed: 3 in threads dibs-task-",
    ],
    "zlib_codec": [
        "35,000 characters are stored in less than 1,000 bytes: True",
        "read by the other app: 35000 characters",
        "words: 7000",
    ],
    "large_payloads": [
        "the arguments: 988,889 characters",
        'stored with the task is a reference: {"$dibs":"blob"',
        "the blob is a file: True",
        "result: ['word10000', 'word10001']",
        "a large result: 1,000,000 characters",
        "blobs: True",
    ],
    "transactional_enqueue": [
        "Welcome, Ada!",
        "Bob was rolled back, and so was his task",
        "users: ['Ada']",
    ],
    "own_loop": [
        "claimed metropolis, attempt 1, lease ",
        "claimed broken, attempt 1, lease ",
        "claimed broken, attempt 2, lease ",
        "runs: 3",
        "metropolis.mp4 and dead",
    ],
    "async_app": [
        "opened",
        "results: [0, 2, 4, 6, 8]",
        "batch: [20, 40]",
        "failed: amounts are not negative",
        "completed: 7",
        "closed",
    ],
    "workflow": [
        "it has failed with 1 dead of 6",
        "meanwhile: sorry, boss",
        "after a replay: completed",
        "report: monday: [31, 62, 93]",
        "1  workflow.find_orders       completed",
        "5      workflow.print_report  completed",
    ],
    "plain_functions": [
        "enqueued: textwrap:indent",
        "result: '> first dibs\\n'",
        "refused: functions of getpass are not allowed as tasks",
        "refused: <built-in function time> can't be imported by a worker",
    ],
}
"""Beginnings of lines, in this order, per example."""

FAIL_ON_PURPOSE = ("retries", "hard_timeout", "middleware", "async_app", "workflow")
"""Examples with tasks that fail, which their worker logs."""
LOGGED = re.compile(r"^\w+\.\w+ [0-9a-f-]{36} (failed|timed out|is dead)", re.MULTILINE)


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_happened(name: str, tmp_path: Path) -> None:
    ended = run(tmp_path, str(EXAMPLES / f"{name}.py"))
    said = LOGGED.search(ended.stderr) is not None if name in FAIL_ON_PURPOSE else ended.stderr == ""
    assert (ended.returncode, said) == (0, True), ended.stderr
    lines = iter(ended.stdout.splitlines())
    missing = [wanted for wanted in PRINTS[name] if not any(line.startswith(wanted) for line in lines)]
    assert not missing, ended.stdout


@pytest.mark.parametrize("name", ["first_steps", "transactional_enqueue", "zlib_codec"])
def test_an_example_with_a_file_runs_again(name: str, tmp_path: Path) -> None:
    for _ in range(2):
        ended = run(tmp_path, str(EXAMPLES / f"{name}.py"))
        assert (ended.returncode, ended.stderr) == (0, "")


def test_the_example_tests_pass(tmp_path: Path) -> None:
    ended = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "testing_in_a_sandbox.py"))
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout
    assert not (tmp_path / "shop.db").exists()


def test_every_example_is_run() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == {*PRINTS, "testing_in_a_sandbox"}


def test_every_example_says_how_to_run_it() -> None:
    for file in EXAMPLES.glob("*.py"):
        text = file.read_text()
        assert text.startswith('"""'), file.name
        assert "Run it with `" in text, file.name
        assert text.count("\n") <= 55, f"{file.name} has become long for an example"
