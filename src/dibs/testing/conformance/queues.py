"""queues: by name, from their first task or setting on."""

from __future__ import annotations

from dibs.core.settings import Policy, QueueSettings
from dibs.testing.conformance.harness import QUEUE, Harness

STRICT = QueueSettings(policy=Policy.STRICT)


async def test_by_name(harness: Harness) -> None:
    for name in ("b", "a", "c"):
        await harness.set_queue(name)
    assert [record.name for record in await harness.engine.queues()] == ["a", "b", "c"]


async def test_queue_of_a_first_task_has_version_one(harness: Harness) -> None:
    await harness.add()
    assert await harness.engine.set_queue(QUEUE, STRICT, expected=0, now=harness.now) is None
    assert await harness.engine.set_queue(QUEUE, STRICT, expected=1, now=harness.now) is not None
