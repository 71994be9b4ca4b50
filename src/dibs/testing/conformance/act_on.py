"""act_on: a step that acts on all tasks that match begins, with a count, and changes nothing yet."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Edit, Outcome
from dibs.core.times import HOUR
from dibs.engines.values import READ_LIMIT, Cancel, Changed, Purge, Query, Replay
from dibs.testing.conformance.harness import QUEUE, Harness


async def test_counts_and_changes_nothing(harness: Harness) -> None:
    ids = await harness.add_many(3)
    await harness.add_many(2, queue="other")
    step, query = harness.new_id(), Query(queues=(QUEUE,))
    record = await harness.engine.act_on(step, query, Cancel("", "why"), actor="ada", now=harness.now)
    assert (record.id, record.act, record.actor, record.asked_at) == (step, Cancel("", "why"), "ada", harness.now)
    assert (record.matched, record.more, record.visited, record.changed) == (3, False, 0, 0)
    assert (record.ended_at, record.outcome) == (None, None)
    assert record.query.queues == (QUEUE,)
    assert await harness.states(*ids) == [State.PENDING] * 3
    assert await harness.engine.steps([step]) == [record]


async def test_counts_what_the_act_is_for(harness: Harness) -> None:
    waiting, dead = await harness.add(delay=HOUR), await harness.ended(Outcome.PERMANENT)
    running, completed = await harness.start(), await harness.ended()
    assert await harness.states(waiting, running.id, completed, dead) == [
        State.SCHEDULED, State.RUNNING, State.COMPLETED, State.DEAD,
    ]  # fmt: skip
    for act, matched in ((Cancel(""), 2), (Edit(id="", priority=9), 1), (Replay(""), 1), (Purge(""), 2)):
        record = await harness.engine.act_on(harness.new_id(), Query(), act, now=harness.now)
        assert record.matched == matched, act


async def test_ends_at_once_if_nothing_can_match(harness: Harness) -> None:
    await harness.add()
    query = Query(states=(State.PENDING,))
    record = await harness.engine.act_on(harness.new_id(), query, Purge(""), now=harness.now)
    assert (record.matched, record.ended_at, record.outcome) == (0, harness.now, Changed.DONE)


async def test_ends_at_once_in_an_empty_store(harness: Harness) -> None:
    record = await harness.engine.act_on(harness.new_id(), Query(), Cancel(""), now=harness.now)
    assert (record.matched, record.ended_at) == (0, harness.now)


async def test_counting_is_bounded(harness: Harness) -> None:
    for _ in range(READ_LIMIT // 2_000):
        await harness.add_many(2_000)
    query = Query(priority_min=1)  # no count tells
    record = await harness.engine.act_on(harness.new_id(), query, Cancel(""), now=harness.now)
    assert (record.matched, record.more) == (READ_LIMIT, False)
    await harness.add()
    record = await harness.engine.act_on(harness.new_id(), query, Cancel(""), now=harness.now)
    assert (record.matched, record.more) == (READ_LIMIT, True)
    everything = await harness.engine.act_on(harness.new_id(), Query(), Cancel(""), now=harness.now)
    assert (everything.matched, everything.more) == (READ_LIMIT + 1, False), "counts tell"


async def test_counts_by_queue_name_and_state_are_exact(harness: Harness) -> None:
    await harness.add_many(3, name="x")
    await harness.add_many(2, name="y")
    await harness.add_many(4, name="x", queue="other")
    await harness.start(name="x", queue="third")
    for query, matched in (
        (Query(names=("x",)), 8),
        (Query(names=("x",), queues=(QUEUE, "third")), 4),
        (Query(states=(State.RUNNING,)), 1),
        (Query(names=("z",)), 0),
    ):
        record = await harness.engine.act_on(harness.new_id(), query, Cancel(""), now=harness.now)
        assert (record.matched, record.more) == (matched, False), query


async def test_the_same_id_begins_once(harness: Harness) -> None:
    await harness.add_many(2)
    step = harness.new_id()
    first = await harness.engine.act_on(step, Query(), Cancel(""), actor="ada", now=harness.now)
    harness.later(HOUR)
    await harness.add()
    assert await harness.engine.act_on(step, Query(), Cancel(""), actor="ada", now=harness.now) == first
    assert len(await harness.engine.audit()) == 1


async def test_is_in_the_audit_log(harness: Harness) -> None:
    await harness.add_many(2)
    step = harness.new_id()
    await harness.engine.act_on(step, Query(text="x"), Cancel(""), actor="ada", now=harness.now)
    await harness.engine.act_on(harness.new_id(), Query(), Cancel(""), actor="bob", now=harness.now)
    second, first = await harness.engine.audit()
    assert (first.actor, first.act, first.target, first.at) == ("ada", "cancel matching", "0 tasks", harness.now)
    assert step in first.detail
    assert (second.actor, second.target) == ("bob", "2 tasks")
