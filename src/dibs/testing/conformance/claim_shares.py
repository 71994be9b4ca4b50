"""claim, with fair shares: tenants take turns by weight, whatever their backlog; within a tenant rank decides."""

from __future__ import annotations

from dibs.core.fairness import COST, most_before
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import Outcome
from dibs.core.times import HOUR, MINUTE
from dibs.engines.values import Cancel, Changed, Floor, Position, Query
from dibs.testing.conformance.harness import QUEUE, Harness

__all__ = ["add_for", "served"]


async def add_for(harness: Harness, tenants: str, **facts: object) -> list[str]:
    """One task per letter, the letter being its tenant."""
    return await harness.enqueue(*(harness.new(tenant=tenant, **facts) for tenant in tenants))


async def served(harness: Harness, limit: int, **facts: object) -> str:
    """The tenants of the tasks that a claim gives, in order."""
    return "".join(task.spec.tenant for task in await harness.claim(limit, **facts))


async def virtual_times(harness: Harness) -> dict[str, int]:
    return {record.tenant: record.virtual_time for record in await harness.tenants(QUEUE)}


async def test_tenants_take_turns(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "aaaaaabbbc")
    assert await served(harness, 10) == "abcababaaa"


async def test_turns_go_on_from_claim_to_claim(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "aaaabbcc")
    assert [await served(harness, 1) for _ in range(8)] == list("abcabcaa")


