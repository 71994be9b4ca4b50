"""The command lines of the manifests, run without a container: a server and a worker as they are deployed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from socket import socket
from typing import Any

import msgspec
import pytest

from deploy.command_lines import DEPLOY, documents, option
from dibs import Dibs

MANIFESTS = [each for name in ("server", "worker") for each in documents(DEPLOY / "kubernetes" / f"{name}.yaml")]
CONTAINERS = {
    each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]
    for each in MANIFESTS
    if each["kind"] == "Deployment"
}
SERVER, WORKER = CONTAINERS["dibs-server"], CONTAINERS["dibs-worker"]
[SCALER] = documents(DEPLOY / "kubernetes" / "scaling.yaml")[0]["spec"]["triggers"]


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def dibs(*words: str) -> str:
    command = [sys.executable, "-m", "dibs", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@contextmanager
def started(words: Sequence[str], log: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `dibs` process, which must leave in time and with code 0 after SIGTERM."""
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "dibs", *words],
            cwd=DEPLOY / "app",
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
            stderr=file,
        )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


class Deployed:
    """A running server: where it is, and its tokens."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.log = directory / "server.log"
        tokens = directory / "tokens.json"
        self.worker_token = dibs(
            "tokens", "create", "worker", "--scope=consume,produce,read,payloads", f"--tokens={tokens}"
        )
        self.scaler_token = dibs("tokens", "create", "scaler", "--scope=read", f"--tokens={tokens}")
        changed = {"--host=0.0.0.0": "--host=127.0.0.1", "--port=8642": f"--port={self.port}"}
        changed |= {f"--tokens={path}": f"--tokens={tokens}" for path in option(SERVER["args"], "tokens")}
        self.words = [changed.get(word, word) for word in SERVER["args"]]
        self.url = f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, msgspec.json.decode(answer.read())
        finally:
            connection.close()

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Until it answers."""
        end = time.monotonic() + 30
        while True:
            try:
                self.get("/health")
            except OSError:
                assert process.poll() is None, self.log.read_text()
                assert time.monotonic() < end, "the server does not listen"
                time.sleep(0.05)
            else:
                return


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    made = Deployed(tmp_path)
    with started(made.words, made.log, DIBS_URL=f"sqlite:///{tmp_path / 'tasks.db'}") as process:
        made.wait(process)
        yield made


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_the_probes_are_answered(deployed: Deployed, probe: str) -> None:
    asked = SERVER[probe]["httpGet"]
    headers = {header["name"]: header["value"] for header in asked["httpHeaders"]}
    assert deployed.get(asked["path"], **headers)[0] == 200


def test_the_scaler_gets_a_number_with_its_token_only(deployed: Deployed) -> None:
    url = SCALER["metadata"]["url"]
    host, _, path = url.removeprefix("http://").partition("/")
    status, stats = deployed.get(f"/{path}", Host=host, Authorization=f"Bearer {deployed.scaler_token}")
    assert (status, stats[SCALER["metadata"]["valueLocation"]]) == (200, 0)
    assert deployed.get(f"/{path}", Host=host)[0] == 401


def test_a_worker_runs_tasks_through_the_server(deployed: Deployed, tmp_path: Path) -> None:
    token = deployed.worker_token
    app = Dibs(deployed.url, token=token)

    @app.task(name="shop.greet")
    def greet(name: str) -> str:
        raise AssertionError("the worker has another one")

    with app, started(WORKER["args"], tmp_path / "worker.log", DIBS_URL=deployed.url, DIBS_TOKEN=token):
        assert greet.enqueue("Ada").result(timeout=30) == "Hello, Ada!"
