"""dibs events: a line, or a JSON object, per event."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from dibs import Dibs


def test_it_follows_what_happens(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    with Dibs(url) as app:

        @app.task(name="add", queue="sums")
        def add(a: int, b: int) -> int:
            return a + b

        first = add.enqueue(1, 1)
        with app.events("task") as ours:  # so that there is a cursor to go on from
            cursor = ours.cursor
            assert cursor is not None
            second = add.enqueue(2, 2)
            with app.worker():
                assert app.wait([first, second])
        command = [sys.executable, "-m", "dibs", "events", "task", "--limit", "3", "--cursor", cursor, "--url", url]
        lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
        assert [re.split(r"\s+", line)[1] for line in lines] == ["task.submitted", "task.started", "task.started"]
        assert second.id in lines[0]
        printed = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True, timeout=60).stdout
        events = [json.loads(line) for line in printed.splitlines()]
        assert [event["type"] for event in events] == ["task.submitted", "task.started", "task.started"]
        assert events[0]["data"]["task_id"] == second.id