async def test_within_a_tenant_the_urgent_go_first(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    low, high = await harness.add(tenant="a", priority=10), await harness.add(tenant="a", priority=90)
    other = await harness.add(tenant="b", priority=50)
    assert await harness.claim_ids(5) == [high, other, low]


async def test_a_tenants_share_is_not_bought_by_priority(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "aaaa", priority=100)
    await add_for(harness, "bb", priority=0)
    assert await served(harness, 6) == "ababaa"


async def test_weights_are_shares(harness: Harness) -> None:
    await harness.set_queue(fair=True, weights={"a": 3})
    await add_for(harness, "a" * 30 + "b" * 30)
    given = await served(harness, 40)
    assert (given.count("a"), given.count("b")) == (30, 10)
    assert all(abs(given[:end].count("a") - 3 * given[:end].count("b")) <= 4 for end in range(40))


async def test_new_weights_hold_from_the_next_start_on(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "a" * 20 + "b" * 20)
    assert await served(harness, 4) == "abab"
    await harness.set_queue(weights={"b": 4})
    assert (await served(harness, 15)).count("b") == 12


async def test_time_spent_idle_earns_nothing(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "a" * 30)
    await harness.claim(20)
    harness.later(HOUR)
    await add_for(harness, "b" * 10)
    assert await served(harness, 6) == "bababa"


async def test_a_flood_delays_the_others_by_no_more_than_the_bound(harness: Harness) -> None:
    await harness.set_queue(fair=True, weights={"a": 5, "b": 0.5})
    settings = QueueSettings(fair=True, weights={"a": 5.0, "b": 0.5})
    await add_for(harness, "a" * 200 + "c" * 50)
    await harness.claim(17)
    await add_for(harness, "b")
    given = await served(harness, 100)
    assert given.index("b") <= most_before(settings, "b", "abc")


async def test_no_tenant_is_one_too(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    nobody = await harness.add_many(3)
    somebody = await add_for(harness, "aaa")
    assert await harness.claim_ids(4) == [nobody[0], somebody[0], nobody[1], somebody[1]]


async def test_elsewhere_tenants_mean_nothing(harness: Harness) -> None:
    await add_for(harness, "aaabb")
    assert await served(harness, 5) == "aaabb"
    assert await harness.tenants(QUEUE) == []


async def test_the_share_is_part_of_the_record(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    (fair,) = await add_for(harness, "a")
    (plain,) = await add_for(harness, "a", queue="plain")
    assert [(await harness.record(task_id)).share for task_id in (fair, plain)] == ["a", ""]
    (task,) = await harness.claim()
    assert task.spec.tenant == "a"


async def test_turning_it_on_ranks_again(harness: Harness) -> None:
    ids = await add_for(harness, "aaab")
    assert (await harness.set_queue(fair=True)).stale == 4
    await harness.rerank()
    assert [(await harness.record(task_id)).share for task_id in ids] == list("aaab")
    assert await served(harness, 4) == "abaa"


async def test_turning_it_off_ranks_again(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "aaaab")
    assert await served(harness, 1) == "a"
    await harness.set_queue(fair=False)
    await harness.rerank()
    assert await served(harness, 4) == "aaab"


async def test_while_ranks_are_stale_everybody_is_served(harness: Harness) -> None:
    """Tasks that are not ranked again yet are one share, new ones belong to their tenants."""
    old = await add_for(harness, "aab")
    await harness.set_queue(fair=True)
    new = await add_for(harness, "c")
    assert await harness.claim_ids(9) == [old[0], new[0], old[1], old[2]]


async def test_peek_and_position_follow_the_turns(harness: Harness) -> None:
    await harness.set_queue(fair=True, weights={"b": 2})
    for letters, priority in (("aaab", 50), ("bbc", 70), ("ca", 10)):
        await add_for(harness, letters, priority=priority)
    await harness.claim(2)
    before = await virtual_times(harness)
    expected = await harness.peek()
    assert len(expected) == 7
    assert await harness.peek(limit=3) == expected[:3]
    for ahead, task_id in enumerate(expected):
        assert await harness.position(task_id) == Position(ahead)
    assert await virtual_times(harness) == before, "looking costs nothing"
    assert await harness.claim_ids(9) == expected


async def test_a_tag_never_lies_before_the_clock(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "a" * 6)
    await harness.claim(5)
    await add_for(harness, "b")
    assert await virtual_times(harness) == {"b": 4 * COST, "a": 5 * COST}


async def test_every_start_costs(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "ab")
    (task,) = await harness.claim()
    await harness.settle(task, Outcome.RELEASED)
    assert await served(harness, 2) == "ba"
    await harness.finish((await add_for(harness, "a"))[0])
    await harness.add_many(1, tenant="a")
    await harness.add_many(1, tenant="b")
    assert await served(harness, 2) == "ba"


async def test_prefetched_tasks_cost_too(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "aaabbb")
    assert await served(harness, 1, prefetch=2) == "aba"
    assert await served(harness, 1) == "b"


async def test_who_has_nothing_for_this_worker_is_passed_over_and_pays_nothing(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "aa", name="strange")
    await add_for(harness, "bbc")
    assert await served(harness, 2, names=("work",)) == "bc"
    before = await virtual_times(harness)
    assert before["a"] <= before["b"]
    assert await served(harness, 1) == "a"


async def test_a_full_partition_passes_its_tenants_turn_on(harness: Harness) -> None:
    await harness.set_queue(fair=True, per_partition=1)
    await harness.start(tenant="a", partition="p")
    await add_for(harness, "a", partition="p", priority=90)
    await add_for(harness, "b", partition="p")
    free = await add_for(harness, "ac")
    assert await harness.claim_ids(9) == [free[1], free[0]]


async def test_a_full_name_passes_its_tenants_turn_on(harness: Harness) -> None:
    await harness.set_queue(fair=True, per_task={"mail": 1})
    await add_for(harness, "a", name="mail")
    await harness.claim()
    await add_for(harness, "bbb", name="mail")
    await add_for(harness, "ac")
    assert await served(harness, 9) == "ca"


async def test_a_name_that_is_full_halfway_through_a_claim_leaves_the_rest_to_others(harness: Harness) -> None:
    await harness.set_queue(fair=True, per_task={"mail": 2}, per_partition=1)
    await add_for(harness, "ab", name="mail", partition="p", priority=90)
    await add_for(harness, "b", name="mail", partition="q")
    await add_for(harness, "bbcdefghijklmno", name="mail")
    await add_for(harness, "yzz")
    assert await served(harness, 6) == "abyzz"


async def test_slots_of_a_narrow_queue_are_shared(harness: Harness) -> None:
    await harness.set_queue(fair=True, max_concurrent=2)
    await add_for(harness, "a" * 6)
    await add_for(harness, "b" * 3)
    given = ""
    while tasks := await harness.claim(9):
        given += "".join(task.spec.tenant for task in tasks)
        await harness.settle(tasks[0])
        if len(tasks) == 2:
            await harness.settle(tasks[1])
    assert given == "abababaaa"


async def test_a_floor_ends_one_tenant_only(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "aaa", priority=10)
    await add_for(harness, "bb", priority=90)
    assert await served(harness, 9, floors=(Floor(80, 1),)) == "abb"
    assert await served(harness, 9) == "aa"


async def test_queues_are_merged_by_the_task_whose_turn_it_is(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "a", priority=30)
    await add_for(harness, "b", priority=90)
    middle = await harness.add_many(2, queue="other", priority=60)
    tasks = await harness.claim(9, queues=(QUEUE, "other"))
    assert [task.queue for task in tasks] == ["other", "other", QUEUE, QUEUE]
    assert [task.id for task in tasks[:2]] == middle
    assert [task.spec.tenant for task in tasks[2:]] == ["a", "b"], "it is a's turn, however urgent b is"


async def test_lanes_are_merged_within_a_tenant(harness: Harness) -> None:
    await harness.set_queue(fair=True, aging=60, max_aging_bonus=10)
    old = await harness.add(tenant="a", priority=50)
    harness.later(HOUR)
    await harness.rerank()
    assert (await harness.record(old)).lane == 1
    low, high = await harness.add(tenant="a", priority=55), await harness.add(tenant="a", priority=65)
    other = await harness.add(tenant="b", priority=0)
    assert await harness.peek() == [high, other, old, low]
    assert await harness.claim_ids(5) == [high, other, old, low]


async def test_a_deleted_queue_forgets_its_turns(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await add_for(harness, "aa")
    await harness.claim(2)
    assert await harness.engine.delete_queue(QUEUE, force=True, now=harness.now) is Changed.DONE
    await harness.set_queue(fair=True)
    await add_for(harness, "ab")
    assert await virtual_times(harness) == {"a": 0, "b": 0}


async def test_whatever_leaves_the_line_is_no_longer_counted(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    first, second, third = await add_for(harness, "aab")
    await harness.engine.act([Cancel(first)], now=harness.now)
    await harness.add(tenant="b", delay=MINUTE)
    found = {record.tenant: record.pending for record in await harness.tenants(QUEUE)}
    assert found == {"a": 1, "b": 1}
    harness.later(MINUTE)
    await harness.claim(queues=("nowhere",))
    found = {record.tenant: record.pending for record in await harness.tenants(QUEUE)}
    assert found == {"a": 1, "b": 2}
    await harness.engine.act([Cancel(second), Cancel(third)], now=harness.now)
    assert [record.tenant for record in await harness.tenants(QUEUE)] == ["b"]


async def test_a_replaced_task_changes_its_tenant(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    await harness.add(tenant="a", key="k")
    await harness.engine.enqueue([harness.new(tenant="b", key="k", replace=True)], now=harness.now)
    assert [record.tenant for record in await harness.tenants(QUEUE)] == ["b"]
    assert await served(harness, 5) == "b"


async def test_many_tenants(harness: Harness) -> None:
    await harness.set_queue(fair=True)
    names = [f"tenant {number:04}" for number in range(1_200)]
    await harness.enqueue(*(harness.new(tenant=names[0]) for _ in range(50)))
    await harness.enqueue(*(harness.new(tenant=name) for name in names))
    tasks = await harness.claim(1_201)
    assert [task.spec.tenant for task in tasks] == [*names, names[0]]


async def test_search_by_tenant(harness: Harness) -> None:
    ids = await add_for(harness, "aba")
    done = await harness.ended(tenant="a", priority=90)
    page = await harness.engine.search(Query(tenant="a"))
    assert [record.id for record in page.tasks] == [done, ids[2], ids[0]]
    page = await harness.engine.search(Query(tenant="a", states=(State.PENDING,)))
    assert [record.id for record in page.tasks] == [ids[2], ids[0]]
    assert (await harness.engine.search(Query(tenant="c"))).tasks == []
