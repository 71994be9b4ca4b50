"""set_worker_state: obeyed at the next beat."""

from __future__ import annotations

from dibs.core.task import WorkerState
from dibs.engines.values import Changed
from dibs.testing.conformance.harness import Harness


async def test_a_state_is_obeyed_at_the_next_beat(harness: Harness) -> None:
    beat = harness.new_beat("w")
    await harness.engine.beat(beat, now=harness.now)
    for state in (WorkerState.PAUSED, WorkerState.DRAINING, WorkerState.ACTIVE):
        assert await harness.engine.set_worker_state("w", state, now=harness.now) is Changed.DONE
        assert await harness.engine.set_worker_state("w", state, now=harness.now) is Changed.UNCHANGED
        assert await harness.engine.beat(beat, now=harness.now) is state
        record = await harness.worker("w")
        assert record is not None
        assert record.state is state


async def test_unknown_worker(harness: Harness) -> None:
    answer = await harness.engine.set_worker_state("nobody", WorkerState.PAUSED, now=harness.now)
    assert answer is Changed.UNKNOWN
    assert await harness.engine.workers() == []
