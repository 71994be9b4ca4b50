"""open, close, sibling, check: an engine says what it is, and comes and goes without harm."""

from __future__ import annotations

from dibs.core.states import State
from dibs.engines.values import Feature, Level
from dibs.testing.conformance.harness import Harness


async def test_twice_is_once(harness: Harness) -> None:
    task_id = await harness.add()
    await harness.engine.open()
    assert await harness.state(task_id) is State.PENDING


async def test_closed_engine_may_be_opened_again(harness: Harness) -> None:
    task_id = await harness.add()
    await harness.engine.close()
    await harness.engine.close()
    await harness.engine.open()
    if Feature.DURABLE in harness.engine.features:
        assert await harness.state(task_id) is State.PENDING
    else:
        await harness.add()


async def test_says_what_it_is(harness: Harness) -> None:
    assert (await harness.engine.about()).durability.endswith(".")
    assert all(isinstance(feature, Feature) for feature in harness.engine.features)


async def test_healthy_when_new(harness: Harness) -> None:
    await harness.add()
    for full in (False, True):
        findings = await harness.engine.check(full=full)
        assert [finding for finding in findings if finding.level is Level.ERROR] == []


async def test_open_engine_has_nothing_to_migrate(harness: Harness) -> None:
    assert await harness.engine.migrations() == []


async def test_sibling_sees_the_same_store(harness: Harness) -> None:
    task_id = await harness.add()
    sibling = harness.engine.sibling()
    await sibling.open()
    (record,) = await sibling.get([task_id])
    assert record == await harness.record(task_id)
    await sibling.close()
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
