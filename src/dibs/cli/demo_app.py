"""The app whose workers `dibs demo` starts: ordinary tasks, and some that go wrong on purpose."""

from __future__ import annotations

import asyncio
import time

from dibs.client.app import Dibs
from dibs.errors import Permanent
from dibs.worker.context import Context

__all__ = ["QUEUES", "app", "make_app"]

QUEUES = ("mail", "reports", "images")


def seconds_for(number: int) -> float:
    """Between 60 and 160 ms of pretended work, the same for the same number."""
    return 0.06 + number % 9 * 0.0125


def make_app(url: str | None = None) -> Dibs:
    """The demo's tasks on a store; without a URL, on the one that DIBS_URL names."""
    app = Dibs(url, retry_base=0.2)

    @app.task(name="demo.send_mail", queue="mail")
    async def send_mail(number: int) -> int:
        await asyncio.sleep(seconds_for(number))
        return number

    @app.task(name="demo.build_report", queue="reports")
    async def build_report(number: int) -> int:
        await asyncio.sleep(seconds_for(number))
        return number

    @app.task(name="demo.resize_image", queue="images")
    def resize_image(number: int) -> int:
        time.sleep(seconds_for(number))
        return number

    @app.task(name="demo.flaky", queue="mail", retries=5)
    async def flaky(ctx: Context, number: int, failures: int) -> int:
        await asyncio.sleep(0.02)
        if ctx.attempt <= failures:
            raise ConnectionError("the mail server hung up")
        return number

    @app.task(name="demo.doomed", queue="reports", retries=1)
    async def doomed(number: int) -> int:
        await asyncio.sleep(0.02)
        raise RuntimeError("division by politics")

    @app.task(name="demo.malformed", queue="images")
    async def malformed(number: int) -> int:
        raise Permanent("not an image at all")

    @app.task(name="demo.endless", queue="reports", priority="critical")
    async def endless(number: int) -> int:
        await asyncio.sleep(3600)
        return number

    return app


app = make_app()
