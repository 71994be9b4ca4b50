"""steps: the records of background steps, by id or newest first."""

from __future__ import annotations

from dibs.core.policy import KEEP_STEPS
from dibs.core.times import HOUR
from dibs.engines.values import Cancel, Query
from dibs.testing.conformance.harness import Harness


async def test_newest_first_with_a_limit(harness: Harness) -> None:
    await harness.add()
    asked = [harness.new_id() for _ in range(4)]
    for step in asked:
        await harness.engine.act_on(step, Query(), Cancel(""), now=harness.now)
    newest = list(reversed(asked))
    assert [record.id for record in await harness.engine.steps()] == newest
    assert [record.id for record in await harness.engine.steps(limit=2)] == newest[:2]
    assert [record.id for record in await harness.engine.steps(limit=9, before=newest[1])] == newest[2:]


async def test_by_id(harness: Harness) -> None:
    await harness.add()
    first, second = harness.new_id(), harness.new_id()
    for step in (first, second):
        await harness.engine.act_on(step, Query(), Cancel(""), now=harness.now)
    found = await harness.engine.steps([second, harness.new_id(), "nonsense", first])
    assert [record.id for record in found] == [second, first]


async def test_none(harness: Harness) -> None:
    assert await harness.engine.steps() == []
    assert await harness.engine.steps([]) == []


async def test_ended_ones_are_kept_for_a_while(harness: Harness) -> None:
    await harness.add()
    ended, going_on = harness.new_id(), harness.new_id()
    for step in (ended, going_on):
        await harness.engine.act_on(step, Query(), Cancel(""), now=harness.now)
    await harness.engine.advance(ended, now=harness.now)
    harness.later(KEEP_STEPS - HOUR)
    await harness.finish_chore("prune_steps")
    assert len(await harness.engine.steps()) == 2
    harness.later(HOUR)
    await harness.finish_chore("prune_steps")
    assert [record.id for record in await harness.engine.steps()] == [going_on]
