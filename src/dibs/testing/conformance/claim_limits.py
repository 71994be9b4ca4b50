"""claim, within limits: slots, start tokens, reserved slots, and what may be prefetched."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Outcome
from dibs.core.times import HOUR, SECOND
from dibs.engines.values import ExtendOutcome, Extension, Floor
from dibs.testing.conformance.harness import QUEUE, Harness, lease_of


async def test_max_concurrent_counts_running_tasks(harness: Harness) -> None:
    await harness.set_queue(max_concurrent=2)
    await harness.add_many(5)
    first, _ = await harness.claim(5)
    assert await harness.claim(5) == []
    await harness.settle(first)
    assert len(await harness.claim(5)) == 1


async def test_an_expired_lease_holds_its_slot_until_it_is_taken_back(harness: Harness) -> None:
    await harness.set_queue(max_concurrent=1)
    first, second = await harness.add_many(2)
    (task,) = await harness.claim(5, lease=10 * SECOND)
    harness.later(HOUR)
    assert await harness.claim(5) == [], "it may still be extended, and one at a time must mean one"
    (answer,) = await harness.engine.extend([Extension(lease_of(task), 10 * SECOND)], now=harness.now)
    assert answer.outcome is ExtendOutcome.HELD
    harness.later(HOUR)
    assert (await harness.engine.rescue(now=harness.now)).ids == [first]
    assert await harness.claim_ids(5) == [second]
    assert await harness.state(first) is State.PENDING


async def test_limits_of_one_queue_do_not_touch_another(harness: Harness) -> None:
    await harness.set_queue("narrow", max_concurrent=1)
    narrow = await harness.add_many(3, queue="narrow", priority=90)
    wide = await harness.add_many(2, priority=10)
    assert await harness.claim_ids(5, queues=("narrow", QUEUE)) == [narrow[0], *wide]


async def test_lowered_limit_takes_nothing_back(harness: Harness) -> None:
    await harness.add_many(5)
    await harness.claim(3)
    await harness.set_queue(max_concurrent=1)
    assert await harness.claim(5) == []
    assert await harness.counts() == {State.PENDING: 2, State.RUNNING: 3}


async def test_rate_gives_whole_tokens(harness: Harness) -> None:
    await harness.set_queue(rate=2.0, burst=3)
    await harness.add_many(10)
    answer = await harness.claims(10)
    assert (len(answer.tasks), answer.next_due_in) == (3, SECOND // 2)
    harness.later(SECOND // 2 - 1)
    answer = await harness.claims(10)
    assert (answer.tasks, answer.next_due_in) == ([], 1)
    harness.later(1)
    assert len(await harness.claim(10)) == 1
    harness.later(HOUR)
    assert len(await harness.claim(10)) == 3


async def test_rate_without_burst_allows_one_second_at_once(harness: Harness) -> None:
    await harness.set_queue(rate=4.0)
    await harness.set_queue("slow", rate=0.1)
    await harness.add_many(10)
    await harness.add_many(10, queue="slow")
    assert len(await harness.claim(10)) == 4
    answer = await harness.claims(10, queues=("slow",))
    assert (len(answer.tasks), answer.next_due_in) == (1, 10 * SECOND)


async def test_tokens_are_not_given_back(harness: Harness) -> None:
    await harness.set_queue(rate=1.0, burst=1)
    task = await harness.start()
    await harness.settle(task, Outcome.RELEASED)
    assert await harness.claim(5) == []


async def test_unused_tokens_are_kept(harness: Harness) -> None:
    await harness.set_queue(rate=1.0, burst=2)
    await harness.add()
    assert len(await harness.claim(5)) == 1
    await harness.add_many(3)
    assert len(await harness.claim(5)) == 1


async def test_a_token_is_awaited_only_where_it_matters(harness: Harness) -> None:
    await harness.set_queue("limited", rate=1.0, burst=1)
    await harness.add(queue="limited")
    assert len(await harness.claim(5, queues=("limited",))) == 1
    assert (await harness.claims(queues=("limited",))).next_due_in is None, "nothing is pending there"
    await harness.add(queue="limited")
    assert (await harness.claims(queues=(QUEUE,))).next_due_in is None, "it is not served by this claim"
    assert (await harness.claims(queues=("limited",))).next_due_in == SECOND
    await harness.add(delay=SECOND // 4)
    assert (await harness.claims(queues=("limited",))).next_due_in == SECOND // 4


async def test_prefetch_comes_on_top_of_the_limit(harness: Harness) -> None:
    ids = await harness.add_many(9)
    assert await harness.claim_ids(2, prefetch=3) == ids[:5]


async def test_nothing_is_prefetched_from_limited_queues(harness: Harness) -> None:
    await harness.set_queue("slots", max_concurrent=100)
    await harness.set_queue("starts", rate=100.0)
    for queue in ("slots", "starts"):
        await harness.add_many(5, queue=queue)
        assert len(await harness.claim(2, prefetch=3, queues=(queue,))) == 2


async def test_prefetch_passes_over_limited_queues(harness: Harness) -> None:
    await harness.set_queue("limited", max_concurrent=100)
    limited = await harness.add_many(4, queue="limited", priority=90)
    wide = await harness.add_many(4, priority=10)
    claimed = await harness.claim_ids(2, prefetch=2, queues=("limited", QUEUE))
    assert claimed == [*limited[:2], *wide[:2]]


async def test_floor_reserves_slots_for_urgent_work(harness: Harness) -> None:
    usual = await harness.add_many(4, priority=50)
    urgent = await harness.add_many(2, priority=90)
    assert await harness.claim_ids(9, floors=(Floor(80, 1),)) == [*urgent, usual[0]]
    assert await harness.claim_ids(9, floors=(Floor(80, 0),)) == []
    assert await harness.claim_ids(9, floors=(Floor(40, 0),)) == usual[1:]


async def test_floors_count_each_for_itself(harness: Harness) -> None:
    low = await harness.add_many(3, priority=20)
    middle = await harness.add_many(3, priority=50)
    claimed = await harness.claim_ids(9, floors=(Floor(80, 4), Floor(40, 2)))
    assert claimed == [*middle, low[0]]


async def test_floor_is_met_by_effective_priority(harness: Harness) -> None:
    task_id = await harness.add(priority=50)
    harness.later(30 * 600 * SECOND - 1)
    assert await harness.claim(9, floors=(Floor(80, 0),)) == []
    harness.later(1)
    assert await harness.claim_ids(9, floors=(Floor(80, 0),)) == [task_id]
