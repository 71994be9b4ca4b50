"""The app that `dibs bench` measures: tasks that do nothing."""

from __future__ import annotations

import time

from dibs.client.app import Dibs

QUEUES = ("bench-enqueue", "bench-drain", "bench-latency")


def make_app(url: str | None = None) -> Dibs:
    """The bench's tasks on a store; without a URL, on the one that DIBS_URL names."""
    app = Dibs(url)

    @app.task(name="bench.nothing", queue="bench-drain")
    async def nothing(number: int) -> int:
        return number

    @app.task(name="bench.started", queue="bench-latency")
    async def started() -> float:
        return time.time()

    return app


app = make_app()
