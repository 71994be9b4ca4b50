"""A worker process whose store goes away: `python outage_app.py URL FOLDER SETTINGS-AS-JSON`.

Every run leaves a line in FOLDER/runs: the task, its lease and this process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from pathlib import Path

from dibs.client.app import Dibs
from dibs.engines.postgres import pool
from dibs.engines.postgres import settling as postgres
from dibs.runtime.rescue import Rescue
from dibs.worker import Context, WorkerSettings
from dibs.worker.main import run

STANDALONE = __name__ == "__main__"
app = Dibs(sys.argv[1] if STANDALONE else "memory://")
folder = Path(sys.argv[2] if STANDALONE else ".")


def note(ctx: Context) -> None:
    """One write of less than a page to a file that is only appended to: lines of several processes don't mix."""
    with (folder / "runs").open("a") as file:
        file.write(f"{ctx.id} {ctx.lease} {os.getpid()}\n")


@app.task(name="quick")
async def quick(ctx: Context) -> int:
    note(ctx)
    return ctx.lease


@app.task(name="hold")
async def hold(ctx: Context, gate: str) -> str:
    """Runs until the file FOLDER/GATE is there."""
    note(ctx)
    while not (folder / gate).exists():
        await asyncio.sleep(0.1)
    return "marked"


@app.task(name="hold_thread")
def hold_thread(ctx: Context, gate: str) -> str:
    """The same in a thread, which nobody can stop."""
    note(ctx)
    while not (folder / gate).exists():
        threading.Event().wait(0.1)
    return "marked"


if STANDALONE:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    settings = json.loads(sys.argv[3])
    pool.LONGEST_SILENCE = settings.pop("silence", pool.LONGEST_SILENCE)
    if settings.pop("is_known", False):  # as if it had been there for long: newcomers take no leases that have ended
        postgres.NEWCOMER_SECONDS = 0.0
        Rescue.newcomer_for = lambda self: 0.0  # type: ignore[method-assign]
    sys.exit(run(app.hub, WorkerSettings(queues=tuple(settings.pop("queues", ("default",))), **settings)))
