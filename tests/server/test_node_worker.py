"""The worker in Node of `examples/node`: a real process, a real server, and what comes between them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from servers.proxy import Proxy
from servers.server_process import PATIENCE, Serving

NODE = shutil.which("node")
WORKER = Path(__file__).parents[2] / "examples" / "node" / "worker.mjs"
SOON = 10.0
"""Seconds, far less than a claim waits."""
QUICK = {"DIBS_BEAT_SECONDS": "0.2", "DIBS_LEASE_SECONDS": "5"}

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not on the PATH")


class Node:
    """A worker process; used as a context manager, it is killed in the end if it still runs."""

    def __init__(self, url: str, queue: str, folder: Path, **settings: str) -> None:
        assert NODE is not None
        self.log_path = folder / f"{queue}-{time.monotonic_ns()}.log"
        environment = os.environ | QUICK | {"DIBS_URL": url, "DIBS_QUEUES": queue} | settings
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen([NODE, str(WORKER)], env=environment, stderr=log)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.log, lambda: f"{words!r} is not in\n{self.log}")

    def finish(self) -> int:
        return self.process.wait(PATIENCE)

    def stop(self) -> int:
        """The exit code after SIGTERM."""
        self.process.terminate()
        return self.finish()


class Api:
    """The REST API of a server."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.url = server.url

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        given = b"" if body is None else json.dumps(body).encode()
        status, answer = self.server.request(method, f"/api/v1/{path}", given)
        assert status < 300, answer
        return json.loads(answer)

    def submit(self, queue: str, task_type: str, parameters: dict[str, Any] | None = None, **options: Any) -> str:
        task = {"task_type": task_type, "parameters": parameters or {}, "queue": queue, **options}
        found: str = self("POST", "tasks", task)["task_id"]
        return found

    def task(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self("GET", f"tasks/{task_id}?include=history")
        return found

    def ended(self, task_id: str) -> dict[str, Any]:
        """A task that has ended, with its history."""
        self("GET", f"tasks/{task_id}/wait")
        found = self.task(task_id)
        assert found["finished_at"] is not None, found
        return found

    def wait_until_running(self, task_id: str) -> None:
        until(lambda: self.task(task_id)["status"] == "running", lambda: str(self.task(task_id)))

    def worker_of(self, queue: str) -> dict[str, Any] | None:
        found = [each for each in self("GET", "workers") if each["queues"] == [queue] and each["state"] != "dead"]
        return found[0] if found else None


def until(condition: Callable[[], object], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def api(folder: Path) -> Iterator[Api]:
    with Serving("--url", f"sqlite:///{folder}/store.db", cwd=folder) as server:
        yield Api(server)
        assert server.stop() == 0


@pytest.fixture(scope="module", autouse=True)
def abandoned(api: Api, folder: Path) -> str:
    """A task whose worker was killed. A server that has just started waits a while before it takes a task back, so
    this is done before all tests.
    """
    task_id = api.submit("killed", "node.sleep", {"seconds": 600})
    with Node(api.url, "killed", folder, DIBS_LEASE_SECONDS="1") as node:
        api.wait_until_running(task_id)
        node.process.kill()
        node.finish()
    return task_id


def kinds(task: dict[str, Any]) -> list[str]:
    return [line["event"] for line in task["history"]]


# How runs end.


def test_a_task_completes_with_its_result(api: Api, folder: Path) -> None:
    given = {"text": "Grüße, 世界", "numbers": [1, 2.5, None], "nested": {"deep": [{}]}}
    with Node(api.url, "echo", folder):
        several = [api.submit("echo", "node.echo", {"number": number}) for number in range(50)]
        task_id = api.submit("echo", "node.echo", given)
        assert api.ended(task_id)["result"] == given
        assert [api.ended(each)["result"]["number"] for each in several] == list(range(50))


def test_a_task_that_fails_is_retried_and_its_error_kept(api: Api, folder: Path) -> None:
    with Node(api.url, "fail", folder):
        task_id = api.submit("fail", "node.fail", {"message": "no paper"}, retries=1, retry_base_seconds=0)
        found = api.ended(task_id)
    assert (found["status"], found["reason"], found["failed_attempts"]) == ("dead", "exhausted", 2)
    assert (found["error"]["type"], found["error"]["message"]) == ("RangeError", "no paper")
    assert "RangeError: no paper\n    at node.fail (file://" in found["error"]["traceback"]
    assert kinds(found) == ["failed", "dead"]


def test_a_permanent_error_is_not_retried(api: Api, folder: Path) -> None:
    with Node(api.url, "permanent", folder):
        found = api.ended(api.submit("permanent", "node.fail", {"permanent": True}))
    assert (found["status"], found["reason"], found["failed_attempts"]) == ("dead", "permanent", 1)
    assert (found["error"]["type"], found["error"]["message"]) == ("PermanentError", "as asked")


def test_a_run_has_its_timeout(api: Api, folder: Path) -> None:
    with Node(api.url, "timeout", folder):
        task_id = api.submit("timeout", "node.sleep", {"seconds": 600}, timeout_seconds=0.2, retries=0)
        found = api.ended(task_id)
    assert found["status"] == "dead"
    assert found["error"]["type"] == "TimeoutError"
    assert found["error"]["message"] == "the run took longer than its timeout of 0.2 s"


def test_a_running_task_shows_its_progress_and_can_be_cancelled(api: Api, folder: Path) -> None:
    with Node(api.url, "cancel", folder) as node:
        task_id = api.submit("cancel", "node.sleep", {"seconds": 6})
        until(lambda: api.task(task_id)["progress"], lambda: "no progress")
        found = api.task(task_id)
        assert found["progress_message"] == f"step {found['progress'] * 10:.0f} of 10"
        answer = api("POST", f"tasks/{task_id}/cancel", {"reason": "wrong edition"})
        assert (answer["status"], answer["cancel_requested"]) == ("running", True)
        assert api.ended(task_id)["status"] == "cancelled"
        node.wait_for(f"{task_id}, attempt 1: wrong edition")


# The state that an operator gives a worker.


def test_a_worker_is_paused_resumed_and_drained(api: Api, folder: Path) -> None:
    with Node(api.url, "state", folder) as node:
        until(lambda: api.worker_of("state"), lambda: node.log)
        worker = api.worker_of("state")
        assert worker is not None
        api("POST", f"workers/{worker['id']}/pause")
        node.wait_for("the worker is paused")
        task_id = api.submit("state", "node.sleep", {"seconds": 0.5})
        assert api.task(task_id)["status"] == "pending"
        api("POST", f"workers/{worker['id']}/resume")
        api.wait_until_running(task_id)
        api("POST", f"workers/{worker['id']}/drain")
        assert node.finish() == 0
    assert api.task(task_id)["status"] == "completed"
    assert api.worker_of("state") is None


# Signals.


def test_a_stopped_worker_finishes_its_task(api: Api, folder: Path) -> None:
    with Node(api.url, "finish", folder) as node:
        task_id = api.submit("finish", "node.sleep", {"seconds": 0.7})
        api.wait_until_running(task_id)
        assert node.stop() == 0
    found = api.task(task_id)
    assert (found["status"], found["result"]) == ("completed", {"slept": 0.7})
    assert api.worker_of("finish") is None


def test_a_stopped_worker_hands_back_what_takes_too_long(api: Api, folder: Path) -> None:
    with Node(api.url, "release", folder, DIBS_GRACE_SECONDS="0.1") as node:
        task_id = api.submit("release", "node.sleep", {"seconds": 600})
        api.wait_until_running(task_id)
        assert node.stop() == 0
    found = api.task(task_id)
    assert (found["status"], found["failed_attempts"], found["losses"]) == ("pending", 0, 0)
    assert kinds(found) == ["released"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_stops_at_once(api: Api, folder: Path, number: signal.Signals) -> None:
    queue = f"idle-{number}"
    with Node(api.url, queue, folder) as node:
        node.wait_for(f"serves {queue}")
        began = time.monotonic()
        node.process.send_signal(number)
        assert node.finish() == 0
        assert time.monotonic() - began < SOON
    assert api.worker_of(queue) is None


# Failures between worker and server.


def test_a_claim_whose_answer_is_lost_is_repeated(api: Api, folder: Path) -> None:
    task_id = api.submit("claim", "node.echo")
    with Proxy(api.server.place[1]) as proxy:
        proxy.trap(b'"sequence"', "after")
        with Node(f"http://127.0.0.1:{proxy.port}", "claim", folder):
            found = api.ended(task_id)
        assert proxy.sprung.is_set()
    assert (found["status"], found["lease"], found["losses"]) == ("completed", 1, 0)


def test_a_report_whose_answer_is_lost_is_repeated(api: Api, folder: Path) -> None:
    with Proxy(api.server.place[1]) as proxy:
        proxy.trap(b'"results"', "after")
        with Node(f"http://127.0.0.1:{proxy.port}", "report", folder) as node:
            found = api.ended(api.submit("report", "node.echo"))
            assert proxy.sprung.wait(PATIENCE)
            node.wait_for("not available")
            assert node.stop() == 0
            assert "dropped" not in node.log
    assert (found["status"], found["lease"]) == ("completed", 1)


def test_a_worker_and_its_task_outlive_a_restart_of_the_server(tmp_path: Path) -> None:
    store = ("--url", f"sqlite:///{tmp_path}/store.db")
    with Serving(*store, cwd=tmp_path) as server:
        api, port = Api(server), str(server.place[1])
        with Node(api.url, "restart", tmp_path, DIBS_LEASE_SECONDS="30") as node:
            running = api.submit("restart", "node.sleep", {"seconds": 1})
            api.wait_until_running(running)
            assert server.stop() == 0
            node.wait_for("not available")
            with Serving(*store, "--port", port, cwd=tmp_path) as again:
                api = Api(again)
                found = api.ended(running)
                assert (found["status"], found["lease"], found["failed_attempts"]) == ("completed", 1, 0)
                assert api.ended(api.submit("restart", "node.echo"))["status"] == "completed"
                assert node.stop() == 0
                assert again.stop() == 0


# Several workers.


def test_workers_of_one_queue_share_its_tasks(api: Api, folder: Path) -> None:
    with Node(api.url, "shared", folder, DIBS_CAPACITY="1"), Node(api.url, "shared", folder, DIBS_CAPACITY="1"):
        tasks = [api.submit("shared", "node.sleep", {"seconds": 0.5}) for _ in range(4)]
        found = [api.ended(task_id) for task_id in tasks]
    assert [(each["status"], each["lease"]) for each in found] == [("completed", 1)] * 4
    assert len({each["assigned_worker_id"] for each in found}) == 2


def test_the_task_of_a_killed_worker_runs_again(api: Api, folder: Path, abandoned: str) -> None:
    with Node(api.url, "killed", folder) as node:
        until(lambda: api.task(abandoned)["lease"] == 2, lambda: str(api.task(abandoned)))
        found = api.task(abandoned)
        assert (found["status"], found["losses"], found["failed_attempts"]) == ("running", 1, 0)
        assert kinds(found) == ["lost"]
        api("POST", f"tasks/{abandoned}/cancel")
        assert api.ended(abandoned)["status"] == "cancelled"
        assert node.stop() == 0
