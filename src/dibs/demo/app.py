"""The app whose workers `dibs demo` starts: ordinary tasks, and some that go wrong on purpose."""

from __future__ import annotations

import asyncio
import time

from dibs.attempt.context import Context
from dibs.client.app import Dibs
from dibs.errors import Permanent

__all__ = ["QUEUES", "TICKS", "app", "make_app"]

QUEUES = ("mail", "reports", "images", "billing", "imports")
TICKS = "ticks"
"""Where the tasks of the demo's schedule go."""


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

    add_special_tasks(app)
    add_trouble(app)
    return app


def add_special_tasks(app: Dibs) -> None:
    """Tasks with a limit per customer, of tenants, of a workflow and of a schedule."""

    @app.task(name="demo.charge", queue="billing", per="customer")
    async def charge(number: int, customer: str) -> int:
        await asyncio.sleep(seconds_for(number) / 4)
        return number

    @app.task(name="demo.import_rows", queue="imports")
    async def import_rows(number: int) -> int:
        await asyncio.sleep(seconds_for(number))
        return number

    @app.task(name="demo.look_up_price", queue="reports")
    async def look_up_price(number: int) -> int:
        await asyncio.sleep(seconds_for(number))
        return number

    @app.task(name="demo.add_up", queue="reports")
    async def add_up(prices: list[int]) -> int:
        return sum(prices)

    @app.task(name="demo.tick", queue=TICKS)
    async def tick() -> None:
        pass


def add_trouble(app: Dibs) -> None:
    """Tasks that go wrong on purpose."""

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


app = make_app()
