"""What somebody does who may only read a store: `python sqlite_reader.py PATH`. Prints what happened, as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from dibs import Dibs
from dibs.errors import DibsError


def command(url: str, *words: str) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-m", "dibs", *words, "--url", url], capture_output=True, text=True, check=False
    )
    return [done.returncode, done.stdout + done.stderr]


def read(path: str) -> dict[str, object]:
    url = f"sqlite:///{path}"
    told: dict[str, object] = {}
    with Dibs(url) as app:
        work = app.task(lambda: None, name="work")
        try:
            told["found"] = sorted(task.id for task in app.tasks.search().tasks)
            task = app.tasks.search().tasks[0].id
            told["why"] = str(app.why(task))
        except DibsError as error:
            return {"unreadable": str(error)}
        try:
            work.enqueue()
        except DibsError as error:
            told["refused"] = f"{type(error).__name__}: {error}"
        told["still"] = sorted(each.id for each in app.tasks.search().tasks)
    told["list"] = command(url, "tasks", "list")
    told["show"] = command(url, "tasks", "show", task)
    told["doctor"] = command(url, "doctor")
    told["beside"] = sorted(each.name for each in Path(path).parent.iterdir())
    return told


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1])))
