"""A worker process with a schedule, on a SQLite file: `python schedule_app.py URL NAME`."""

from __future__ import annotations

import sys

from dibs.client.app import Dibs
from dibs.worker import WorkerSettings
from dibs.worker.main import run

app = Dibs(sys.argv[1] if __name__ == "__main__" else "memory://")


@app.schedule(every=1, name="tick")
@app.task(name="tick")
async def tick() -> None: ...


if __name__ == "__main__":
    sys.exit(run(app.hub, WorkerSettings(name=sys.argv[2])))
