"""chore and chores: bounded steps, fenced by the term, with a record of the last one."""

from __future__ import annotations

from dibs.core.policy import TERM
from dibs.core.states import State
from dibs.core.task import Outcome
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.values import Cancel, EnqueueOutcome, Purge, Query
from dibs.testing.conformance.harness import Harness


async def test_each_runs_on_an_empty_store(harness: Harness) -> None:
    await harness.all_chores()
    assert {record.at for record in (await harness.engine.about()).chores} == {harness.now}


async def test_reranking_is_among_them(harness: Harness) -> None:
    assert "rerank" in await harness.chore_names()


async def test_old_term_is_refused(harness: Harness) -> None:
    await harness.set_queue(policy="tiers")
    old = await harness.lead("a")
    task_id = await harness.add(priority=10)
    before = await harness.record(task_id)
    harness.later(HOUR)
    await harness.lead("b")
    record = await harness.engine.chore("rerank", old, now=harness.now)
    assert record.refused
    assert record.done == 0
    assert await harness.record(task_id) == before


async def test_records_what_was_done(harness: Harness) -> None:
    await harness.set_queue(policy="tiers")
    await harness.add_many(3, priority=10)
    harness.later(HOUR)
    record = await harness.chore("rerank")
    assert (record.name, record.at, record.done, record.total, record.more) == ("rerank", harness.now, 3, 3, False)
    await harness.add_many(2, priority=10)
    harness.later(HOUR)
    record = await harness.chore("rerank")
    assert (record.done, record.total) == (2, 5)
    assert record in (await harness.engine.about()).chores


async def test_tiers_promote(harness: Harness) -> None:
    await harness.set_queue(policy="tiers", promote_low=600, promote_medium=1200)
    low = await harness.add(priority=10)
    harness.later(10 * MINUTE - SECOND)
    medium = await harness.add(priority=50)
    await harness.rerank()
    assert await harness.peek() == [medium, low]
    harness.later(SECOND)
    await harness.rerank()
    assert await harness.peek() == [low, medium], "promoted to its tier, and there the longer ready"
    high = await harness.add(priority=70)
    await harness.rerank()
    assert await harness.peek() == [high, low, medium]
    harness.later(10 * MINUTE)
    await harness.rerank()
    assert await harness.peek() == [low, high, medium]
    critical = await harness.add(priority=90)
    harness.later(DAY)
    await harness.rerank()
    assert await harness.peek() == [critical, low, medium, high]


async def test_deadlines_step_closer(harness: Harness) -> None:
    await harness.set_queue(deadline_weight=30, deadline_horizon=3600)
    due = await harness.add(priority=40, deadline=harness.now + 2 * HOUR)
    usual = await harness.add(priority=50)
    await harness.rerank()
    assert await harness.peek() == [usual, due], "a far deadline gives no boost"
    harness.later(HOUR + 20 * MINUTE - 1)
    await harness.rerank()
    assert await harness.peek() == [usual, due], "one step of five points"
    harness.later(1)
    await harness.rerank()
    assert await harness.peek() == [due, usual], "two steps of five: equal, and then by id"
    late = await harness.add(priority=70, at=harness.now + 40 * MINUTE)
    harness.later(40 * MINUTE)
    await harness.rerank()
    assert await harness.claim_ids(3) == [due, late, usual], "at the deadline the whole weight"


async def test_capped_ageing_levels(harness: Harness) -> None:
    await harness.set_queue(aging=60, max_aging_bonus=10)
    old = await harness.add(priority=50)
    harness.later(10 * MINUTE - 1)
    await harness.rerank()
    assert (await harness.record(old)).lane == 0
    harness.later(1)
    await harness.rerank()
    assert (await harness.record(old)).lane == 1
    harness.later(DAY)
    fresh = await harness.add(priority=61)
    assert await harness.claim_ids(2) == [fresh, old], "the bonus is capped at ten points"


async def test_stale_ranks_are_done_in_bounded_steps(harness: Harness) -> None:
    await harness.add_many(1_500)
    await harness.set_queue(policy="strict")
    first = await harness.chore("rerank")
    record = await harness.queue()
    assert first.more
    assert record is not None
    assert record.stale > 0
    await harness.rerank()
    record = await harness.queue()
    assert record is not None
    assert record.stale == 0


