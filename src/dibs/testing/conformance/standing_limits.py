"""standing: the limits that the start of a task stands under."""

from __future__ import annotations

from dibs.core.limits import LimitState, Scope
from dibs.core.times import SECOND
from dibs.testing.conformance.claim_names import add_to
from dibs.testing.conformance.harness import Harness


async def test_limits_of_a_task_are_told(harness: Harness) -> None:
    await harness.set_queue(
        max_concurrent=5, per_task={"mail": {"rate": 2, "burst": 1}}, per_partition={"max_concurrent": 1}
    )
    first, second = await add_to(harness, "a", "a", name="mail")
    other = await harness.add()
    unused = LimitState(scope=Scope.TASK, whose="mail", running=0, rate=2.0, tokens=1)
    assert await harness.limits(first) == [
        LimitState(scope=Scope.QUEUE, whose="", running=0, max_concurrent=5),
        unused,
        LimitState(scope=Scope.PARTITION, whose="a", running=0, max_concurrent=1),
    ]
    await harness.claim(1)
    harness.later(SECOND // 4)
    found = await harness.limits(second)
    assert found == [
        LimitState(scope=Scope.QUEUE, whose="", running=1, max_concurrent=5),
        LimitState(scope=Scope.TASK, whose="mail", running=1, rate=2.0, tokens=0, opens_in=SECOND // 4),
        LimitState(scope=Scope.PARTITION, whose="a", running=1, max_concurrent=1),
    ]
    assert [limit.is_full for limit in found] == [False, True, True]
    assert [limit.scope for limit in await harness.limits(other)] == [Scope.QUEUE]


async def test_without_limits_there_is_nothing_to_tell(harness: Harness) -> None:
    task_id = await harness.add(partition="a")
    assert await harness.limits(task_id) == []
    assert await harness.limits(harness.new_id()) == []
