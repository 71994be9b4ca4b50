"""search: pages of matching tasks, newest first, each task once."""

from __future__ import annotations

from msgspec import structs

from dibs.core.states import State
from dibs.core.task import Failure, Outcome
from dibs.core.times import HOUR, MINUTE
from dibs.engines.values import READ_LIMIT, Cancel, EnqueueOutcome, Query, Replay
from dibs.testing.conformance.harness import WORKER, Harness


async def found(harness: Harness, query: Query) -> list[str]:
    """All pages of a search."""
    ids: list[str] = []
    while True:
        page = await harness.engine.search(query)
        assert len(page.tasks) <= query.limit
        ids += [record.id for record in page.tasks]
        if page.cursor is None:
            return ids
        query = structs.replace(query, cursor=page.cursor)


async def test_newest_first_from_all_places(harness: Harness) -> None:
    ids = [await harness.ended(), await harness.ended(Outcome.PERMANENT), await harness.ended(), await harness.add()]
    assert await found(harness, Query()) == ids[::-1]
    assert await found(harness, Query(limit=1)) == ids[::-1]


async def test_records_are_whole(harness: Harness) -> None:
    task_id = await harness.ended(metadata={"a": [1]})
    (record,) = (await harness.engine.search(Query())).tasks
    assert record == await harness.record(task_id)


async def test_empty_store(harness: Harness) -> None:
    page = await harness.engine.search(Query())
    assert (page.tasks, page.cursor) == ([], None)


async def test_pages_go_on_where_they_stopped(harness: Harness) -> None:
    ids = await harness.add_many(25)
    first = await harness.engine.search(Query(limit=10))
    assert [record.id for record in first.tasks] == ids[:14:-1]
    await harness.add_many(5)
    assert first.cursor is not None
    assert await found(harness, Query(limit=10, cursor=first.cursor)) == ids[14::-1]


async def test_a_task_that_moves_is_found_once(harness: Harness) -> None:
    ids = await harness.add_many(6)
    page = await harness.engine.search(Query(limit=3))
    for task in await harness.claim(6):
        await harness.settle(task)
    assert page.cursor is not None
    rest = await found(harness, Query(limit=3, cursor=page.cursor))
    assert [record.id for record in page.tasks] + rest == ids[::-1]


async def test_by_state(harness: Harness) -> None:
    completed, dead = await harness.ended(), await harness.ended(Outcome.PERMANENT)
    running = await harness.start()
    pending, scheduled = await harness.add(), await harness.add(delay=HOUR)
    assert await found(harness, Query(states=(State.COMPLETED,))) == [completed]
    assert await found(harness, Query(states=(State.DEAD, State.RUNNING))) == [running.id, dead]
    assert await found(harness, Query(states=(State.PENDING, State.SCHEDULED))) == [scheduled, pending]
    assert await found(harness, Query(states=(State.BLOCKED,))) == []


async def test_by_queue_and_name(harness: Harness) -> None:
    a = await harness.add(queue="a", name="x")
    b = await harness.add(queue="b", name="y")
    c = await harness.ended(queue="c", name="y")
    assert await found(harness, Query(queues=("a", "c"))) == [c, a]
    assert await found(harness, Query(names=("y",))) == [c, b]
    assert await found(harness, Query(names=("y",), queues=("b",))) == [b]


async def test_by_priority(harness: Harness) -> None:
    ids = [await harness.add(priority=priority) for priority in (10, 50, 90)]
    assert await found(harness, Query(priority_min=50)) == [ids[2], ids[1]]
    assert await found(harness, Query(priority_max=50)) == [ids[1], ids[0]]


async def test_by_time(harness: Harness) -> None:
    ids = []
    for _ in range(3):
        ids.append(await harness.add())
        harness.later(HOUR)
    start = harness.now - 3 * HOUR
    assert await found(harness, Query(created_after=start + MINUTE)) == [ids[2], ids[1]]
    assert await found(harness, Query(created_before=start + HOUR + MINUTE)) == [ids[1], ids[0]]


async def test_by_the_time_of_the_end(harness: Harness) -> None:
    first = await harness.ended()
    harness.later(HOUR)
    second, third = await harness.ended(Outcome.PERMANENT), await harness.add()
    assert await found(harness, Query(ended_after=harness.now)) == [second]
    assert await found(harness, Query(ended_before=harness.now)) == [first]
    assert await found(harness, Query(ended_before=harness.now + 1)) == [second, first]
    assert third not in await found(harness, Query(ended_after=0))


async def test_states_that_a_name_has_no_tasks_in(harness: Harness) -> None:
    await harness.ended(name="a")
    pending = await harness.add(name="b")
    assert await found(harness, Query(states=(State.COMPLETED,), names=("b",))) == []
    assert await found(harness, Query(states=(State.COMPLETED, State.PENDING), names=("b",))) == [pending]
    assert await found(harness, Query(states=(State.PENDING,), worker=WORKER)) == []


