"""per_partition: so many at once and so many starts a second for each partition, and a full one is in nobody's way."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Edit, Outcome, QueueState
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.values import Cancel, Replay
from dibs.testing.conformance.claim_names import add_to
from dibs.testing.conformance.harness import QUEUE, Harness


async def test_a_partition_runs_so_many_at_once(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    ids = await add_to(harness, "a", "a", "b", "a", "b", "c")
    tasks = await harness.claim(9)
    assert [task.id for task in tasks] == [ids[0], ids[2], ids[5]]
    assert [task.spec.partition for task in tasks] == ["a", "b", "c"]
    assert await harness.claim(9) == []
    await harness.settle(tasks[1])
    assert await harness.claim_ids(9) == [ids[4]]
    await harness.settle(tasks[0])
    assert await harness.claim_ids(9) == [ids[1]], "by rank within the partition"


async def test_tasks_without_a_partition_are_free(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    await add_to(harness, "a")
    free = await harness.add_many(3)
    assert (await harness.claim_ids(9))[1:] == free


async def test_partitions_of_another_queue_are_others(harness: Harness) -> None:
    await harness.set_queue("one", per_partition=1)
    await harness.set_queue("two", per_partition=1)
    for queue in ("one", "two"):
        await add_to(harness, "a", "a", queue=queue)
    assert len(await harness.claim(9, queues=("one", "two"))) == 2


async def test_a_partition_starts_so_often(harness: Harness) -> None:
    await harness.set_queue(per_partition={"rate": 1, "burst": 2})
    a = await add_to(harness, *"aaaa")
    assert await harness.claim_ids(9) == a[:2]
    harness.later(SECOND // 2)
    b = await add_to(harness, *"bbb")
    answer = await harness.claims(9)
    assert ([task.id for task in answer.tasks], answer.next_due_in) == (b[:2], SECOND // 2)
    harness.later(SECOND // 2)
    answer = await harness.claims(9)
    assert ([task.id for task in answer.tasks], answer.next_due_in) == ([a[2]], SECOND // 2), "a has a token, b none"
    harness.later(SECOND // 2)
    assert await harness.claim_ids(9) == [b[2]]
    harness.later(HOUR)
    assert await harness.claim_ids(9) == [a[3]]
    assert (await harness.claims(9)).next_due_in is None


async def test_a_new_token_brings_a_tenant_its_turn_at_once(harness: Harness) -> None:
    await harness.set_queue(fair=True, per_partition={"rate": 1, "burst": 1})
    ids = await harness.add_many(3, partition="a", tenant="t")
    for each in ids:
        assert await harness.claim_ids(9) == [each]
        assert await harness.claim_ids(9) == [], "the tenant has nothing that may start, and no turn"
        harness.later(SECOND)


async def test_a_token_of_a_partition_is_awaited_only_where_it_matters(harness: Harness) -> None:
    await harness.set_queue(per_partition={"rate": 1, "burst": 1})
    await add_to(harness, "a", "a")
    await harness.claim(9)
    assert (await harness.claims(9, queues=("nowhere",))).next_due_in is None
    assert (await harness.claims(9)).next_due_in == SECOND
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    assert (await harness.claims(9)).next_due_in is None


async def test_tokens_of_a_partition_are_not_given_back(harness: Harness) -> None:
    await harness.set_queue(per_partition={"rate": 1, "burst": 1})
    await add_to(harness, "a")
    (task,) = await harness.claim(9)
    await harness.settle(task, Outcome.RELEASED)
    assert await harness.claim(9) == []
    harness.later(SECOND)
    assert await harness.claim_ids(9) == [task.id]


async def test_slots_and_tokens_together(harness: Harness) -> None:
    await harness.set_queue(per_partition={"max_concurrent": 1, "rate": 1, "burst": 5})
    a = await add_to(harness, "a", "a")
    (task,) = await harness.claim(9)
    answer = await harness.claims(9)
    assert (answer.tasks, answer.next_due_in) == ([], None), "a slot comes when it comes; there are tokens"
    await harness.settle(task)
    assert await harness.claim_ids(9) == [a[1]]


async def test_a_full_partition_holds_nobody_up(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    await add_to(harness, *["full"] * 2_500, priority=90)
    assert len(await harness.claim(9)) == 1
    free = await add_to(harness, *"abc", priority=10)
    assert await harness.claim_ids(9) == free


async def test_many_full_partitions_hold_nobody_up(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    names = [f"p{number}" for number in range(1_500)]
    await add_to(harness, *names, priority=90)
    await add_to(harness, *names, priority=80)
    assert len(await harness.claim(2_000)) == 1_500
    free = await harness.add(priority=10)
    claimed: list[str] = []
    for _ in range(20):  # an engine may need some steps to get past them, each of them bounded
        claimed += await harness.claim_ids(1)
    assert claimed == [free]


async def test_the_best_of_a_partition_may_be_for_others(harness: Harness) -> None:
    """What a worker can't run does not stand before what it can."""
    await harness.set_queue(per_partition=1)
    (special,) = await add_to(harness, "a", requires=("gpu",), priority=90)
    (strange,) = await add_to(harness, "a", name="strange", priority=80)
    (plain,) = await add_to(harness, "a", priority=10)
    (task,) = await harness.claim(9, names=("work",))
    assert task.id == plain
    assert await harness.claim(9, capabilities=("gpu",)) == []
    await harness.settle(task)
    (task,) = await harness.claim(9)
    assert task.id == strange
    await harness.settle(task)
    assert await harness.claim_ids(9, capabilities=("gpu",)) == [special]


