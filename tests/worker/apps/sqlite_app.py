"""A worker process on a SQLite file: `python sqlite_app.py URL SETTINGS-AS-JSON [PROCESSES]`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from dibs.client.app import Dibs
from dibs.runtime import rescue
from dibs.worker import Context, WorkerSettings, main
from dibs.worker.supervisor import supervise

app = Dibs(sys.argv[1] if __name__ == "__main__" else "memory://")


def say(file: str, text: str) -> None:
    """Write a line so that a reader sees all of it or nothing."""
    part = Path(f"{file}.{os.getpid()}.part")
    part.write_text(text)
    part.rename(file)


def say_run(file: str) -> int:
    """Leave FILE.1 in the first run, FILE.2 in the second."""
    number = next(number for number in range(1, 100) if not Path(f"{file}.{number}").exists())
    say(f"{file}.{number}", str(os.getpid()))
    return number


@app.task(name="hold")
async def hold(ctx: Context, file: str) -> str:
    """Says which run it is. The first one ends only when FILE.go appears, later ones at once."""
    number = say_run(file)
    while number == 1 and not Path(f"{file}.go").exists():
        await asyncio.sleep(0.01)
    return f"by run {number}"


@app.task(name="hold_in_thread")
def hold_in_thread(ctx: Context, file: str) -> str:
    number = say_run(file)
    if number == 1:
        threading.Event().wait(60)
    return f"by run {number}"


@app.task(name="block")
async def block(ctx: Context, file: str) -> None:
    """Blocks the event loop, deaf to everything."""
    say_run(file)
    threading.Event().wait(60)


@app.task(name="kill")
async def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="neighbour")
async def neighbour(number: int) -> int:
    await asyncio.sleep(0.1)
    return number


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
    if len(sys.argv) > 3:
        sys.exit(supervise([sys.executable, *sys.argv[:3]], int(sys.argv[3])))
    settings = json.loads(sys.argv[2])
    rescue.HOLD_OFF = settings.pop("hold_off", rescue.HOLD_OFF)
    main.PATIENCE = settings.pop("patience", main.PATIENCE)
    queues = tuple(settings.pop("queues", ()))
    sys.exit(main.run(app.hub, WorkerSettings(queues=queues, **settings)))