async def test_by_metadata(harness: Harness) -> None:
    one = await harness.add(metadata={"customer": 1, "tags": ["a", "b"]})
    two = await harness.add(metadata={"customer": 2, "vip": True, "tags": ["a"]})
    await harness.add(metadata={"customer": "1"})
    assert await found(harness, Query(metadata={"customer": 1})) == [one]
    assert await found(harness, Query(metadata={"customer": 2, "vip": True})) == [two]
    assert await found(harness, Query(metadata={"tags": ["a"]})) == [two]
    assert await found(harness, Query(metadata={"missing": None})) == []


async def test_by_key_and_worker(harness: Harness) -> None:
    keyed = await harness.add(key="order-7")
    await harness.add(key="order-8")
    assert await found(harness, Query(key="order-7")) == [keyed]
    assert await found(harness, Query(worker=WORKER)) == []
    await harness.claim()
    assert await found(harness, Query(worker=WORKER)) == [keyed]


async def test_by_tenant_and_partition(harness: Harness) -> None:
    one, two = await harness.add(tenant="a", partition="p"), await harness.add(tenant="b", partition="p")
    await harness.add(metadata={"tenant": "a", "partition": "p"})
    assert await found(harness, Query(tenant="a")) == [one]
    assert await found(harness, Query(partition="p")) == [two, one]
    assert await found(harness, Query(partition="p", tenant="b")) == [two]
    assert await found(harness, Query(partition="")) == []


async def test_by_text_in_arguments_errors_and_notes(harness: Harness) -> None:
    by_args = await harness.add(queue="a", args=b'{"to":"Ada@example.org"}')
    failed = await harness.start(queue="b")
    await harness.settle(failed, Outcome.PERMANENT, failure=Failure(type="KeyError", message="no Ada here"))
    noted = await harness.add(queue="c")
    await harness.engine.act([Cancel(noted, "ada asked for it")], now=harness.now)
    await harness.add(queue="d", args=b'{"to":"grace"}')
    assert await found(harness, Query(text="ada")) == [noted, failed.id, by_args]
    assert await found(harness, Query(text="KeyError")) == [failed.id]
    assert await found(harness, Query(text="100%")) == []
    assert await found(harness, Query(text="_da")) == []


async def test_by_workflow_behind_many_others(harness: Harness) -> None:
    """More newer tasks than one page looks at."""
    members = [harness.new(queue="a"), harness.new(queue="a"), harness.new(queue="a", delay=HOUR)]
    workflow = await harness.begin(*members)
    ids = [task.id for task in members]
    await harness.settle((await harness.claim(1, queues=("a",)))[0])
    await harness.engine.act([Cancel(ids[1])], now=harness.now)
    await harness.add_many(READ_LIMIT + 1)
    assert await found(harness, Query(workflow=workflow)) == ids[::-1]
    assert await found(harness, Query(workflow=workflow, limit=1)) == ids[::-1]
    assert await found(harness, Query(workflow=workflow, states=(State.CANCELLED,))) == [ids[1]]
    assert await found(harness, Query(workflow=harness.new_id())) == []


async def test_all_that_is_given_must_hold(harness: Harness) -> None:
    await harness.add(name="x", priority=90)
    wanted = await harness.add(name="x", priority=10, metadata={"a": 1})
    await harness.add(name="y", priority=10, metadata={"a": 1})
    query = Query(names=("x",), priority_max=50, metadata={"a": 1}, states=(State.PENDING,))
    assert await found(harness, query) == [wanted]


# Behind many others. Ids of the harness are a millisecond apart, so a jump of its counter is a jump of time.

FAR = 100_000
BESIDES = 400
"""More than a search reads before it asks where to look."""


async def go_far(harness: Harness) -> None:
    """Let what was enqueued so far be behind others, whose ids are of a later time."""
    harness.made += FAR
    await harness.add_many(BESIDES, queue="besides", name="besides")
    harness.made += FAR


async def find_at_once(harness: Harness, query: Query) -> list[str]:
    """The only page of a search that reads little."""
    page = await harness.engine.search(query)
    assert page.cursor is None, query
    assert page.visited < BESIDES, query
    return [task.id for task in page.tasks]


