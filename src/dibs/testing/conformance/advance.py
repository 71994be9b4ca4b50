"""advance: a step goes on part by part, meets no task twice, and outlives its caller."""

from __future__ import annotations

import asyncio

from msgspec import structs

from dibs.core.policy import ACT_BATCH
from dibs.core.states import State
from dibs.core.task import Edit, Outcome, QueueState, Settlement
from dibs.core.times import HOUR, SECOND
from dibs.engines.steps import ActOnAll, StepRecord
from dibs.engines.values import Cancel, Changed, Purge, Query, Replay
from dibs.testing.conformance.harness import QUEUE, Harness, lease_of


async def ask(harness: Harness, act: ActOnAll, **conditions: object) -> str:
    """Begin to act on all that match; the id of the step."""
    query = structs.replace(Query(), **conditions)
    return (await harness.engine.act_on(harness.new_id(), query, act, actor="ada", now=harness.now)).id


async def go_on(harness: Harness, step: str) -> StepRecord:
    """One part."""
    record = await harness.engine.advance(step, now=harness.now)
    assert record is not None
    return record


async def finish(harness: Harness, step: str) -> StepRecord:
    """All parts that are left."""
    while (record := await go_on(harness, step)).ended_at is None:
        pass
    return record


async def die(harness: Harness, count: int) -> list[str]:
    """Tasks that have been run, and are dead."""
    ids = await harness.add_many(count)
    await kill(harness, count)
    return ids


async def kill(harness: Harness, most: int) -> None:
    """Run pending tasks, which die of it."""
    ends = [Settlement(lease=lease_of(task), outcome=Outcome.PERMANENT) for task in await harness.claim(most)]
    await harness.engine.settle(ends, now=harness.now)


async def test_goes_on_in_bounded_parts(harness: Harness) -> None:
    count = 2 * ACT_BATCH + 20
    await harness.add_many(count)
    step = await ask(harness, Cancel("", "why"))
    first = await go_on(harness, step)
    assert (first.visited, first.changed, first.ended_at) == (ACT_BATCH, ACT_BATCH, None)
    assert await harness.counts() == {State.PENDING: ACT_BATCH + 20, State.CANCELLED: ACT_BATCH}
    harness.later(SECOND)
    last = await finish(harness, step)
    assert (last.visited, last.changed, last.outcome) == (count, count, Changed.DONE)
    assert last.ended_at == harness.now
    assert await harness.counts() == {State.CANCELLED: count}
    assert await harness.engine.steps([step]) == [last]


async def test_replaying_what_dies_again_ends(harness: Harness) -> None:
    count = ACT_BATCH + 20
    ids = await die(harness, count)
    harness.later(SECOND)
    step = await ask(harness, Replay(""))
    record = await go_on(harness, step)
    while record.ended_at is None:
        harness.later(SECOND)
        await kill(harness, count)
        record = await go_on(harness, step)
    await kill(harness, count)
    assert (record.visited, record.changed) == (count, count)
    assert set(await harness.states(*ids[:3], *ids[-3:])) == {State.DEAD}
    assert {entry.actor for entry in await harness.engine.history(ids[0])} >= {"ada"}


async def test_at_one_instant_that_ends_too(harness: Harness) -> None:
    count = ACT_BATCH + 20
    await die(harness, count)
    step = await ask(harness, Replay(""))
    while (await go_on(harness, step)).ended_at is None:
        await kill(harness, count)
    assert (await go_on(harness, step)).changed == count


async def test_leaves_newer_tasks_alone(harness: Harness) -> None:
    old = await harness.add_many(2)
    step = await ask(harness, Cancel(""))
    at_once = await harness.add()
    harness.later(SECOND)
    later = await harness.add()
    record = await finish(harness, step)
    assert (record.visited, record.changed) == (2, 2)
    assert await harness.states(*old, at_once, later) == [State.CANCELLED] * 2 + [State.PENDING] * 2


async def test_leaves_alone_what_ended_later(harness: Harness) -> None:
    waiting = await harness.add(delay=HOUR)
    dead = await harness.ended(Outcome.PERMANENT)
    step = await ask(harness, Purge(""))
    harness.later(SECOND)
    await harness.engine.act([Cancel(waiting)], now=harness.now)
    assert (await finish(harness, step)).changed == 1
    assert await harness.engine.get([dead]) == [None]
    assert await harness.state(waiting) is State.CANCELLED


async def test_leaves_alone_what_started_later(harness: Harness) -> None:
    first, waiting = await harness.start(), await harness.add()
    step = await ask(harness, Cancel(""), states=(State.RUNNING,))
    harness.later(SECOND)
    await harness.take(waiting)
    assert (await finish(harness, step)).changed == 1
    assert (await harness.record(first.id)).cancel_reason is not None
    assert (await harness.record(waiting)).cancel_reason is None


