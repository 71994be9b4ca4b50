"""Executor processes: results, failures, deaths, kills and limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import process_app
import psutil
import pytest
from process_app import app
from worker_support import PATIENCE, eventually, record_of

from dibs.core.states import Reason, State
from dibs.core.task import Lease, Outcome, Settlement
from dibs.errors import TaskCancelled, TaskFailed
from dibs.worker import ExitCode, Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with app.worker(concurrency=4) as worker:
        yield worker


def test_results_come_back_and_children_are_reused(worker: Worker) -> None:
    assert process_app.add.enqueue(2, b=3).result(timeout=PATIENCE) == 5
    first = process_app.pid_and_state.enqueue().result(timeout=PATIENCE)
    second = process_app.pid_and_state.enqueue().result(timeout=PATIENCE)
    assert first == second
    assert first[0] == first[1] != os.getpid()


def test_middleware_runs_where_the_task_runs(worker: Worker) -> None:
    handle = process_app.bracketed.enqueue()
    eventually(lambda: record_of(app, handle.id).state is State.COMPLETED)
    assert record_of(app, handle.id).result == b'["inside"]'


@pytest.mark.parametrize(
    ("kind", "error", "reason"),
    [
        ("plain", "LookupError", Reason.EXHAUSTED),
        ("permanent", "dibs.errors.Permanent", Reason.PERMANENT),
        ("exit", "SystemExit", Reason.EXHAUSTED),
    ],
)
def test_what_a_task_raises_comes_back(worker: Worker, kind: str, error: str, reason: Reason) -> None:
    with pytest.raises(TaskFailed) as caught:
        process_app.raises.enqueue(kind).result(timeout=PATIENCE)
    assert (caught.value.error_type, caught.value.reason) == (error, reason)
    assert "in raises" in caught.value.traceback


def test_retry_and_no_retry_hold_in_a_child(worker: Worker) -> None:
    assert process_app.asks.enqueue().result(timeout=PATIENCE) == 2
    with pytest.raises(TaskFailed) as caught:
        process_app.refuses.enqueue().result(timeout=PATIENCE)
    assert caught.value.reason == Reason.PERMANENT


def test_a_result_that_json_can_not_carry(worker: Worker) -> None:
    with pytest.raises(TaskFailed, match="can't be carried as JSON"):
        process_app.odd_result.enqueue().result(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("how", "words"),
    [("exit", "exit code 11"), ("kill", "killed by signal 9 (SIGKILL)"), ("segfault", "signal 11 (SIGSEGV)")],
)
def test_a_child_that_dies_is_a_failed_attempt_that_says_how(worker: Worker, how: str, words: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        process_app.dies.enqueue(how).result(timeout=PATIENCE)
    assert words in caught.value.error_message
    assert process_app.add.enqueue(1).result(timeout=PATIENCE) == 2


def test_the_memory_limit_fails_the_attempt(worker: Worker) -> None:
    assert process_app.grows.enqueue(20).result(timeout=PATIENCE) == 20
    with pytest.raises(TaskFailed, match="memory_limit of 200 MiB"):
        process_app.grows.enqueue(1000).result(timeout=PATIENCE)
    assert process_app.grows.enqueue(20).result(timeout=PATIENCE) == 20


def test_an_error_that_can_not_be_shown_is_still_the_tasks_own(worker: Worker) -> None:
    with pytest.raises(TaskFailed, match="its message can't be shown"):
        process_app.fails_oddly.enqueue().result(timeout=PATIENCE)


def pids_in(file: Path) -> list[int]:
    eventually(file.exists)
    return [int(pid) for pid in file.read_text().split()]


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_timeout_kills_the_child_and_what_it_started(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    handle = process_app.sleeps.using(timeout=1.5, retries=0).enqueue(str(file))
    pids = pids_in(file)
    with pytest.raises(TaskFailed, match=r"timeout of 1\.5 s"):
        handle.result(timeout=PATIENCE)
    eventually(lambda: all(gone(pid) for pid in pids))


def test_a_cancelled_task_is_killed(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    handle = process_app.sleeps.enqueue(str(file))
    pids = pids_in(file)
    eventually(lambda: record_of(app, handle.id).progress == 0.5)
    handle.cancel("enough")
    with pytest.raises(TaskCancelled):
        handle.result(timeout=PATIENCE)
    eventually(lambda: all(gone(pid) for pid in pids))


def test_a_lost_lease_kills_the_child(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    handle = process_app.sleeps.using(queue="default").enqueue(str(file))
    pids = pids_in(file)
    file.unlink()
    record = record_of(app, handle.id)
    taken = Settlement(lease=Lease(handle.id, record.lease), outcome=Outcome.RELEASED)
    app.hub.runner.run(app.hub.engine.settle([taken]))
    app.workers.pause(worker.id)  # it asks for news at once, and learns of its loss
    app.workers.resume(worker.id)
    eventually(lambda: all(gone(pid) for pid in pids))
    pids_in(file)  # it runs again
    handle.cancel()
    with pytest.raises(TaskCancelled):
        handle.result(timeout=PATIENCE)


def test_shutdown_kills_children_and_hands_their_tasks_back(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    handle = process_app.sleeps.using(queue="leaving").enqueue(str(file))
    worker = app.worker(queues=["leaving"]).start()
    pids = pids_in(file)
    report = worker.stop(timeout=0)
    assert report is not None
    assert report.code is ExitCode.HANDED_BACK
    assert record_of(app, handle.id).state is State.PENDING
    eventually(lambda: all(gone(pid) for pid in pids))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel kills orphans on Linux only")
def test_children_die_with_their_parent_and_a_main_program_may_hold_the_app(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    parent = subprocess.Popen([sys.executable, process_app.__file__, str(file)])
    child, _ = pids_in(file)
    assert not gone(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    eventually(lambda: gone(child))
    for process in psutil.process_iter():
        if process.pid == pids_in(file)[1]:
            process.kill()  # a grandchild is not ours to follow