async def test_what_is_far_behind_is_found_at_once(harness: Harness) -> None:
    task_id = await harness.add(name="rare", queue="rarely", tenant="acme", partition="p 1", key='order "7"')
    await go_far(harness)
    (task,) = await harness.claim(queues=("rarely",), worker="lonely")
    await go_far(harness)
    queries = [
        Query(names=("rare",)),
        Query(queues=("rarely",)),
        Query(worker="lonely"),
        Query(queues=("rarely", "elsewhere"), names=("rare", "other")),
        Query(tenant="acme", partition="p 1", names=("rare",), worker="lonely"),
        Query(tenant="acme"),
        Query(partition="p 1"),
        Query(key='order "7"'),
    ]
    for query in [*queries, Query(states=(State.RUNNING,)), Query(states=(State.RUNNING, State.DEAD), tenant="acme")]:
        assert await find_at_once(harness, query) == [task_id]
    await harness.settle(task)
    for query in [*queries, Query(states=(State.COMPLETED,)), Query(states=(State.COMPLETED,), worker="lonely")]:
        assert await find_at_once(harness, query) == [task_id]
    assert await find_at_once(harness, Query(tenant="acme", names=("besides",))) == []
    assert await find_at_once(harness, Query(key="order")) == []


async def test_each_state_is_found_at_once(harness: Harness) -> None:
    completed, dead = await harness.ended(), await harness.ended(Outcome.PERMANENT)
    cancelled, running = await harness.add(), await harness.start(queue="a")
    await harness.engine.act([Cancel(cancelled)], now=harness.now)
    failed = await harness.start(queue="b")
    await harness.settle(failed, Outcome.FAILED, delay=HOUR)
    scheduled, pending = await harness.add(delay=HOUR), await harness.add(queue="c")
    blocked = await harness.follow(pending)
    await go_far(harness)
    ids = [completed, dead, cancelled, running.id, failed.id, scheduled, pending, blocked]
    states = [
        State.COMPLETED, State.DEAD, State.CANCELLED, State.RUNNING, State.RETRYING, State.SCHEDULED, State.PENDING,
        State.BLOCKED,
    ]  # fmt: skip
    assert await harness.states(*ids) == states
    for task_id, state in zip(ids, states, strict=True):
        queue = (await harness.record(task_id)).queue
        assert await find_at_once(harness, Query(states=(state,), queues=(queue,))) == [task_id]
        if state is not State.PENDING:
            assert await find_at_once(harness, Query(states=(state,))) == [task_id]
    others = tuple(state for state in states if state is not State.PENDING)
    assert await found(harness, Query(states=others, limit=2)) == [each for each in ids[::-1] if each != pending]


async def test_cancelled_behind_completed(harness: Harness) -> None:
    cancelled = await harness.add()
    await harness.engine.act([Cancel(cancelled)], now=harness.now)
    await go_far(harness)
    for task in await harness.claim(BESIDES, queues=("besides",)):
        await harness.settle(task)
    assert await find_at_once(harness, Query(states=(State.CANCELLED,))) == [cancelled]


async def test_states_of_several_places_are_merged(harness: Harness) -> None:
    """More of each than one read gives."""
    ids = [await harness.ended(Outcome.PERMANENT, priority=90), await harness.add(priority=90, delay=HOUR)]
    for _ in range(4):
        ids += await harness.add_many(70, queue="a")
        for task in await harness.claim(70, queues=("a",)):
            await harness.settle(task, Outcome.PERMANENT)
        ids += await harness.add_many(70, delay=HOUR)
    query = Query(states=(State.SCHEDULED, State.DEAD), limit=30)
    assert await found(harness, query) == ids[::-1]
    assert await found(harness, structs.replace(query, priority_min=90)) == ids[1::-1]


async def test_times_are_those_of_the_store(harness: Harness) -> None:
    """Whatever the clocks of clients, and whatever ids they choose."""
    early = await harness.add()
    harness.later(24 * HOUR)  # from here on, ids are a day old
    late = [await harness.add(), await harness.add(id="ffffffff-0000-4000-8000-000000000000")]
    late.append(await harness.add(id="00000000-0000-4000-8000-000000000000", tenant="t", delay=HOUR))
    harness.later(MINUTE)
    await harness.add_many(BESIDES)
    day = harness.now - 24 * HOUR
    for within in (Query(created_after=day + HOUR, created_before=harness.now - MINUTE + 1), Query(created_before=day)):
        wanted = late if within.created_after is not None else [early]
        assert await found(harness, within) == sorted(wanted, reverse=True)
        assert await found(harness, structs.replace(within, limit=1)) == sorted(wanted, reverse=True)
    assert await found(harness, Query(created_after=day + HOUR, tenant="t")) == late[2:]


async def test_clocks_that_differ_a_little(harness: Harness) -> None:
    """What is known of a block does not tell when its tasks were created."""
    ids = []
    for _ in range(4):
        ids += [await harness.add(), await harness.add(), *await harness.add_many(2)]
        harness.later(20_000_000)
    harness.made += FAR
    await harness.add_many(BESIDES)
    for n in range(4):
        start = harness.now - (4 - n) * 20_000_000
        query = Query(created_after=start, created_before=start + 1)
        assert await find_at_once(harness, query) == ids[4 * n : 4 * n + 4][::-1]


