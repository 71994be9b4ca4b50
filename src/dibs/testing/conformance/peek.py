"""peek: the next tasks of a queue in claim order, untouched."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import QueueState
from dibs.core.times import HOUR
from dibs.testing.conformance.harness import QUEUE, Harness


async def test_is_what_claims_will_give(harness: Harness) -> None:
    for priority in (30, 90, 50, 70, 50, 0, 100):
        await harness.add(priority=priority)
    expected = await harness.peek()
    assert await harness.peek() == expected
    assert await harness.peek(limit=3) == expected[:3]
    assert await harness.counts() == {State.PENDING: 7}
    assert await harness.claim_ids(100) == expected
    assert await harness.peek() == []


async def test_whoever_could_run_them(harness: Harness) -> None:
    special = await harness.add(requires=("gpu",), name="rare", priority=90)
    plain = await harness.add()
    assert await harness.peek() == [special, plain]


async def test_whatever_state_the_queue_is_in(harness: Harness) -> None:
    task_id = await harness.add()
    for state in (QueueState.PAUSED, QueueState.DRAINING):
        await harness.engine.set_queue_state(QUEUE, state, now=harness.now)
        assert await harness.peek() == [task_id]


async def test_pending_tasks_of_this_queue_only(harness: Harness) -> None:
    await harness.add(delay=HOUR)
    await harness.add(queue="other")
    await harness.start()
    task_id = await harness.add()
    assert await harness.peek() == [task_id]


async def test_limits_do_not_hide_tasks(harness: Harness) -> None:
    await harness.set_queue(max_concurrent=1, rate=1.0)
    ids = await harness.add_many(4)
    assert await harness.peek() == ids


async def test_unknown_queue(harness: Harness) -> None:
    assert await harness.peek("nowhere") == []
    assert await harness.engine.queues() == []


async def test_lanes_are_merged(harness: Harness) -> None:
    await harness.set_queue(aging=60, max_aging_bonus=10)
    old = await harness.add(priority=50)
    harness.later(HOUR)
    await harness.rerank()
    assert (await harness.record(old)).lane == 1
    low, high = await harness.add(priority=55), await harness.add(priority=65)
    assert await harness.peek() == [high, old, low]
    assert await harness.claim_ids(5) == [high, old, low]
