"""The guides about the server are true: their commands run against one, and no route is forgotten."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.server.http import Route
from dibs.server.server import DOCUMENTED
from dibs.server.tokens import TokenFile, new_token
from servers.server_process import PATIENCE, Serving

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8642"
RUNNING = re.compile(r"running on (http://\S+) ")

with_curl = pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")


def blocks(guide: str, language: str) -> list[str]:
    return [text for name, text in FENCE.findall((GUIDES / guide).read_text()) if name == language]


def is_listening(block: str) -> bool:
    return "curl -sN" in block


def is_session(block: str) -> bool:
    """Not one of Dibs's own commands, which test_guides parses."""
    return not is_listening(block) and not re.search(r"^dibs ", block, re.MULTILINE)


def shell(script: str, folder: Path) -> subprocess.Popen[str]:
    """A script in which every command must succeed, and every answer must be one."""
    (folder / ".curlrc").write_text("fail-with-body\n")
    environment = {**os.environ, "CURL_HOME": str(folder), "NO_PROXY": "127.0.0.1"}
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with Serving("--url", f"sqlite:///{tmp_path}/tasks.db", cwd=tmp_path) as serving:
        yield serving


@with_curl
@pytest.mark.parametrize(
    ("guide", "said", "heard"),
    [
        ("server.md", ['"status":"pending"', "no worker serves queue"], "task.submitted"),
        ("http-api.md", ['"duplicate":true', '"dry_run":true', '"outcome":"held"', '{"sent":true}'], "task.completed"),
    ],
)
def test_the_sessions_of_a_guide_work(guide: str, said: list[str], heard: str, server: Serving, tmp_path: Path) -> None:
    found = [block.replace(ADDRESS, server.url) for block in blocks(guide, "sh") if ADDRESS in block]
    (listening,) = filter(is_listening, found)
    listener = shell(f"exec {listening}", tmp_path)
    try:
        assert listener.stdout is not None
        assert next(line for line in listener.stdout if "subscribed" in line)
        doing = shell("\n".join(filter(is_session, found)), tmp_path)
        printed = doing.communicate(timeout=PATIENCE)[0]
        assert doing.returncode == 0, printed
        assert [text for text in said if text not in printed] == []
        assert next(line for line in listener.stdout if heard in line)
    finally:
        listener.kill()
        listener.communicate()


def test_a_guide_for_other_machines_runs_through_a_server(tmp_path: Path) -> None:
    secret, token = new_token("worker", ["consume", "produce", "read", "payloads"])
    tokens = tmp_path / "tokens.json"
    TokenFile(tokens).add(token)
    (tmp_path / "shop.py").write_text("\n".join(blocks("remote-workers.md", "python")))
    with Serving("--url", f"sqlite:///{tmp_path}/tasks.db", "--tokens", str(tokens), cwd=tmp_path) as server:
        ended = subprocess.run(
            [sys.executable, "-W", "error", "shop.py"],
            cwd=tmp_path,
            env={**os.environ, "DIBS_URL": server.url, "DIBS_TOKEN": secret},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / "dibs.db").exists()


@with_curl
def test_a_server_in_a_web_app_answers_and_looks_after_its_store(tmp_path: Path) -> None:
    secret, token = new_token("shop", ["produce", "read", "payloads"])
    TokenFile(tmp_path / "tokens.json").add(token)
    (program,) = blocks("server.md", "python")
    (tmp_path / "shop.py").write_text(program)
    command = [sys.executable, "-m", "uvicorn", "shop:web", "--port", "0", "--timeout-graceful-shutdown", "10"]
    web = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert web.stderr is not None
        url = next(running[1] for line in web.stderr if (running := RUNNING.search(line)))
        header = f"-H 'Authorization: Bearer {secret}'"
        asked = shell(f"curl -s -X POST {url}/order; curl -s {header} {url}/queue/api/v1/tasks", tmp_path)
        ordered, _, found = asked.communicate(timeout=PATIENCE)[0].partition("}")
        assert [each["task_id"] for each in json.loads(found)["tasks"]] == [json.loads(ordered + "}")["task"]]
        until, chores = time.monotonic() + PATIENCE, "[]"
        while '"at":"' not in chores and time.monotonic() < until:
            chores = shell(f"curl -s {header} {url}/queue/api/v1/chores", tmp_path).communicate(timeout=PATIENCE)[0]
            time.sleep(0.1)
        assert '"at":"' in chores
        web.send_signal(signal.SIGTERM)
        web.communicate(timeout=PATIENCE)
        assert web.returncode in (0, -signal.SIGTERM)
    finally:
        web.kill()
        web.communicate()


@pytest.mark.parametrize("route", DOCUMENTED, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_on_the_page(route: Route) -> None:
    scope = "no token" if route.is_open else route.scope or "any token"
    row = f"| `{route.method} {route.path}` | {scope} |"
    assert row in (GUIDES / "http-api.md").read_text()


def test_the_page_names_no_other_routes() -> None:
    named = re.findall(r"^\| `([A-Z]+) (/\S+)` \|", (GUIDES / "http-api.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted((route.method, route.path) for route in DOCUMENTED)
