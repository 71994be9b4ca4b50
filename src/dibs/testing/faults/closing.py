"""An engine is closed while calls are under way: each ends, and what was answered is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dibs.core.states import State
from dibs.core.task import Outcome, Settlement
from dibs.core.times import HOUR
from dibs.engines.base import Engine
from dibs.engines.values import EnqueueOutcome, SettleOutcome
from dibs.errors import DibsError
from dibs.testing.conformance.harness import QUEUE, Harness, lease_of
from dibs.testing.faults.contents import contents

CALLS = 12
STEPS = (0, 1, 3, 8)
"""How often the loop goes round before the engine is closed."""


@asynccontextmanager
async def sibling_of(engine: Engine) -> AsyncIterator[Engine]:
    """Another engine on the store, open all the time: a store that is not durable lives on with it."""
    sibling = engine.sibling()
    await sibling.open()
    try:
        yield sibling
    finally:
        await sibling.close()


async def go_round(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)


async def test_enqueues_under_way(harness: Harness) -> None:
    async with sibling_of(harness.engine) as sibling:
        for steps in STEPS:
            tasks = [harness.new() for _ in range(CALLS)]
            calls = [asyncio.create_task(harness.engine.enqueue([task], now=harness.now)) for task in tasks]
            await go_round(steps)
            await harness.engine.close()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            stored = await sibling.get([task.id for task in tasks])
            for end, record in zip(ends, stored, strict=True):
                assert isinstance(end, list | DibsError), f"a call ended with {end!r}"
                assert isinstance(end, DibsError) or record is not None, "an answered enqueue is not stored"
            again = await sibling.enqueue(tasks, now=harness.now)
            known = {True: EnqueueOutcome.EXISTS, False: EnqueueOutcome.ENQUEUED}
            assert [answer.outcome for answer in again] == [known[record is not None] for record in stored]
            await contents(sibling, harness.now)
            await harness.engine.open()


async def test_settlements_under_way(harness: Harness) -> None:
    async with sibling_of(harness.engine) as sibling:
        for steps in STEPS:
            await harness.add_many(CALLS)
            running = await harness.claim(CALLS)
            reports = [Settlement(lease=lease_of(task), outcome=Outcome.COMPLETED) for task in running]
            calls = [asyncio.create_task(harness.engine.settle([report], now=harness.now)) for report in reports]
            await go_round(steps)
            await harness.engine.close()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            again = await sibling.settle(reports, now=harness.now)
            for end, answer in zip(ends, again, strict=True):
                assert isinstance(end, list | DibsError), f"a call ended with {end!r}"
                if not isinstance(end, DibsError):
                    assert answer.outcome is SettleOutcome.ALREADY, "an answered settlement is not stored"
                assert answer.state is State.COMPLETED
            await contents(sibling, harness.now)
            await harness.engine.open()


async def test_claims_under_way_lose_nothing(harness: Harness) -> None:
    async with sibling_of(harness.engine) as sibling:
        ids = await harness.add_many(CALLS * len(STEPS))
        for steps in STEPS:
            requests = [harness.request() for _ in range(CALLS)]
            calls = [asyncio.create_task(harness.engine.claim(request, now=harness.now)) for request in requests]
            await go_round(steps)
            await harness.engine.close()
            for end in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(end, DibsError) or hasattr(end, "tasks"), f"a call ended with {end!r}"
            await harness.engine.open()
        harness.later(HOUR)
        await sibling.rescue(now=harness.now)
        await contents(sibling, harness.now)
        counts = (await sibling.counts()).tasks[QUEUE]
        assert counts[State.PENDING] + counts[State.RETRYING] == len(ids)