async def test_due_ranks_are_done_in_bounded_steps(harness: Harness) -> None:
    await harness.set_queue(policy="tiers")
    await harness.add_many(1_500, priority=10)
    harness.later(11 * MINUTE)
    first = await harness.chore("rerank")
    assert (first.done, first.more) == (1_000, True)
    second = await harness.chore("rerank")
    assert (second.done, second.more) == (500, False)


async def test_tells_since_when_it_has_had_work_left(harness: Harness) -> None:
    await harness.set_queue(policy="tiers")
    await harness.add_many(2_500, priority=10)
    began = harness.later(11 * MINUTE)
    assert (await harness.chore("rerank")).behind_since == began
    harness.later(SECOND)
    assert (await harness.chore("rerank")).behind_since == began, "not since its last run"
    record = await harness.chore("rerank")
    assert (record.more, record.behind_since) == (False, 0)
    assert record in (await harness.engine.about()).chores


async def test_finished_days_are_pruned_when_old(harness: Harness) -> None:
    await harness.set_queue(keep=2 * 86_400)
    harness.later(-harness.now % DAY + HOUR)
    completed, dead, cancelled = await harness.ended(), await harness.ended(Outcome.PERMANENT), await harness.add()
    await harness.engine.act([Cancel(cancelled)], now=harness.now)
    unfinished = await harness.add()
    harness.later(3 * DAY - HOUR - SECOND)
    await harness.all_chores()
    assert None not in await harness.engine.get([completed, cancelled]), "the day's last moment is not yet two days old"
    harness.later(2 * SECOND)
    await harness.all_chores()
    assert await harness.engine.get([completed, cancelled]) == [None, None]
    assert await harness.engine.history(cancelled) == []
    assert await harness.counts() == {State.DEAD: 1, State.PENDING: 1}
    harness.later(60 * DAY)
    await harness.all_chores()
    assert await harness.engine.get([dead]) == [None]
    assert await harness.state(unfinished) is State.PENDING


async def test_dead_tasks_are_kept_by_their_own_setting(harness: Harness) -> None:
    await harness.set_queue(keep=0, keep_dead=86_400)
    completed, dead = await harness.ended(), await harness.ended(Outcome.PERMANENT)
    harness.later(DAY)
    await harness.all_chores()
    assert await harness.engine.get([completed]) == [None]
    assert await harness.state(dead) is State.DEAD
    harness.later(2 * DAY)
    await harness.all_chores()
    assert await harness.engine.get([dead]) == [None]


async def test_chores_keep_keys_that_are_held(harness: Harness) -> None:
    await harness.ended(key="short", window=HOUR)
    await harness.ended(key="long", window=10 * DAY)
    task = await harness.start(key="unfinished", window=HOUR, queue="other")
    harness.later(9 * DAY)
    await harness.all_chores()
    keys = [harness.new(key="short"), harness.new(key="long"), harness.new(key="unfinished", queue="other")]
    duplicate, enqueued = EnqueueOutcome.DUPLICATE, EnqueueOutcome.ENQUEUED
    assert await harness.outcomes(*keys) == [enqueued, duplicate, duplicate]
    await harness.settle(task)


async def test_leader_lasts_through_its_chores(harness: Harness) -> None:
    term = await harness.lead()
    harness.later(TERM // 2)
    for name in await harness.chore_names():
        assert not (await harness.engine.chore(name, term, now=harness.now)).refused


async def search(harness: Harness, query: Query) -> list[str]:
    return [task.id for task in (await harness.engine.search(query)).tasks]


async def test_searches_find_what_is_left(harness: Harness) -> None:
    kept = await harness.ended(Outcome.PERMANENT, queue="kept", tenant="kept")
    harness.made += 100_000
    gone = await harness.ended(queue="gone", tenant="gone")
    harness.made += 100_000  # ids of a later time
    later = await harness.add(queue="later", tenant="gone")
    harness.made += 100_000
    await harness.add_many(400, queue="besides")  # more than a search reads before it asks where to look
    harness.later(20 * 24 * HOUR)
    await harness.engine.act([Purge(gone)], now=harness.now)
    await harness.finish_chore("prune_blocks")
    assert (await harness.chore("prune_blocks")).done == 0, "once a day"
    assert await search(harness, Query(tenant="kept")) == [kept]
    assert await search(harness, Query(queues=("kept",))) == [kept]
    assert await search(harness, Query(tenant="gone")) == [later]
    again = await harness.add(id=gone, queue="gone", tenant="gone")
    assert await search(harness, Query(queues=("gone",))) == [again]
    assert await search(harness, Query(tenant="gone")) == [later, again]
