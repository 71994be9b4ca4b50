"""subscribe: verbs notify the topics of what they do; a notification between two waits is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from dibs.core.task import Edit, Outcome, QueueState, WorkerState
from dibs.core.times import HOUR, SECOND
from dibs.engines.topics import ended_topic, room_topic, work_topic, worker_topic
from dibs.engines.values import Cancel, Floor, Replay
from dibs.testing.conformance.harness import QUEUE, WORKER, Harness

__all__ = ["notifies"]

PATIENCE = 10.0
"""Seconds after which a notification counts as missing; no passing test waits for it."""


async def notifies(harness: Harness, topic: str, act: Awaitable[object]) -> bool:
    """Whether an act wakes a subscription to the topic."""
    subscription = harness.engine.subscribe([topic])
    try:
        await act
        return await subscription.wait(PATIENCE)
    finally:
        subscription.close()


async def test_it_wakes(harness: Harness) -> None:
    assert await notifies(harness, work_topic("a"), harness.add(queue="a"))


async def test_it_wakes_a_wait_under_way(harness: Harness) -> None:
    subscription = harness.engine.subscribe([work_topic("a"), work_topic("b")])
    waiting = asyncio.create_task(subscription.wait(PATIENCE))
    await asyncio.sleep(0)
    await harness.add(queue="b")
    assert await waiting
    subscription.close()


async def test_notifications_are_remembered_until_heard(harness: Harness) -> None:
    subscription = harness.engine.subscribe([work_topic("a")])
    for _ in range(3):
        await harness.add(queue="a")
        assert await subscription.wait(PATIENCE)
    subscription.close()


async def test_every_listener_hears(harness: Harness) -> None:
    subscriptions = [harness.engine.subscribe([work_topic("a")]) for _ in range(3)]
    await harness.add(queue="a")
    for subscription in subscriptions:
        assert await subscription.wait(PATIENCE)
        subscription.close()


async def test_waiting_ends_without_a_notification(harness: Harness) -> None:
    subscription = harness.engine.subscribe([work_topic("silent")])
    async with asyncio.timeout(PATIENCE):
        await subscription.wait(0.0)
        await subscription.wait(0.001)
    subscription.close()


async def test_a_closed_subscription_may_be_closed_again(harness: Harness) -> None:
    subscription = harness.engine.subscribe([work_topic("a")])
    subscription.close()
    subscription.close()
    await harness.add(queue="a")


async def test_sibling_hears(harness: Harness) -> None:
    sibling = harness.engine.sibling()
    await sibling.open()
    subscription = sibling.subscribe([work_topic(QUEUE)])
    await harness.add()
    assert await subscription.wait(PATIENCE)
    subscription.close()
    await sibling.close()


async def test_new_work_notifies(harness: Harness) -> None:
    work = work_topic(QUEUE)
    assert await notifies(harness, work, harness.add())
    dead = await harness.ended(Outcome.PERMANENT, queue="elsewhere")
    replay = harness.engine.act([Replay(dead, queue=QUEUE)], now=harness.now)
    assert await notifies(harness, work, replay)
    assert await notifies(harness, work, harness.add(delay=2 * HOUR)), "a sleeper must learn when the next task is due"
    late = await harness.add(delay=HOUR)
    assert await notifies(harness, work, harness.engine.act([Edit(id=late, due_at=harness.now)], now=harness.now))


async def test_work_that_comes_back_notifies(harness: Harness) -> None:
    work = work_topic(QUEUE)
    task = await harness.start()
    assert await notifies(harness, work, harness.settle(task, Outcome.RELEASED))
    await harness.take(task.id)
    harness.later(HOUR)
    assert await notifies(harness, work, harness.engine.rescue(now=harness.now))


async def test_resumed_queue_notifies(harness: Harness) -> None:
    await harness.add()
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    resume = harness.engine.set_queue_state(QUEUE, QueueState.ACTIVE, now=harness.now)
    assert await notifies(harness, work_topic(QUEUE), resume)


async def test_ends_notify(harness: Harness) -> None:
    ended = ended_topic(QUEUE)
    assert await notifies(harness, ended, harness.settle(await harness.start()))
    assert await notifies(harness, ended, harness.settle(await harness.start(), Outcome.PERMANENT))
    waiting = await harness.add()
    assert await notifies(harness, ended, harness.engine.act([Cancel(waiting)], now=harness.now))
    await harness.add()
    assert await notifies(harness, ended, harness.engine.delete_queue(QUEUE, force=True, now=harness.now))


async def test_workers_are_notified(harness: Harness) -> None:
    topic = worker_topic(WORKER)
    task = await harness.start()
    assert await notifies(harness, topic, harness.engine.act([Cancel(task.id)], now=harness.now))
    await harness.beat()
    pause = harness.engine.set_worker_state(WORKER, WorkerState.PAUSED, now=harness.now)
    assert await notifies(harness, topic, pause)


async def test_whatever_makes_room_notifies(harness: Harness) -> None:
    room = room_topic(QUEUE)
    await harness.set_queue(max_depth=10)
    await harness.add_many(5)
    assert await notifies(harness, room, harness.claim())
    assert await notifies(harness, room, harness.claim(floors=(Floor(1, 1),)))
    waiting, other, *_ = await harness.peek()
    assert await notifies(harness, room, harness.engine.act([Cancel(waiting)], now=harness.now))
    postpone = Edit(id=other, due_at=harness.now + HOUR)
    assert await notifies(harness, room, harness.engine.act([postpone], now=harness.now))
    assert await notifies(harness, room, harness.set_queue(max_depth=20))
    await harness.add(expires_at=harness.now + SECOND)
    harness.later(SECOND)
    assert await notifies(harness, room, harness.claim(queues=("nowhere",)))
    assert await notifies(harness, room, harness.engine.delete_queue(QUEUE, force=True, now=harness.now))


async def test_a_limited_queue_notifies_of_its_room(harness: Harness) -> None:
    await harness.set_queue(max_depth=10, max_concurrent=5, fair=True)
    await harness.add(tenant="a")
    assert await notifies(harness, room_topic(QUEUE), harness.claim())


async def test_a_sibling_hears_of_room(harness: Harness) -> None:
    await harness.set_queue(max_depth=10)
    await harness.add()
    sibling = harness.engine.sibling()
    await sibling.open()
    subscription = sibling.subscribe([room_topic(QUEUE)])
    await harness.claim()
    assert await subscription.wait(PATIENCE)
    subscription.close()
    await sibling.close()
