"""Inheritance: a task is as urgent as the most urgent of those that wait for it, for as long as they do."""

from __future__ import annotations

from msgspec import structs

from dibs.core.graph import Rule
from dibs.core.states import State
from dibs.core.task import Edit, Outcome
from dibs.core.times import HOUR, MINUTE
from dibs.engines.values import Cancel, Purge, Query, Replay
from dibs.testing.conformance.harness import Harness, edges


async def inherited(harness: Harness, *ids: str) -> list[int]:
    return [(await harness.record(task_id)).inherited for task_id in ids]


async def test_an_urgent_dependent_lifts_what_it_waits_for(harness: Harness) -> None:
    low, usual = await harness.add(priority=10), await harness.add(priority=50)
    follower = await harness.follow(low, priority=90)
    record = await harness.record(low)
    assert (record.spec.priority, record.inherited, record.urgency) == (10, 90, 90)
    assert await harness.peek() == [low, usual]
    (task,) = await harness.claim()
    assert (task.id, task.spec.priority, task.effective) == (low, 10, 90.0)
    await harness.settle(task)
    assert await harness.claim_ids(5) == [follower, usual]


async def test_a_less_urgent_dependent_changes_no_order(harness: Harness) -> None:
    task_id, other = await harness.add(priority=50), await harness.add(priority=40)
    await harness.follow(task_id, priority=10)
    assert await inherited(harness, task_id, other) == [10, 0]
    assert (await harness.record(task_id)).urgency == 50
    assert await harness.peek() == [task_id, other]


async def test_the_highest_of_several(harness: Harness) -> None:
    need = await harness.add(priority=10)
    for priority in (30, 70, 50):
        await harness.follow(need, priority=priority)
    assert await inherited(harness, need) == [70]


async def test_through_the_whole_chain(harness: Harness) -> None:
    first = await harness.add(priority=10, queue="a")
    second = await harness.follow(first, priority=20, queue="b")
    third = await harness.follow(second, priority=15)
    assert await inherited(harness, first, second, third) == [20, 15, 0]
    await harness.follow(third, priority=80)
    assert await inherited(harness, first, second, third) == [80, 80, 80]


async def test_within_a_batch(harness: Harness) -> None:
    first = harness.new(priority=10)
    second = harness.new(priority=20, after=edges(first.id))
    third = harness.new(priority=90, after=edges(second.id))
    await harness.enqueue(first, second, third)
    assert await inherited(harness, first.id, second.id, third.id) == [90, 90, 0]


async def test_within_a_batch_the_ended_give_nothing(harness: Harness) -> None:
    failed = await harness.ended(Outcome.PERMANENT)
    first = harness.new(priority=10)
    second = harness.new(priority=20, after=edges(first.id))
    cancelled = harness.new(priority=90, after=edges(first.id, second.id, failed))
    await harness.enqueue(first, second, cancelled)
    assert await harness.state(cancelled.id) is State.CANCELLED
    assert await inherited(harness, first.id, second.id) == [20, 0]


async def test_through_a_diamond(harness: Harness) -> None:
    top = await harness.add(priority=10)
    left, right = await harness.follow(top, priority=20), await harness.follow(top, priority=30)
    bottom = await harness.follow(left, right, priority=60)
    assert await inherited(harness, top, left, right) == [60, 60, 60]
    await harness.engine.act([Cancel(bottom)], now=harness.now)
    assert await inherited(harness, top, left, right) == [30, 0, 0]


async def test_it_ends_with_a_dependent_that_is_purged_at_once(harness: Harness) -> None:
    first = await harness.add(priority=10)
    second = await harness.follow(first, priority=20)
    third = await harness.follow(second, priority=90)
    await harness.engine.act([Cancel(third), Purge(third)], now=harness.now)
    assert await inherited(harness, first, second) == [20, 0]


async def test_it_ends_with_the_waiting(harness: Harness) -> None:
    need, other = await harness.add(priority=10), await harness.add(priority=10)
    usual = await harness.add(priority=30)
    urgent, lesser = await harness.follow(need, priority=90), await harness.follow(need, other, priority=20)
    await harness.engine.act([Cancel(urgent)], now=harness.now)
    assert await inherited(harness, need, other) == [20, 20]
    assert (await harness.peek())[0] == usual
    await harness.engine.act([Cancel(lesser)], now=harness.now)
    assert await inherited(harness, need, other) == [0, 0]


async def test_one_bad_end_releases_the_other_prerequisites(harness: Harness) -> None:
    first, second = await harness.add(priority=20), await harness.add(priority=10)
    follower = await harness.follow(first, second, priority=90)
    await harness.finish(first, Outcome.PERMANENT)
    assert await harness.state(follower) is State.CANCELLED
    assert await inherited(harness, second) == [0]


