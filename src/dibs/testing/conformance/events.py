"""events: what has happened, while somebody subscribes, in order, resumable by a cursor."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.core.task import Edit, Failure, Outcome, QueueState, WorkerState
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.events import KEEP_WATCHING, Event, EventPage, EventRequest
from dibs.engines.values import Cancel, Purge, Replay
from dibs.observe.events import EventType
from dibs.testing.conformance.harness import QUEUE, WORKER, Harness


class Subscriber:
    """Reads on from where it stopped."""

    def __init__(self, harness: Harness, *topics: str, queues: Sequence[str] = (), name: str = "s") -> None:
        self.harness = harness
        self.request = EventRequest(subscriber=name, topics=topics, queues=tuple(queues))
        self.cursor: str | None = None

    async def page(self, limit: int = 1000) -> EventPage:
        request = EventRequest(
            subscriber=self.request.subscriber,
            topics=self.request.topics,
            queues=self.request.queues,
            cursor=self.cursor,
            limit=limit,
        )
        page = await self.harness.engine.events(request, now=self.harness.now)
        self.cursor = page.cursor
        return page

    async def read(self) -> list[Event]:
        return (await self.page()).events

    async def types(self) -> list[str]:
        return [event.type for event in await self.read()]


async def subscribed(harness: Harness, *topics: str, queues: Sequence[str] = ()) -> Subscriber:
    subscriber = Subscriber(harness, *topics, queues=queues)
    assert await subscriber.read() == []
    return subscriber


async def test_nothing_is_written_before_somebody_subscribes(harness: Harness) -> None:
    await harness.ended()
    subscriber = await subscribed(harness)
    assert await subscriber.read() == []
    task_id = await harness.add()
    assert [(event.type, event.task) for event in await subscriber.read()] == [("task.submitted", task_id)]
    assert await subscriber.read() == []


async def test_the_life_of_a_task(harness: Harness) -> None:
    subscriber = await subscribed(harness, "task")
    first = await harness.start(name="send")
    harness.later(2 * SECOND)
    await harness.settle(first)
    events = await subscriber.read()
    assert [event.type for event in events] == ["task.submitted", "task.started", "task.completed"]
    submitted, started, completed = events
    assert {(event.task, event.name, event.queue) for event in events} == {(first.id, "send", QUEUE)}
    assert submitted.details == {"state": "pending"}
    assert (started.worker, completed.worker) == (WORKER, WORKER)
    assert (completed.took, completed.at) == (2 * SECOND, harness.now)
    assert [event.n for event in events] == sorted({event.n for event in events})


async def test_failures_retries_and_death(harness: Harness) -> None:
    subscriber = await subscribed(harness, "task")
    task = await harness.start()
    failure = Failure(type="ValueError", message="no")
    await harness.settle(task, Outcome.FAILED, failure=failure, delay=MINUTE)
    assert await subscriber.types() == ["task.submitted", "task.started", "task.failed", "task.retrying"]
    harness.later(MINUTE)
    (again,) = await harness.claim()
    await harness.settle(again, Outcome.PERMANENT, failure=failure)
    events = await subscriber.read()
    assert [event.type for event in events] == ["task.promoted", "task.started", "task.failed", "task.dead"]
    assert events[2].details == {"attempt": 2, "error_type": "ValueError", "error": "no"}
    assert events[3].details["reason"] == "permanent"
    await harness.engine.act([Replay(task.id)], now=harness.now)
    await harness.engine.act([Cancel(task.id, "enough")], now=harness.now)
    await harness.engine.act([Purge(task.id)], now=harness.now)
    events = await subscriber.read()
    assert [event.type for event in events] == ["task.replayed", "task.cancelled", "task.purged"]
    assert events[1].details == {"reason": "user", "note": "enough"}


async def test_losses_releases_and_requests(harness: Harness) -> None:
    subscriber = await subscribed(harness, "task.lost", "task.released", "task.cancel_requested", "task.scheduled")
    task = await harness.start()
    harness.later(MINUTE)
    await harness.engine.rescue(now=harness.now)
    assert await subscriber.types() == ["task.lost"]
    (again,) = await harness.claim()
    assert again.id == task.id
    await harness.settle(again, Outcome.RELEASED)
    (again,) = await harness.claim()
    await harness.settle(again, Outcome.SNOOZED, delay=MINUTE)
    harness.later(MINUTE)
    (again,) = await harness.claim()
    await harness.engine.act([Cancel(task.id)], now=harness.now)
    assert await subscriber.types() == ["task.released", "task.scheduled", "task.cancel_requested"]


async def test_tasks_that_wait(harness: Harness) -> None:
    subscriber = await subscribed(harness, "task")
    first = await harness.add(delay=MINUTE)
    second = await harness.follow(first)
    events = await subscriber.read()
    assert [event.details for event in events] == [
        {"state": "scheduled", "due_at": harness.now + MINUTE},
        {"state": "blocked"},
    ]
    await harness.engine.act([Edit(id=first, priority=90)], now=harness.now)
    assert await subscriber.types() == ["task.edited"]
    harness.later(MINUTE)
    await harness.finish(first)
    events = await subscriber.read()
    assert {(event.type, event.task) for event in events} >= {("task.promoted", first), ("task.unblocked", second)}
    await harness.add(queue="late", expires_at=harness.now + SECOND)
    harness.later(MINUTE)
    await harness.claim(queues=("late",))
    assert [event.details for event in await subscriber.read() if event.type == EventType.TASK_CANCELLED] == [
        {"reason": "expired", "note": "it had not started when it expired"}
    ]


async def test_a_promotion_to_the_next_tier(harness: Harness) -> None:
    await harness.set_queue(policy="tiers", promote_low=30)
    task_id = await harness.add(priority=30)
    subscriber = await subscribed(harness, "task.promoted")
    harness.later(30 * SECOND)
    await harness.rerank()
    (event,) = await subscriber.read()
    assert (event.task, event.details) == (task_id, {"tier": "medium"})


async def test_limited_and_fair_queues_alike(harness: Harness) -> None:
    await harness.set_queue(max_concurrent=5, per_partition=1)
    await harness.set_queue("fair", fair=True)
    subscriber = await subscribed(harness, "task")
    for facts in ({"partition": "a"}, {"queue": "fair", "tenant": "t"}):
        task = await harness.start(**facts)
        await harness.settle(task)
        assert await subscriber.types() == ["task.submitted", "task.started", "task.completed"]


async def test_a_subscription_names_topics_and_queues(harness: Harness) -> None:
    starts = await subscribed(harness, "task.started", queues=("a",))
    every = Subscriber(harness, queues=("b",), name="other")
    await every.read()
    await harness.start(queue="a")
    await harness.start(queue="b")
    await harness.start(queue="c")
    assert [(event.type, event.queue) for event in await starts.read()] == [("task.started", "a")]
    assert [(event.type, event.queue) for event in await every.read()] == [
        ("task.submitted", "b"),
        ("task.started", "b"),
    ]


async def test_only_what_is_wanted_is_written(harness: Harness) -> None:
    """Two subscribers, one after the other: the second can't resume from before, because nothing was written for it."""
    starts = await subscribed(harness, "task.started", queues=("a",))
    before = starts.cursor
    await harness.ended(queue="a")
    await harness.ended(queue="b")
    every = Subscriber(harness, name="other")
    every.cursor = before
    assert [(event.type, event.queue) for event in await every.read()] == [("task.started", "a")]


