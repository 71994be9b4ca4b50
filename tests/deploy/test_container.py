"""The Containerfile and compose.yaml: they parse, fit together, and their small programs run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deploy.command_lines import DEPLOY, MARGIN, ROOT, documents, instructions, option, parsed
from dibs.cli.options import SPAN
from dibs.runtime.environment import VARIABLES
from dibs.server.settings import ServerSettings

CONTAINERFILE = DEPLOY / "Containerfile"
INSTRUCTIONS = list(instructions(CONTAINERFILE))
LAST_STAGE = INSTRUCTIONS[max(n for n, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM") :]
KNOWN = {
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "RUN",
    "STOPSIGNAL",
    "USER",
    "WORKDIR",
}
[COMPOSE] = documents(DEPLOY / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ["server", "worker"]


def last(name: str) -> str:
    return [rest for each, rest in LAST_STAGE if each == name][-1]


def argument(name: str) -> str:
    [value] = {rest.partition("=")[2] for each, rest in INSTRUCTIONS if each == "ARG" and rest.startswith(f"{name}=")}
    return value


def test_the_containerfile_has_only_instructions_that_exist() -> None:
    assert {name for name, _ in INSTRUCTIONS} <= KNOWN
    assert INSTRUCTIONS[0][0] == "ARG"  # the only one that may come before the first FROM
    images = [rest.split(" ")[0] for name, rest in INSTRUCTIONS if name == "FROM"]
    assert images == ["docker.io/library/python:${PYTHON}-slim"] * 2


def test_the_image_runs_dibs_as_a_user_without_rights() -> None:
    assert json.loads(last("ENTRYPOINT")) == ["dibs"]
    assert json.loads(last("CMD")) == ["--help"]
    user, group = last("USER").split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert f"--uid {user} " in last("RUN")
    assert last("STOPSIGNAL") == "SIGTERM"
    assert int(last("EXPOSE")) == ServerSettings().port


def test_the_image_is_built_of_what_there_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(argument("EXTRAS").split(",")) <= set(project["optional-dependencies"])
    assert f"Programming Language :: Python :: {argument('PYTHON')}" in project["classifiers"]
    allowed = [line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    copied = [rest.split(" ")[:-1] for name, rest in INSTRUCTIONS if name == "COPY" and "--from=" not in rest]
    for source in (each for sources in copied for each in sources):
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in allowed), f"{source} is not in the build context"


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server on a port that answers /health with a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_runs(status: int, healthy: bool) -> None:
    program, flag, code = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert (program, flag) == ("python", "-c")
    with answering(status) as port:
        code = code.replace(":8642/", f":{port}/")
        ended = subprocess.run([sys.executable, flag, code], capture_output=True, timeout=30, check=False)
    assert (ended.returncode == 0) is healthy


@pytest.mark.skipif(not shutil.which("hadolint"), reason="hadolint is not installed")
def test_hadolint_finds_nothing() -> None:
    ended = subprocess.run(["hadolint", str(CONTAINERFILE)], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("name", OURS)
def test_a_service_has_a_command_line_that_exists_and_time_to_stop(name: str) -> None:
    service = SERVICES[name]
    context = parsed(service["command"])
    grace = SPAN.convert(service["stop_grace_period"], None, None)
    assert grace >= context.params["shutdown_timeout"] + MARGIN


@pytest.mark.parametrize("name", OURS)
def test_a_service_hands_on_its_secret_and_is_replaced_by_dibs(name: str, tmp_path: Path) -> None:
    """The shell of the entry point, run with a `dibs` that says what it got."""
    service = SERVICES[name]
    [secret] = service["secrets"]
    (tmp_path / secret).write_text("s3cr et\n")
    dibs = tmp_path / "dibs"
    dibs.write_text('#!/bin/sh\nprintf "%s\\n" "$$" "$PGPASSWORD$DIBS_TOKEN" "$@"\n')
    dibs.chmod(0o755)
    words = [word.replace("$$", "$").replace("/run/secrets", str(tmp_path)) for word in service["entrypoint"]]
    running = subprocess.Popen(
        [*words, *service["command"]],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = running.communicate(timeout=30)
    assert output.splitlines() == [str(running.pid), "s3cr et", *service["command"]]


def test_services_name_what_there_is() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"]), name
        named = {volume.partition(":")[0] for volume in service.get("volumes", [])}
        assert {volume for volume in named if not volume.startswith(".")} <= set(COMPOSE["volumes"]), name
        assert all((DEPLOY / volume).is_dir() for volume in named if volume.startswith(".")), name
        for other, on in service.get("depends_on", {}).items():
            assert on == {"condition": "service_healthy"}
            assert "test" in SERVICES[other].get("healthcheck", {}) or other == "server"  # the image has one
    for name in OURS:
        assert set(SERVICES[name]["environment"]) <= set(VARIABLES)
        assert (DEPLOY / SERVICES[name]["build"]["context"] / SERVICES[name]["build"]["dockerfile"]).is_file()


def test_the_services_find_each_other() -> None:
    server, worker = SERVICES["server"], SERVICES["worker"]
    database = urlsplit(server["environment"]["DIBS_URL"])
    assert (database.hostname, database.username) == ("postgres", SERVICES["postgres"]["environment"]["POSTGRES_USER"])
    assert database.path[1:] == SERVICES["postgres"]["environment"]["POSTGRES_DB"]
    url = urlsplit(worker["environment"]["DIBS_URL"])
    assert url.hostname == "server"
    assert url.hostname in option(server["command"], "allow-host")
    assert [str(url.port)] == option(server["command"], "port")
    [published] = server["ports"]
    assert published == f"127.0.0.1:{url.port}:{url.port}"
    [tokens] = option(server["command"], "tokens")
    assert [volume.partition(":")[2] for volume in server["volumes"]] == [str(Path(tokens).parent)]
    assert worker["healthcheck"] == {"disable": True}


def test_the_secrets_are_not_in_the_repository() -> None:
    files = {(DEPLOY / secret["file"]).resolve().relative_to(DEPLOY) for secret in COMPOSE["secrets"].values()}
    assert {f"{file.parent}/" for file in files} == set((DEPLOY / ".gitignore").read_text().split())
