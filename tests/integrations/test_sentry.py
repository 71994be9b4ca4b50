"""Sentry, as the guide sets it up: its SDK in a worker of its own, which sends events to a server in this process."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

TASKS = """
import asyncio
import logging

from dibs import Context, Dibs

app = Dibs(retries=0, retry_base=0)


@app.task(queue="mail")
def in_thread() -> None:
    raise LookupError("gone")


@app.task(queue="mail")
async def on_loop() -> None:
    raise LookupError("gone")


@app.task(queue="mail", executor="process")
def in_process() -> None:
    raise LookupError("gone")


@app.task(queue="mail", timeout=0.05)
async def too_long() -> None:
    await asyncio.get_running_loop().create_future()


@app.task(queue="mail", retries=1)
def at_last(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise LookupError("not yet")


@app.task(queue="mail")
def complains() -> None:
    logging.getLogger("shop").error("the letter is empty")


def enqueue() -> None:
    with app:
        for task in (in_thread, on_loop, in_process, too_long, at_last, complains):
            task.enqueue()
"""

DIE = ("in_thread", "on_loop", "in_process")


class Sentry:
    """Keeps the events that it is sent."""

    def __init__(self) -> None:
        events = self.events = list[dict[str, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                events.extend(events_in(body))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing is to be said of it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.dsn = f"http://key@127.0.0.1:{self.server.server_port}/1"


def events_in(envelope: bytes) -> Iterator[dict[str, Any]]:
    """An envelope has a line about itself, and then for each item a line about it and one with it."""
    _, *lines = [json.loads(line) for line in envelope.splitlines() if line]
    for about, item in zip(lines[::2], lines[1::2], strict=True):
        if about["type"] == "event":
            yield item


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What Sentry is sent while a worker runs all the tasks, set up as the guide says."""
    folder, sentry = tmp_path_factory.mktemp("sentry"), Sentry()
    (folder / "shop.py").write_text(set_up(sentry.dsn) + TASKS)
    environment = {**os.environ, "DIBS_URL": f"sqlite:///{folder}/tasks.db"}
    thread = threading.Thread(target=sentry.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        for words in (["-c", "import shop; shop.enqueue()"], ["-m", "dibs", "worker", "shop:app", "--until-idle"]):
            ended = subprocess.run(
                [sys.executable, *words],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert ended.returncode == 0, ended.stderr
    finally:
        sentry.server.shutdown()
        sentry.server.server_close()
        thread.join()
    return sentry.events


def set_up(dsn: str) -> str:
    """The Python of the guide, with the address of a Sentry that is there."""
    section = (ROOT / "docs" / "guides" / "logging.md").read_text().split("\n## Sentry\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"^```py\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert code.count('"https://…"') == 1
    return code.replace("https://…", dsn)


def of_task(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["extra"].get("task_name") == f"shop.{name}"]


@pytest.mark.parametrize("name", DIE)
def test_a_death_is_one_event_wherever_the_task_ran(events: list[dict[str, Any]], name: str) -> None:
    (event,) = of_task(events, name)
    assert (event["level"], event["logger"]) == ("error", "dibs.worker")
    facts = event["extra"]
    assert (facts["queue"], facts["attempt"], facts["error_type"]) == ("mail", 1, "LookupError")
    assert f"shop.{name} {facts['task_id']} is dead" in event["logentry"]["formatted"]
    first, *_, raised, last = facts["traceback"].splitlines()
    assert first == "Traceback (most recent call last):"
    assert (raised.strip(), last) == ('raise LookupError("gone")', "LookupError: gone")


def test_a_timeout_is_one_event(events: list[dict[str, Any]]) -> None:
    (event,) = of_task(events, "too_long")
    assert event["extra"]["error_type"] == "TimeoutError"
    assert "timed out and is dead" in event["logentry"]["formatted"]


def test_a_retry_is_no_event(events: list[dict[str, Any]]) -> None:
    assert of_task(events, "at_last") == []


def test_what_a_task_logs_as_an_error_is_an_event_that_names_the_task(events: list[dict[str, Any]]) -> None:
    (event,) = of_task(events, "complains")
    assert (event["logger"], event["logentry"]["formatted"]) == ("shop", "the letter is empty")
    assert (event["extra"]["queue"], "fingerprint" in event) == ("mail", False)


def test_deaths_are_grouped_by_task_and_type_of_error(events: list[dict[str, Any]]) -> None:
    """By default Sentry compares the record's text without its values, which all deaths share."""
    deaths = [event for event in events if event["logger"] == "dibs.worker"]
    assert len({event["logentry"]["message"] for event in deaths}) == 1
    grouped = {tuple(event["fingerprint"]) for event in deaths}
    assert grouped == {*((f"shop.{name}", "LookupError") for name in DIE), ("shop.too_long", "TimeoutError")}