async def test_ended_tasks_give_and_get_nothing(harness: Harness) -> None:
    done, failed = await harness.ended(priority=10), await harness.ended(Outcome.PERMANENT, priority=10)
    need = await harness.add(priority=10)
    await harness.follow(done, failed, need, priority=90)
    assert await inherited(harness, done, failed, need) == [0, 0, 0]


async def test_editing_a_blocked_task_is_passed_on(harness: Harness) -> None:
    first = await harness.add(priority=10)
    second = await harness.follow(first, priority=10)
    third = await harness.follow(second, priority=10)
    for priority in (90, 30, 60):
        await harness.engine.act([Edit(id=third, priority=priority)], now=harness.now)
        assert await inherited(harness, first, second) == [priority, priority]
    await harness.engine.act([Edit(id=second, priority=70)], now=harness.now)
    assert await inherited(harness, first, second) == [70, 60]


async def test_own_priority_can_be_edited_beside_it(harness: Harness) -> None:
    need, other = await harness.add(priority=10), await harness.add(priority=60)
    await harness.follow(need, priority=50)
    await harness.engine.act([Edit(id=need, priority=5)], now=harness.now)
    assert (await harness.record(need)).urgency == 50
    await harness.engine.act([Edit(id=need, priority=70)], now=harness.now)
    assert (await harness.record(need)).urgency == 70
    assert await harness.peek() == [need, other]


async def test_a_replaced_dependent_passes_its_urgency_on_again(harness: Harness) -> None:
    need = await harness.add(priority=10)
    follower = await harness.follow(need, priority=20, key="k")
    (answer,) = await harness.engine.enqueue([harness.new(key="k", replace=True, priority=80)], now=harness.now)
    assert answer.id == follower
    assert await inherited(harness, need) == [80]


async def test_scheduled_and_retrying_tasks_inherit_for_their_time(harness: Harness) -> None:
    late = await harness.add(priority=10, delay=HOUR)
    retrying = await harness.start(priority=10)
    await harness.settle(retrying, Outcome.FAILED, delay=HOUR)
    await harness.follow(late, retrying.id, priority=90)
    assert await inherited(harness, late, retrying.id) == [90, 90]
    assert await harness.states(late, retrying.id) == [State.SCHEDULED, State.RETRYING]
    harness.later(HOUR)
    usual = await harness.add(priority=60)
    assert set(await harness.claim_ids(2)) == {late, retrying.id}
    assert await harness.claim_ids(1) == [usual]


async def test_a_running_task_inherits_for_when_it_comes_back(harness: Harness) -> None:
    need = await harness.start(priority=10)
    follower = await harness.follow(need.id, priority=90)
    assert await inherited(harness, need.id) == [90]
    usual = await harness.add(priority=60)
    await harness.settle(need, Outcome.RELEASED)
    again = await harness.take(need.id)
    await harness.engine.act([Cancel(follower)], now=harness.now)
    assert await inherited(harness, need.id) == [0]
    await harness.settle(again, Outcome.RELEASED)
    assert await harness.claim_ids(5) == [usual, need.id]


async def test_by_every_policy(harness: Harness) -> None:
    for policy in ("strict", "tiers"):
        await harness.set_queue(policy, policy=policy)
        low = await harness.add(queue=policy, priority=10)
        usual = await harness.add(queue=policy, priority=60)
        assert await harness.peek(policy) == [usual, low]
        await harness.follow(low, priority=90, queue=policy)
        assert await harness.peek(policy) == [low, usual]


async def test_it_leaves_no_trace_but_itself(harness: Harness) -> None:
    need = await harness.add(priority=10)
    before = await harness.record(need)
    follower = await harness.follow(need, priority=90)
    assert await harness.engine.history(need) == []
    page = await harness.engine.search(Query(priority_min=50))
    assert [record.id for record in page.tasks] == [follower], "people search by what they gave"
    harness.later(MINUTE)
    await harness.engine.act([Cancel(follower)], now=harness.now)
    assert await harness.record(need) == structs.replace(before, changed_at=harness.now)


async def test_waiting_time_is_kept(harness: Harness) -> None:
    need = await harness.add(priority=10)
    start = harness.now
    harness.later(HOUR)
    await harness.follow(need, priority=40)
    assert (await harness.record(need)).ready_at == start


async def test_replayed_alone_it_has_nobody_to_inherit_from(harness: Harness) -> None:
    need = await harness.add(priority=10)
    await harness.follow(need, priority=90, rule=Rule.FAIL)
    await harness.finish(need, Outcome.PERMANENT)
    await harness.engine.act([Replay(need)], now=harness.now)
    assert await inherited(harness, need) == [0]


async def test_new_settings_keep_it(harness: Harness) -> None:
    low, usual = await harness.add(priority=10), await harness.add(priority=60)
    await harness.follow(low, priority=90, queue="elsewhere")
    await harness.set_queue(policy="strict")
    await harness.rerank()
    assert await harness.peek() == [low, usual]
    assert await inherited(harness, low) == [90]
