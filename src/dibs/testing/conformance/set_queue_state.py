"""set_queue_state: what a queue takes in and hands out."""

from __future__ import annotations

from dibs.core.task import QueueState
from dibs.engines.values import Changed
from dibs.testing.conformance.harness import QUEUE, Harness


async def test_states(harness: Harness) -> None:
    await harness.add()
    for state in (QueueState.PAUSED, QueueState.DRAINING, QueueState.ACTIVE):
        assert await harness.engine.set_queue_state(QUEUE, state, now=harness.now) is Changed.DONE
        assert await harness.engine.set_queue_state(QUEUE, state, now=harness.now) is Changed.UNCHANGED
        record = await harness.queue()
        assert record is not None
        assert record.state is state
    assert await harness.engine.set_queue_state("nowhere", QueueState.PAUSED, now=harness.now) is Changed.UNKNOWN
    assert await harness.queue("nowhere") is None
