"""open: without harm; the clock is the store's own from then on."""

from __future__ import annotations

from dibs.core.states import State
from dibs.testing.conformance.harness import Harness


async def test_twice_is_once(harness: Harness) -> None:
    task_id = await harness.add()
    await harness.engine.open()
    assert await harness.state(task_id) is State.PENDING


async def test_the_clock_is_the_stores_own(harness: Harness) -> None:
    first, second = harness.new(), harness.new(delay=3_600_000_000)
    await harness.engine.enqueue([first])
    await harness.engine.enqueue([second])
    one, two = await harness.record(first.id), await harness.record(second.id)
    assert one.state is State.PENDING
    assert two.due_at == two.created_at + 3_600_000_000
    assert one.created_at <= two.created_at
    claimed = await harness.engine.claim(harness.request(5))
    assert [task.id for task in claimed.tasks] == [first.id]


async def test_a_store_that_exists_is_opened_without_creating(harness: Harness) -> None:
    task_id = await harness.add()
    await harness.engine.open(create=False)
    assert await harness.state(task_id) is State.PENDING
    await harness.engine.close()
    await harness.engine.open(create=False)
    assert await harness.state(task_id) is State.PENDING
