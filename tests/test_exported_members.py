"""The public names, pinned: a change here is a change of the public face."""

from __future__ import annotations

import subprocess
import sys

import dibs
import dibs.errors
import dibs.testing
import dibs.worker

PUBLIC = {
    "TRANSIENT",
    "Call",
    "Context",
    "Dibs",
    "DibsError",
    "Filter",
    "Handle",
    "Permanent",
    "Retry",
    "State",
    "Task",
    "__version__",
    "chain",
    "group",
    "take",
}


def test_the_public_names() -> None:
    assert set(dibs.__all__) == PUBLIC
    assert len(dibs.__all__) <= 15
    assert all(hasattr(dibs, name) for name in dibs.__all__)


def test_the_names_for_tests() -> None:
    assert set(dibs.testing.__all__) == {"Sandbox", "ManualClock"}
    assert all(hasattr(dibs.testing, name) for name in dibs.testing.__all__)


def test_the_names_of_the_worker() -> None:
    names = {"Context", "ExitCode", "ExitReport", "Middleware", "Next"}
    names |= {"TaskEnd", "Worker", "WorkerSettings", "WorkerStats"}
    assert set(dibs.worker.__all__) == names


def test_a_process_that_only_enqueues_does_not_import_the_worker() -> None:
    program = "import sys, dibs; dibs.Dibs('memory://'); print([name for name in sys.modules if 'dibs.worker' in name])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_error_is_listed_and_drawn() -> None:
    tree = dibs.errors.__doc__ or ""
    kinds = {name for name, value in vars(dibs.errors).items() if isinstance(value, type)}
    assert set(dibs.errors.__all__) == kinds
    assert [name for name in kinds if name not in tree] == []


def test_the_methods_of_an_app() -> None:
    assert {name for name in vars(dibs.Dibs) if not name.startswith("_")} == {
        "aaudit",
        "abound",
        "achores",
        "aclose",
        "aenqueue",
        "aenqueue_many",
        "aenqueue_workflow",
        "ahandle",
        "apeek",
        "aposition",
        "aseries",
        "astats",
        "audit",
        "await_all",
        "awhy",
        "bound",
        "chores",
        "close",
        "enqueue",
        "enqueue_many",
        "enqueue_workflow",
        "events",
        "handle",
        "lifespan",
        "middleware",
        "on_failure",
        "on_success",
        "peek",
        "position",
        "queue",
        "remote",
        "schedule",
        "series",
        "stats",
        "task",
        "task_named",
        "wait",
        "why",
        "worker",
    }
