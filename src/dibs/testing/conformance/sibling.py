"""sibling: another engine on the same store."""

from __future__ import annotations

from dibs.core.states import State
from dibs.testing.conformance.harness import Harness


async def test_sibling_sees_the_same_store(harness: Harness) -> None:
    task_id = await harness.add()
    sibling = harness.engine.sibling()
    await sibling.open()
    (record,) = await sibling.get([task_id])
    assert record == await harness.record(task_id)
    await sibling.close()
    assert await harness.state(task_id) is State.PENDING
