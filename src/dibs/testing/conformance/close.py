"""close: a closed engine may be opened again."""

from __future__ import annotations

from dibs.core.states import State
from dibs.engines.values import Feature
from dibs.testing.conformance.harness import Harness


async def test_closed_engine_may_be_opened_again(harness: Harness) -> None:
    task_id = await harness.add()
    await harness.engine.close()
    await harness.engine.close()
    await harness.engine.open()
    if Feature.DURABLE in harness.engine.features:
        assert await harness.state(task_id) is State.PENDING
    else:
        await harness.add()