async def test_a_span_of_time_is_found_at_once(harness: Harness) -> None:
    ids = []
    for _ in range(3):
        ids += await harness.add_many(2)
        await go_far(harness)
        harness.later(2 * FAR * 1_000)  # as far as the ids
    start = harness.now - 3 * 2 * FAR * 1_000
    query = Query(created_after=start, created_before=start + MINUTE, names=("work",))
    assert await find_at_once(harness, query) == ids[1::-1]
    later = structs.replace(query, created_after=start + MINUTE, created_before=start + 4 * MINUTE)
    assert await find_at_once(harness, later) == ids[3:1:-1]


async def test_pages_of_what_is_spread(harness: Harness) -> None:
    ids = []
    for number in range(8):
        ids += await harness.add_many(3, tenant="spread", name="x" if number % 2 else "y")
        await go_far(harness)
    for limit in (1, 2, 7, 50):
        assert await found(harness, Query(tenant="spread", limit=limit)) == ids[::-1]
    xs = [task_id for number, task_id in enumerate(ids) if number // 3 % 2]
    assert await found(harness, Query(tenant="spread", names=("x",), limit=2)) == xs[::-1]
    assert await found(harness, Query(tenant="spread", cursor=ids[9])) == ids[8::-1]


async def test_a_task_in_its_new_queue(harness: Harness) -> None:
    task_id = await harness.ended(Outcome.PERMANENT, queue="old")
    await go_far(harness)
    await harness.engine.act([Replay(task_id, queue="new")], now=harness.now)
    assert await find_at_once(harness, Query(queues=("new",))) == [task_id]
    assert await find_at_once(harness, Query(queues=("old",))) == []


async def test_a_task_with_new_labels(harness: Harness) -> None:
    old = harness.new(key="k", tenant="before", delay=HOUR)
    await harness.enqueue(old)
    await go_far(harness)
    answers = await harness.outcomes(harness.new(key="k", tenant="after", partition="p", delay=HOUR, replace=True))
    assert answers == [EnqueueOutcome.REPLACED]
    assert await find_at_once(harness, Query(tenant="after")) == [old.id]
    assert await find_at_once(harness, Query(partition="p")) == [old.id]
    assert await find_at_once(harness, Query(tenant="before")) == []


async def test_all_tasks_that_ever_had_a_key(harness: Harness) -> None:
    first = await harness.ended(key="k")
    await go_far(harness)
    harness.later(48 * HOUR)
    second = await harness.add(key="k")
    await go_far(harness)
    assert await found(harness, Query(key="k")) == [second, first]


async def test_a_worker_of_several_runs(harness: Harness) -> None:
    task = await harness.start(queue="a")
    await go_far(harness)
    await harness.settle(task, Outcome.FAILED)
    assert await find_at_once(harness, Query(worker=WORKER)) == []
    (again,) = await harness.claim(queues=("a",), worker="other")
    assert await find_at_once(harness, Query(worker="other")) == [task.id]
    await harness.settle(again, Outcome.PERMANENT)
    assert await find_at_once(harness, Query(worker="other")) == [task.id]


async def test_a_worker_of_tasks_that_came_one_by_one(harness: Harness) -> None:
    ids = []
    for _ in range(8):
        ids.append(await harness.add(queue="a"))
        harness.made += 10_000
    await go_far(harness)
    for task in await harness.claim(8, queues=("a",), worker="one"):
        await harness.settle(task)
    later = await harness.start(queue="b")
    await go_far(harness)
    (again,) = await harness.claim(queues=("besides",), worker="one")
    await go_far(harness)
    assert await found(harness, Query(worker="one", states=(State.COMPLETED,), limit=3)) == ids[::-1]
    assert (await found(harness, Query(worker="one")))[:1] == [again.id]
    assert await find_at_once(harness, Query(worker=WORKER)) == [later.id]
    assert len(await find_at_once(harness, Query(worker="one"))) == 9


async def test_what_is_not_in_the_index_goes_on(harness: Harness) -> None:
    """A page of a search by priority, metadata or text reads a bounded number of tasks."""
    wanted = await harness.add(priority=90, metadata={"a": 1}, args=b'{"to":"ada"}')
    for _ in range(READ_LIMIT // 2_000):
        await harness.add_many(2_000, priority=10)
    for query in (Query(priority_min=90), Query(metadata={"a": 1}), Query(text="ada")):
        page = await harness.engine.search(query)
        assert not page.tasks
        assert page.cursor is not None
        assert page.visited >= READ_LIMIT
        assert await found(harness, query) == [wanted]