async def test_queues_are_merged_by_tasks_that_may_start(harness: Harness) -> None:
    """Beyond a hundred points the longer ready goes first: a task that must wait may not speak for the next one."""
    await harness.set_queue(aging=1, per_partition=1)
    await harness.set_queue("other", aging=1)
    await harness.start(partition="p")
    free = await harness.add()
    harness.later(1)
    between = await harness.add(queue="other")
    harness.later(1)
    await harness.add(partition="p", priority=100)
    harness.later(HOUR)
    assert await harness.claim_ids(5, queues=("other", QUEUE)) == [free, between]


async def test_a_full_name_does_not_shut_its_partition(harness: Harness) -> None:
    await harness.set_queue(per_task={"mail": 1}, per_partition=1)
    await add_to(harness, "x", name="mail", priority=90)
    await harness.claim(9)
    await add_to(harness, "a", name="mail", priority=90)
    (other,) = await add_to(harness, "a", priority=10)
    assert await harness.claim_ids(9) == [other]


async def test_a_better_arrival_goes_first_in_its_partition(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    low, running = await harness.add(partition="a", priority=20), await harness.add(partition="a", priority=90)
    (task,) = await harness.claim(9)
    assert task.id == running
    urgent = await harness.add(partition="a", priority=70)
    late = await harness.add(partition="a", priority=80, delay=MINUTE)
    edited = await harness.add(partition="a", priority=10)
    await harness.engine.act([Edit(id=edited, priority=95)], now=harness.now)
    harness.later(MINUTE)
    for expected in (edited, late, urgent, low):
        assert await harness.claim(9) == []
        await harness.settle(task)
        (task,) = await harness.claim(9)
        assert task.id == expected


async def test_whatever_becomes_pending_stands_under_the_limit(harness: Harness) -> None:
    """Unblocked, retried, released, rescued or replayed: a full partition gives none of them."""
    await harness.set_queue(per_partition=1)
    need = await harness.add(queue="elsewhere")
    unblocked = await harness.follow(need, partition="a")
    outcomes = (Outcome.PERMANENT, Outcome.FAILED, Outcome.RELEASED)
    others = [await harness.ended(outcome, partition="a", priority=90) for outcome in outcomes]
    await harness.start(partition="a", priority=100)
    await harness.finish(need)
    await harness.engine.act([Replay(each) for each in others[:1]], now=harness.now)
    assert await harness.claim(9) == []
    waiting = sorted([unblocked, *others])
    assert sorted(await harness.peek()) == waiting
    await harness.set_queue(per_partition=None)
    assert sorted(await harness.claim_ids(9)) == waiting


async def test_inherited_urgency_counts_in_a_full_partition(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    running = await harness.start(partition="a")
    first, second = await add_to(harness, "a", "a")
    await harness.follow(second, priority=90)
    await harness.settle(running)
    (task,) = await harness.claim(9)
    assert task.id == second
    await harness.settle(task, Outcome.CANCELLED)
    assert await harness.claim_ids(9) == [first]


async def test_ranking_again_counts_in_a_full_partition(harness: Harness) -> None:
    await harness.set_queue(per_partition=1, policy="strict")
    running = await harness.start(partition="a", priority=100)
    old = await harness.add(partition="a", priority=40)
    harness.later(HOUR)
    new = await harness.add(partition="a", priority=41)
    assert await harness.peek() == [new, old]
    await harness.set_queue(policy="aging", aging=60)
    await harness.rerank()
    await harness.settle(running)
    (task,) = await harness.claim(9)
    assert task.id == old
    await harness.settle(task)
    assert await harness.claim_ids(9) == [new]


async def test_tenants_share_what_a_partition_gives(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    await add_to(harness, *"ppp", tenant="a")
    await add_to(harness, *"ppp", tenant="b")
    await harness.set_queue(fair=True)
    await harness.rerank()
    given = ""
    while tasks := await harness.claim(9):
        given += "".join(task.spec.tenant for task in tasks)
        await harness.settle(tasks[0])
    assert given == "ababab"


async def test_a_worse_arrival_waits_its_turn(harness: Harness) -> None:
    await harness.set_queue(per_partition=2)
    first = await harness.add(partition="a", priority=50)
    worse, better = await harness.add(partition="a", priority=30), await harness.add(partition="a", priority=60)
    assert await harness.claim_ids(1) == [better]
    assert await harness.claim_ids(1) == [first]
    assert await harness.claim(1) == []
    assert await harness.state(worse) is State.PENDING


async def test_whatever_leaves_makes_room_for_the_next(harness: Harness) -> None:
    """The best of a partition may be cancelled, put off, expire, or be buried with its queue."""
    await harness.set_queue(per_partition=1)
    ids = [await harness.add(partition="a", priority=priority) for priority in (90, 80, 60, 50)]
    expiring = await harness.add(partition="a", priority=70, expires_at=harness.now + MINUTE)
    await harness.engine.act([Cancel(ids[0])], now=harness.now)
    await harness.engine.act([Edit(id=ids[1], due_at=harness.now + HOUR)], now=harness.now)
    harness.later(MINUTE)
    assert await harness.claim_ids(9) == [ids[2]]
    assert await harness.state(expiring) is State.CANCELLED


async def test_a_task_moved_to_another_partition(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    await add_to(harness, "a")
    await harness.claim(9)
    waiting = await harness.add(partition="a", key="k")
    await harness.enqueue(harness.new(partition="a"))
    await harness.engine.enqueue([harness.new(key="k", replace=True, partition="b")], now=harness.now)
    assert await harness.claim_ids(9) == [waiting]


async def test_a_task_that_moves_away_leaves_its_place_to_the_next(harness: Harness) -> None:
    await harness.set_queue(per_partition=1)
    first, second = await harness.add(partition="a", key="k"), await harness.add(partition="a")
    await harness.engine.enqueue([harness.new(key="k", replace=True, partition="b")], now=harness.now)
    assert await harness.claim_ids(9) == [first, second]
