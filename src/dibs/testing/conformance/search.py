"""search: pages of matching tasks, newest first, each task once."""

from __future__ import annotations

from msgspec import structs

from dibs.core.states import State
from dibs.core.task import Failure, Outcome
from dibs.core.times import HOUR, MINUTE
from dibs.engines.values import VISIT_LIMIT, Cancel, Query
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
    await harness.add_many(VISIT_LIMIT + 1)
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
