"""app.events: what happens, for loops that block and loops that don't."""

from __future__ import annotations

import asyncio
import threading
from itertools import islice
from typing import Any

import pytest

from dibs import Dibs, Permanent
from dibs.errors import Closed, InvalidOption
from dibs.observe.events import EventType


def make_app(url: str = "memory://") -> tuple[Dibs, Any]:
    app = Dibs(url)

    @app.task(name="add", queue="sums")
    def add(a: int, b: int) -> int:
        if a < 0:
            raise Permanent("negative")
        return a + b

    return app, add


def test_a_task_from_start_to_end() -> None:
    app, add = make_app()
    with app, app.events("task") as events, app.worker():
        handle = add.enqueue(1, 2)
        found = list(islice(events, 3))
    assert [event.type for event in found] == ["task.submitted", "task.started", "task.completed"]
    assert {(event.data["task_id"], event.data["name"], event.data["queue"]) for event in found} == {
        (handle.id, "add", "sums")
    }
    assert found[2].data["duration_ms"] >= 0
    assert found[0].at <= found[2].at


def test_a_failure_says_why() -> None:
    app, add = make_app()
    with app, app.events(["task.failed", "task.dead"]) as events, app.worker():
        add.enqueue(-1, 2)
        failed, dead = islice(events, 2)
    assert (failed.type, failed.data["error_type"], failed.data["error"]) == (
        EventType.TASK_FAILED,
        "dibs.errors.Permanent",
        "negative",
    )
    assert (dead.type, dead.data["reason"]) == (EventType.TASK_DEAD, "permanent")


def test_async_loops_and_cursors() -> None:
    async def go() -> None:
        app, add = make_app()
        async with app, app.events("task.submitted") as events:
            first, second = await add.aenqueue(1, 1), await add.aenqueue(2, 2)
            found = []
            async for event in events:
                found.append(event)
                if len(found) == 2:
                    break
            assert [event.data["task_id"] for event in found] == [first.id, second.id]
            third = await add.aenqueue(3, 3)
            async for event in app.events("task.submitted", cursor=found[-1].cursor):
                assert event.data["task_id"] == third.id
                break

    asyncio.run(go())


def test_queues_limit_it() -> None:
    app, add = make_app()

    @app.task(name="other", queue="others")
    def other() -> None: ...

    with app, app.events("task.submitted", queues=["others"]) as events:
        add.enqueue(1, 1)
        handle = other.enqueue()
        assert next(iter(events)).data["task_id"] == handle.id


def test_figures_are_computed_and_nothing_is_stored() -> None:
    app, add = make_app()
    with app, app.events(["queue.depth", "system.metrics"]) as events:
        add.enqueue(1, 1)
        found = {event.type: event.data for event in islice(events, 2)}
        assert found[EventType.QUEUE_DEPTH]["queue"] == "sums"
        assert found[EventType.QUEUE_DEPTH]["tasks"]["pending"] == 1
        assert found[EventType.SYSTEM_METRICS]["tasks"]["pending"] == 1
        assert found[EventType.SYSTEM_METRICS]["workers"] == 0
        assert events.cursor is None, "the store was not asked for events"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": "task.faild"}, "Did you mean 'task.failed'?"),
        ({"topics": ["tasks"]}, "no event is called 'tasks'"),
        ({"topics": [7]}, "no event is called 7"),
        ({"queues": "mail"}, "queues"),
        ({"cursor": "x"}, "cursor must be one"),
        ({"cursor": 5}, "cursor"),
    ],
)
def test_what_is_wrong_is_refused_at_once(options: dict[str, Any], told: str) -> None:
    app, _ = make_app()
    with app, pytest.raises(InvalidOption, match=told):
        app.events(**options)


def test_closing_the_app_wakes_a_reader() -> None:
    app, add = make_app()
    feed, reads, ended = app.events("task"), threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            for _ in feed:
                reads.set()
        except Closed as error:
            ended.append(error)

    with app, feed:
        reader = threading.Thread(target=read)
        reader.start()
        add.enqueue(1, 1)
        assert reads.wait(30)
        app.close()
        reader.join(30)
    assert not reader.is_alive()
    assert len(ended) == 1


def test_several_loops_over_one_feed() -> None:
    app, add = make_app()
    with app, app.events("task.submitted") as events:
        for number in range(3):
            handle = add.enqueue(number, number)
            assert next(iter(events)).data["task_id"] == handle.id


def test_a_cursor_goes_on_after_its_own_event() -> None:
    app, add = make_app()
    with app, app.events("task.submitted") as events:
        handles = app.enqueue_many([add.call(number, number) for number in range(5)])
        found = list(islice(events, 5))
        for number, event in enumerate(found[:-1]):
            with app.events("task.submitted", cursor=event.cursor) as later:
                assert [each.data["task_id"] for each in islice(later, 4 - number)] == [
                    handle.id for handle in handles[number + 1 :]
                ]


def test_a_loop_that_stops_in_the_middle_of_a_page_loses_nothing() -> None:
    app, add = make_app()
    with app, app.events("task.submitted") as events:
        handles = app.enqueue_many([add.call(number, number) for number in range(5)])
        found = [next(iter(events)).data["task_id"] for _ in range(5)]
    assert found == [handle.id for handle in handles]