async def test_what_has_started_since_is_asked_to_stop(harness: Harness) -> None:
    waiting = await harness.add()
    step = await ask(harness, Cancel("", "why"))
    harness.later(SECOND)
    await harness.take(waiting)
    assert (await finish(harness, step)).changed == 1
    assert (await harness.record(waiting)).cancel_reason is not None


async def test_each_act(harness: Harness) -> None:
    ids = await harness.add_many(3, priority=20)
    record = await finish(harness, await ask(harness, Edit(id="", priority=80), priority_max=30))
    assert (record.visited, record.changed) == (3, 3)
    assert {each.spec.priority for each in await harness.records(ids)} == {80}
    await kill(harness, 3)
    record = await finish(harness, await ask(harness, Replay("", queue="other")))
    assert record.changed == 3
    assert sorted(await harness.claim_ids(9, queues=("other",))) == ids
    record = await finish(harness, await ask(harness, Cancel("")))
    assert record.changed == 3, "running tasks are asked to stop"
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    record = await finish(harness, await ask(harness, Purge("")))
    assert record.changed == 3
    assert await harness.engine.get(ids) == [None] * 3


async def test_not_all_that_it_visits_change(harness: Harness) -> None:
    await die(harness, 2)
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    record = await finish(harness, await ask(harness, Replay("")))
    assert (record.visited, record.changed, record.outcome) == (2, 0, Changed.DONE)


async def test_survives_its_caller(harness: Harness) -> None:
    count = ACT_BATCH + 20
    await harness.add_many(count)
    step = await ask(harness, Cancel(""))
    await go_on(harness, step)
    async with harness.blocking() as other:
        await harness.engine.close()
        record = await other.advance(step, now=harness.now)
        assert record is not None
        assert (record.changed, record.ended_at) == (count, harness.now)
        await harness.engine.open()


async def test_the_leader_goes_on(harness: Harness) -> None:
    count = ACT_BATCH + 20
    await harness.add_many(count)
    steps = [await ask(harness, Cancel("")), await ask(harness, Purge(""))]
    harness.later(SECOND)
    first = await harness.chore("background_steps")
    assert (first.done, first.more) == (ACT_BATCH, True)
    await harness.finish_chore("background_steps")
    assert [record.changed for record in await harness.engine.steps(steps)] == [count, 0]
    assert {record.ended_at for record in await harness.engine.steps(steps)} == {harness.now}


async def test_several_callers_at_once_do_nothing_twice(harness: Harness) -> None:
    count = 3 * ACT_BATCH + 20
    await harness.add_many(count)
    step = await ask(harness, Cancel(""))
    async with harness.blocking() as other:
        for _ in range(3):
            engines = (harness.engine, other, harness.engine)
            await asyncio.gather(*(engine.advance(step, now=harness.now) for engine in engines))
    record = await finish(harness, step)
    assert (record.visited, record.changed) == (count, count)


async def test_what_has_ended_stays_as_it_is(harness: Harness) -> None:
    await harness.add()
    step = await ask(harness, Cancel(""))
    record = await finish(harness, step)
    harness.later(HOUR)
    await harness.add()
    assert await go_on(harness, step) == record


async def test_unknown_step(harness: Harness) -> None:
    assert await harness.engine.advance(harness.new_id(), now=harness.now) is None
    assert await harness.engine.advance("nonsense", now=harness.now) is None


async def test_claims_do_nothing_about_it(harness: Harness) -> None:
    await harness.add(queue="other")
    step = await ask(harness, Cancel(""))
    assert (await harness.claims()).next_due_in != 0
    (record,) = await harness.engine.steps([step])
    assert record.visited == 0


async def test_its_end_is_in_the_audit_log(harness: Harness) -> None:
    ids = await harness.add_many(ACT_BATCH + 1)
    step = await ask(harness, Cancel("", "why"))
    await go_on(harness, step)
    assert len(await harness.engine.audit()) == 1
    harness.later(SECOND)
    await finish(harness, step)
    entry, asked = await harness.engine.audit()
    assert (asked.actor, asked.act, asked.target) == ("ada", "cancel matching", "501 tasks")
    assert (entry.actor, entry.act, entry.target) == ("ada", "cancel matching ended", "501 of 501 tasks")
    assert (entry.at, entry.detail) == (harness.now, f"step {step}")
    assert entry.ids == tuple(ids[:-101:-1]), "the first hundred, as it walks downwards"
    assert asked.detail.endswith("; reason: why")
