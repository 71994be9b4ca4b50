"""`dibs serve` as people start it: what it serves and refuses, several processes, and what it does for its store."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from cli_support import SHOP, Cli, finish, start

from dibs import Dibs
from dibs.cli.serve import child_command
from servers import postgres
from servers import redis as redis_servers
from servers.server_process import PATIENCE, Serving

TICKING = """
@app.schedule(every=1)
@app.task(queue="ticks")
async def tick() -> None: ...
"""


def eventually(holds: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.02)


# What it serves.


def test_without_arguments_it_makes_a_store_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIBS_URL", raising=False)
    with Serving(cwd=tmp_path) as server:
        assert server.request()[0] == 200
        line = server.wait_for(" serves ")
        assert f"sqlite:///{tmp_path}/dibs.db" in line
        assert server.url.startswith("http://127.0.0.1:")
        assert "/docs" in line
        assert "no tokens are needed" in line
        assert server.stop() == 0
    assert (tmp_path / "dibs.db").exists()


def test_an_app_is_served_and_its_schedules_fire(place: Path) -> None:
    (place / "shop.py").write_text(SHOP + TICKING)
    with Serving("shop:app", cwd=place) as server, Dibs(server.url) as app:
        (claim,) = app.claim(["ticks"], wait=PATIENCE)
        assert claim.name == "shop.tick"
        app.close()
        assert server.stop() == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_the_task_of_a_worker_that_was_killed_is_taken_back(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other worker is there: the server does it."""
    urls = {
        "sqlite": lambda: f"sqlite:///{place}/shop.db",
        "postgres": postgres.new_url,
        "redis": lambda: f"{redis_servers.server().url}?prefix={place.name}",
    }
    monkeypatch.setenv("DIBS_URL", urls[kind]())
    with Serving(cwd=place) as server, Dibs(server.url) as app:

        @app.task(name="shop.endless", queue="slow")
        async def endless() -> None: ...

        worker = start("worker", "shop:app", "--queues", "slow", "--name", "w1")
        try:
            handle = endless.enqueue()
            eventually(lambda: app.handle(handle.id).refresh().progress is not None, "the task has not started")
        finally:
            worker.kill()
            finish(worker)
        eventually(lambda: app.handle(handle.id).refresh().state != "running", "it was not taken back")
        assert "taken back from worker w1" in server.wait_for("taken back")
        app.close()
        assert server.stop() == 0


def test_tokens_are_needed_where_a_file_of_them_is_given(cli: Cli, place: Path) -> None:
    secret = cli("tokens", "create", "ci", "--scope", "read").out.strip()
    with Serving("--tokens", "dibs-tokens.json", "--host", "0.0.0.0", cwd=place) as server:
        assert "tokens are needed" in server.wait_for(" serves ")
        assert server.request()[0] == 401
        assert server.request(Authorization=f"Bearer {secret}")[0] == 200
        cli("tokens", "revoke", "ci")
        eventually(lambda: server.request(Authorization=f"Bearer {secret}")[0] == 401, "it is still accepted")
        assert server.stop() == 0
    assert secret not in server.log


def test_a_file_without_tokens_is_said_to_be(place: Path) -> None:
    with Serving("--tokens", "none.json", cwd=place) as server:
        assert "dibs tokens create" in server.wait_for("no tokens yet")
        assert server.request()[0] == 401
        assert server.stop() == 0


def test_a_store_in_memory_comes_with_a_warning(place: Path) -> None:
    with Serving("--url", "memory://", cwd=place) as server:
        assert "gone when the server stops" in server.wait_for("WARNING")
        assert server.request()[0] == 200
        assert server.stop() == 0


def test_requests_are_logged_if_wanted(place: Path) -> None:
    with Serving("--access-log", cwd=place) as server:
        server.request()
        assert "/api/v1/engine/about" in server.wait_for("uvicorn.access")
        assert server.stop() == 0
    with Serving("--json-logs", "--log-level", "warning", cwd=place, env={**os.environ}) as server:
        server.process.send_signal(signal.SIGTERM)
        server.finish()
    assert server.lines == []


# Several processes.


def test_several_processes_share_a_port_and_stop_together(place: Path) -> None:
    with Serving("shop:app", "--workers", "2", cwd=place) as server:
        server.wait_for(" serves ", times=2)
        children = psutil.Process(server.process.pid).children()
        assert len(children) == 2
        places = {line.split(" at ")[1].split()[0] for line in server.lines if " serves " in line}
        assert places == {server.url}
        with ExitStack() as connections:
            for _ in range(20):
                connections.enter_context(socket.create_connection(server.place))
            for child in children:
                eventually(lambda child=child: connected(child), "one process accepts nothing")
        assert {server.request()[0] for _ in range(10)} == {200}
        port = server.place[1]
        with Serving("--workers", "2", "--port", str(port), cwd=place) as second:
            assert second.finish() == 1, "another server may not share it unasked"
        assert f"Port {port} of 127.0.0.1 is in use" in second.log
        children[0].kill()
        server.wait_for(" serves ", times=3)
        assert {server.request()[0] for _ in range(10)} == {200}
        assert server.stop() == 0
    assert not any(child.is_running() for child in children)


def connected(process: psutil.Process) -> bool:
    return any(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections("tcp"))


def test_a_child_is_told_the_port_wherever_its_options_end() -> None:
    command = ["python", "-m", "dibs", "serve", "--workers", "2", "--", "shop:app"]
    assert child_command(command, 80)[4:] == ["--shared-port", "80", "--workers", "2", "--", "shop:app"]


# What it refuses.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], ["without tokens", "dibs tokens create", "--tokens"]),
        (["--host", "::"], ["without tokens"]),
        (["--url", "http://127.0.0.1:1"], ["one can't serve another"]),
        (["--url", "memory://", "--workers", "2"], ["--workers"]),
        (["--workers", "0"], ["--workers"]),
        (["shop:app", "--url", "memory://"], ["--url", "MODULE:APP"]),
        (["shop:nothing"], ["nothing"]),
        (["--trust-proxy", "proxy.example.com"], ["proxy.example.com", "10.0.0.0/8"]),
        (["--tls-cert", "shop.py"], ["--tls-key"]),
        (["--tls-cert", "no.pem", "--tls-key", "no.pem"], ["no.pem"]),
        (["--tls-cert", "shop.py", "--tls-key", "shop.py"], ["shop.py", "certificate"]),
        (["--port", "70000"], ["port"]),
        (["--rate", "0"], ["--rate"]),
        (["--max-body-mib", "0"], ["--max-body-mib"]),
        (["--shutdown-timeout", "soon"], ["soon"]),
        (["--log-level", "loud"], ["loud"]),
    ],
)
def test_what_is_wrong_is_refused(cli: Cli, options: list[str], words: list[str]) -> None:
    cli("serve", *options).refused(2, *words)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "httptools", "websockets"])
def test_what_is_not_installed_is_named(place: Path, missing: str) -> None:
    program = f"import sys; sys.modules['{missing}'] = None; from dibs.cli.main import run; sys.exit(run(sys.argv[1:]))"

    def said(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    for arguments in (["serve"], ["tokens", "list"]):
        answer = said(*arguments)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert answer.stderr == f"Dibs {arguments[0]} needs more: pip install 'dibs[server]'.\n"
    assert "serve" in said("--help").stdout
