"""leave: the worker is gone in good order."""

from __future__ import annotations

from dibs.core.task import WorkerState
from dibs.core.times import HOUR
from dibs.testing.conformance.harness import Harness


async def test_leaving_in_good_order(harness: Harness) -> None:
    await harness.beat("stays", lives_for=HOUR)
    await harness.beat("leaves", lives_for=HOUR)
    await harness.engine.leave("leaves", now=harness.now)
    await harness.engine.leave("leaves", now=harness.now)
    await harness.engine.leave("was never there", now=harness.now)
    alive = [record.id for record in await harness.engine.workers() if record.state is not WorkerState.DEAD]
    assert alive == ["stays"]
