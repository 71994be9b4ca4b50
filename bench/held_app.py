"""The worker's side of `held.py`: tasks that tell how late they started, and how long the worker's claims took."""

from __future__ import annotations

import json
import os
import socket
import threading
import time

from dibs import Dibs

__all__ = ["app", "make_app"]

listener_thread = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener_thread.connect(("127.0.0.1", int(os.environ.get("BENCH_PORT", "9"))))
late: list[int] = []
EVERY = 0.1
CHUNK = 2000


def make_app(url: str | None = None) -> Dibs:
    """Without a URL, on the store that DIBS_URL names."""
    app = Dibs(url)

    @app.task(name="held.nothing", queue="held")
    async def nothing(sent: float) -> None:
        late.append(round((time.time() - sent) * 1_000_000))

    return app


def tell() -> None:
    """How many microseconds late tasks have started since the last time; all claims so far, by how long they took."""
    while True:
        time.sleep(EVERY)
        meter = app.hub.meters.read().get("claim")
        told = late[:CHUNK]
        del late[: len(told)]  # one step of the interpreter: tasks may go on appending
        listener_thread.send(json.dumps([told, meter.took if meter else {}]).encode())


app = make_app()

if "BENCH_PORT" in os.environ:
    threading.Thread(target=tell, daemon=True).start()
