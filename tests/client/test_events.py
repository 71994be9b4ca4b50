"""app.events: what happens, for loops that block and loops that don't."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from dibs import Dibs, Permanent
from dibs.client import events as events_module
from dibs.client.events import EventFeed
from dibs.engines.figures import Counts
from dibs.errors import Closed, InvalidOption, StoreBusy
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
        ({"cursor": "-5"}, "cursor must be one"),
        ({"cursor": str(2**63)}, "cursor must be one"),
        ({"cursor": "1:x"}, "cursor must be one"),
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


def test_a_reader_that_gives_up_again_and_again_loses_nothing() -> None:
    async def go() -> None:
        app, add = make_app()
        found: list[str] = []

        async def read(events: EventFeed) -> None:
            async for event in events:
                found.append(event.data["task_id"])  # noqa: PERF401  # one by one: it may be given up at any of them

        async with app, app.events("task.submitted") as events:
            sent = []
            for number in range(60):
                sent.append((await add.aenqueue(number, number)).id)
                with suppress(TimeoutError):
                    await asyncio.wait_for(read(events), 0.003 * (number % 12))
            while len(found) < len(sent):
                found.append((await anext(aiter(events))).data["task_id"])
            assert found == sent

    asyncio.run(go())


def test_figures_that_can_not_be_read_cost_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "DEPTH_INTERVAL", 0.0)
    app, add = make_app()
    with app, app.events(["task.submitted", "queue.depth"]) as events:
        counts, calls = app.hub.engine.counts, iter(range(10**6))

        async def failing() -> Counts:
            if next(calls) % 2 == 0:
                raise StoreBusy("busy")
            return await counts()

        monkeypatch.setattr(app.hub.engine, "counts", failing)
        sent = [add.enqueue(number, number).id for number in range(20)]
        found: list[str] = []
        for event in events:
            if event.type == EventType.TASK_SUBMITTED:
                found.append(event.data["task_id"])
                if len(found) == len(sent):
                    break
        assert found == sent


def test_entering_with_a_cursor_subscribes() -> None:
    app, add = make_app()
    with app, app.events("task.submitted", cursor="0") as events:
        first = add.enqueue(1, 1)
        assert next(iter(events)).data["task_id"] == first.id


def test_a_cursor_of_another_store_is_told_that_it_has_missed_something() -> None:
    app, add = make_app()
    with app, app.events("task.submitted", cursor="123456") as events:
        handle = add.enqueue(1, 1)
        event = next(iter(events))
        assert (event.data["task_id"], event.missed) == (handle.id, True)
