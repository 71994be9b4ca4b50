"""claim, within limits: so many at once and so many starts a second, by task name; and limits that change."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Outcome, QueueState
from dibs.core.times import HOUR, SECOND
from dibs.engines.topics import work_topic
from dibs.engines.values import Cancel, Position
from dibs.testing.conformance.harness import QUEUE, Harness
from dibs.testing.conformance.subscribe import notifies

__all__ = ["add_to"]


async def add_to(harness: Harness, *partitions: str, **facts: object) -> list[str]:
    """One task per partition named, in that order."""
    return await harness.enqueue(*(harness.new(partition=partition, **facts) for partition in partitions))


async def test_a_name_runs_so_many_at_once(harness: Harness) -> None:
    await harness.set_queue(per_task={"mail": 2})
    mail = await harness.add_many(4, name="mail", priority=90)
    other = await harness.add_many(2)
    tasks = await harness.claim(9)
    assert [task.id for task in tasks] == [*mail[:2], *other]
    assert await harness.claim(9) == []
    await harness.settle(tasks[0])
    assert await harness.claim_ids(9) == [mail[2]]


async def test_a_name_whatever_it_requires(harness: Harness) -> None:
    await harness.set_queue(per_task={"mail": 1})
    await harness.add(name="mail", requires=("gpu",))
    await harness.add(name="mail")
    assert len(await harness.claim(9, capabilities=("gpu",))) == 1
    assert await harness.claim(9, capabilities=("gpu",)) == []


async def test_a_name_starts_so_often(harness: Harness) -> None:
    await harness.set_queue(per_task={"mail": {"rate": 1, "burst": 2}})
    await harness.add_many(5, name="mail")
    answer = await harness.claims(9)
    assert (len(answer.tasks), answer.next_due_in) == (2, SECOND)
    harness.later(SECOND)
    assert len(await harness.claim(9)) == 1


async def test_names_of_another_queue_are_others(harness: Harness) -> None:
    await harness.set_queue("a", per_task={"mail": 1})
    await harness.add_many(2, queue="a", name="mail")
    await harness.add_many(2, queue="b", name="mail")
    assert len(await harness.claim(9, queues=("a", "b"))) == 3


async def test_all_limits_at_once(harness: Harness) -> None:
    await harness.set_queue(max_concurrent=4, per_task={"mail": 2}, per_partition=1)
    mail = await add_to(harness, *"aabbcc", name="mail", priority=90)
    other = await add_to(harness, *"acdee", priority=10)
    assert await harness.claim_ids(9) == [mail[0], mail[2], other[1], other[2]], (
        "a, b by mail; c, d by the others; full"
    )


async def test_a_full_name_holds_nobody_up(harness: Harness) -> None:
    await harness.set_queue(per_task={"mail": 1})
    await harness.add_many(2_500, name="mail", priority=90)
    assert len(await harness.claim(9)) == 1
    free = await harness.add(name="other", priority=10)
    assert await harness.claim_ids(9) == [free]


async def test_every_way_a_run_can_end_frees_its_slot(harness: Harness) -> None:
    await harness.set_queue(per_partition=1, per_task={"work": 1})
    for outcome in Outcome:
        task = await harness.start(partition="a", queue=QUEUE, priority=90)
        await harness.settle(task, outcome, delay=HOUR)
        other = await harness.start(partition="a", priority=100)
        await harness.settle(other)
        if await harness.state(task.id) is State.PENDING:
            await harness.engine.act([Cancel(task.id)], now=harness.now)


async def test_rescue_frees_its_slot(harness: Harness) -> None:
    await harness.set_queue(per_partition=1, per_task={"work": 1})
    first, second = await add_to(harness, "a", "a")
    await harness.claim(9)
    harness.later(HOUR)
    assert await harness.claim(9) == [], "an expired lease may still be extended"
    await harness.engine.rescue(now=harness.now)
    assert await harness.claim_ids(9) == [second]
    assert await harness.state(first) is State.PENDING


async def test_a_limit_set_later_holds_for_what_is_there(harness: Harness) -> None:
    a, b = await add_to(harness, *"aaa"), await add_to(harness, *"bb")
    await harness.claim(1)
    await harness.set_queue(per_partition=1)
    assert await harness.claim_ids(9) == [b[0]], "a runs one already"
    await harness.set_queue(per_partition=2)
    assert await harness.claim_ids(9) == [a[1], b[1]]


async def test_a_lowered_limit_takes_nothing_back(harness: Harness) -> None:
    await harness.set_queue(per_partition=3, per_task={"work": 3})
    ids = await add_to(harness, *"aaaaa")
    tasks = await harness.claim(9)
    await harness.set_queue(per_partition=1)
    assert await harness.counts() == {State.RUNNING: 3, State.PENDING: 2}
    for task in tasks[:2]:
        await harness.settle(task)
        assert await harness.claim(9) == []
    await harness.settle(tasks[2])
    assert await harness.claim_ids(9) == [ids[3]]


async def test_a_lifted_limit_sets_all_free(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    ids = await add_to(harness, *"aaaa")
    assert await harness.claim_ids(9) == ids[:1]
    await harness.set_queue(per_partition=None)
    assert await harness.claim_ids(9) == ids[1:]


async def test_a_lifted_rate_sets_all_free(harness: Harness) -> None:
    await harness.set_queue(per_partition={"rate": 0.001, "burst": 1}, per_task={"work": {"rate": 0.001, "burst": 2}})
    ids = await add_to(harness, *"aaab")
    assert await harness.claim_ids(9) == [ids[0], ids[3]]
    await harness.set_queue(per_partition=None, per_task={})
    answer = await harness.claims(9)
    assert ([task.id for task in answer.tasks], answer.next_due_in) == (ids[1:3], None)


async def test_a_faster_rate_holds_from_now_on(harness: Harness) -> None:
    await harness.set_queue(per_partition={"rate": 0.001, "burst": 1})
    ids = await add_to(harness, *"aa")
    assert await harness.claim_ids(9) == ids[:1]
    assert (await harness.claims(9)).next_due_in == 1_000 * SECOND
    await harness.set_queue(per_partition={"rate": 10, "burst": 1})
    assert (await harness.claims(9)).next_due_in == SECOND // 10
    harness.later(SECOND // 10)
    assert await harness.claim_ids(9) == ids[1:]


async def test_a_lowered_limit_and_a_paused_queue(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    ids = await add_to(harness, *"ab")
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    assert await harness.claim(9) == []
    await harness.engine.set_queue_state(QUEUE, QueueState.ACTIVE, now=harness.now)
    assert await harness.claim_ids(9) == ids


async def test_a_deleted_queue_forgets_its_tokens(harness: Harness) -> None:
    for _ in range(2):
        await harness.set_queue(rate=0.001, burst=1, per_partition={"rate": 0.001, "burst": 1})
        await add_to(harness, "a", "a")
        assert len(await harness.claim(9)) == 1
        assert await harness.claim(9) == []
        await harness.engine.delete_queue(QUEUE, force=True, now=harness.now)


async def test_limits_hide_nothing(harness: Harness) -> None:
    await harness.set_queue(per_partition=1, per_task={"work": 1})
    await add_to(harness, "a")
    await harness.claim(9)
    ids = await add_to(harness, *"aabb")
    await harness.claim(9)
    assert await harness.peek() == ids
    assert await harness.position(ids[3]) == Position(3)
    assert await harness.counts() == {State.RUNNING: 1, State.PENDING: 4}


async def test_nothing_is_prefetched(harness: Harness) -> None:
    await harness.set_queue("names", per_task={"other": 100})
    await harness.set_queue("partitions", per_partition=100)
    for queue in ("names", "partitions"):
        await harness.add_many(5, queue=queue)
        assert len(await harness.claim(2, prefetch=3, queues=(queue,))) == 2


async def test_a_freed_slot_notifies(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    task = await harness.start(partition="a")
    assert await notifies(harness, work_topic(QUEUE), harness.settle(task))
