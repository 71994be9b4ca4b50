"""A caller gives up while its call is under way: the call has taken effect or not, and its repeat makes it so once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from dibs.engines.base import Engine
from dibs.testing.conformance.harness import Harness
from dibs.testing.faults.calls import Call, Prepare
from dibs.testing.faults.contents import contents

__all__ = ["check"]

STEPS = (1, 2, 3, 5, 8, 13, 21)
"""The suspensions of a call at which its caller gives up, one after the other."""

TRIES = 200
PAUSE_SECONDS = 0.05


class GivingUp(Coroutine[Any, Any, object]):
    """A call whose task is cancelled when it suspends for the nth time."""

    def __init__(self, work: Coroutine[Any, Any, object], step: int) -> None:
        self.work = work
        self.left = step

    def send(self, value: Any) -> Any:
        return self.suspend(self.work.send(value))

    def throw(self, *error: Any) -> Any:
        return self.suspend(self.work.throw(*error))

    def close(self) -> None:
        self.work.close()

    def suspend(self, awaited: Any) -> Any:
        self.left -= 1
        task = asyncio.current_task()
        if self.left == 0 and task is not None:
            task.cancel()
        return awaited

    def __await__(self) -> Generator[Any, Any, object]:
        return self.work.__await__()


async def check(prepare: Prepare, harness: Harness) -> None:
    reference = await prepare(harness, "reference")
    assert await reference.send(harness.engine, False) == reference.first
    wanted = await counts_of(harness.engine, "reference")
    call = reference
    for step in STEPS:
        name = f"given-up-{step}"
        call = await prepare(harness, name)
        attempt = asyncio.create_task(GivingUp(call.send(harness.engine, False), step))
        await asyncio.wait([attempt])
        if not attempt.cancelled():
            assert attempt.result() == call.first
            break
        await repeat(call, harness.engine, name, wanted)
        assert await call.send(harness.engine, True) == call.again
    before = await contents(harness.engine, harness.now)
    assert await call.send(harness.engine, True) == call.again
    assert await contents(harness.engine, harness.now) == before


async def repeat(call: Call, engine: Engine, name: str, wanted: object) -> None:
    """Repeat a call until its queue is as the call leaves it. What was given up may hold a task or a schedule a little
    longer, and claims and fires pass over what others hold."""
    for _ in range(TRIES):
        await call.send(engine, True)
        if await counts_of(engine, name) == wanted:
            return
        await asyncio.sleep(PAUSE_SECONDS)
    raise AssertionError(f"{name} has {await counts_of(engine, name)!r}, not {wanted!r}")


async def counts_of(engine: Engine, queue: str) -> object:
    counts = await engine.counts()
    return counts.tasks.get(queue), counts.counters.get(queue)
