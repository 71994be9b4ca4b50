"""One lifecycle for every part of a worker that runs on its loop until stopped, and how such parts wait and listen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from dibs.engines.base import Engine


class Service:
    """Runs in a task of its own. Starting twice, stopping twice and stopping before the start are fine."""

    name = ""
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        raise NotImplementedError

    def start(self, broke: Callable[[str, BaseException], None]) -> None:
        """`broke` is called with the name and the error if the service ends by one."""
        if self.task is not None and not self.task.done():
            return

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                broke(self.name, error)

        self.task = asyncio.get_running_loop().create_task(self.run(), name=f"dibs-{self.name}")
        self.task.add_done_callback(ended)

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most this long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0.0)):
            await event.wait()


async def listen(engine: Engine, topics: Sequence[str], woken: Callable[[], object]) -> None:
    """Call `woken` at every notification of these topics, until cancelled."""
    subscription = engine.subscribe(topics)
    try:
        while True:
            if await subscription.wait(3600):
                woken()
    finally:
        subscription.close()