async def test_workers_and_queues(harness: Harness) -> None:
    subscriber = await subscribed(harness, "worker", "queue")
    engine = harness.engine
    await harness.beat("w")
    await harness.beat("w")
    for state in (WorkerState.PAUSED, WorkerState.ACTIVE, WorkerState.DRAINING):
        await engine.set_worker_state("w", state, actor="ada", now=harness.now)
    await engine.leave("w", now=harness.now)
    await harness.beat("x")
    harness.later(MINUTE)
    await engine.rescue(now=harness.now)
    events = await subscriber.read()
    assert [(event.type, event.worker) for event in events] == [
        ("worker.joined", "w"),
        ("worker.paused", "w"),
        ("worker.resumed", "w"),
        ("worker.draining", "w"),
        ("worker.left", "w"),
        ("worker.joined", "x"),
        ("worker.dead", "x"),
    ]
    assert events[1].details == {"actor": "ada"}
    await harness.set_queue("q", max_depth=5)
    for paused in (QueueState.PAUSED, QueueState.DRAINING, QueueState.ACTIVE):
        await engine.set_queue_state("q", paused, now=harness.now)
    await engine.delete_queue("q", now=harness.now)
    events = await subscriber.read()
    assert [event.type for event in events] == [
        "queue.changed",
        "queue.paused",
        "queue.draining",
        "queue.resumed",
        "queue.deleted",
    ]
    assert {event.queue for event in events} == {"q"}


async def test_pages_and_cursors(harness: Harness) -> None:
    subscriber = await subscribed(harness, "task.submitted")
    ids = await harness.add_many(25)
    start, found = subscriber.cursor, []
    while events := (await subscriber.page(limit=10)).events:
        found += [event.task for event in events]
    assert found == ids
    subscriber.cursor = start
    assert [event.task for event in await subscriber.read()] == ids


async def test_it_ends_a_while_after_the_last_read(harness: Harness) -> None:
    subscriber = await subscribed(harness, "task.submitted")
    harness.later(MINUTE)
    first = await harness.add()
    harness.later(KEEP_WATCHING - MINUTE)
    await harness.add()  # nobody has read for too long
    assert [event.task for event in await subscriber.read()] == [first]
    third = await harness.add()  # that read subscribed again
    assert [event.task for event in await subscriber.read()] == [third]


async def test_reading_keeps_it_alive(harness: Harness) -> None:
    subscriber = await subscribed(harness, "task.submitted")
    for _ in range(10):
        harness.later(MINUTE)
        task_id = await harness.add()
        assert [event.task for event in await subscriber.read()] == [task_id]


async def test_old_events_are_deleted_and_missed(harness: Harness) -> None:
    subscriber = await subscribed(harness, "task.submitted")
    cursor = subscriber.cursor
    await harness.add()
    assert len(await subscriber.read()) == 1
    harness.later(HOUR)
    await harness.finish_chore("prune_events")
    subscriber.cursor, kept = cursor, subscriber.cursor
    page = await subscriber.page()
    assert (page.events, page.missed) == ([], True)
    subscriber.cursor = kept
    assert not (await subscriber.page()).missed


async def test_another_process_writes_too(harness: Harness) -> None:
    """It has read what it knows of queues before anybody subscribed."""
    other = harness.engine.sibling()
    await other.open()
    try:
        await other.enqueue([harness.new()], now=harness.now)
        claimed = await other.claim(harness.request(1), now=harness.now)
        subscriber = await subscribed(harness, "task")
        (task,) = claimed.tasks
        await Harness(other, harness.now).settle(task)
        assert await subscriber.types() == ["task.completed"]
    finally:
        await other.close()
