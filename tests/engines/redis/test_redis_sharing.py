"""Several engines on one Redis store at the same time: what each does is whole, and nobody is in another's way."""

from __future__ import annotations

import asyncio
import os
from collections import Counter as Tally
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis_help import claim, engines, new, run, set_queue, settle, sound

from dibs.core.graph import Edge
from dibs.core.states import State
from dibs.core.task import NewTask, TaskRecord
from dibs.core.times import MINUTE
from dibs.engines.redis import RedisEngine
from dibs.engines.redis.store import Store
from dibs.engines.values import Cancel, Changed, EnqueueOutcome, Query

PLAIN: dict[str, Any] = {}
LIMITED: dict[str, Any] = {"max_concurrent": 1000}


@pytest.mark.parametrize("settings", [PLAIN, LIMITED, {"fair": True}], ids=["plain", "limited", "fair"])
def test_every_task_is_given_to_one(settings: dict[str, Any]) -> None:
    async def test() -> None:
        async with engines(4) as workers:
            await set_queue(workers[0], **settings)
            tasks = [new(name=f"kind{i % 3}", priority=(50, 70, 20)[i % 3], tenant=f"t{i % 5}") for i in range(300)]
            await workers[0].enqueue(tasks)

            async def work(engine: RedisEngine, worker: str) -> list[str]:
                given: list[str] = []
                while found := await claim(engine, 7, worker):
                    given += [task.id for task in found]
                    await settle(engine, found)
                return given

            given = await asyncio.gather(*(work(engine, f"w{i}") for i, engine in enumerate(workers)))
            assert Tally(task_id for each in given for task_id in each) == Tally(task.id for task in tasks)
            assert (await workers[0].counts()).tasks["default"][State.COMPLETED] == len(tasks)
            await sound(workers[0])

    run(test)


def test_one_key_is_one_task() -> None:
    async def test() -> None:
        async with engines(4) as workers:
            keys = [f"k{i}" for i in range(20)]

            async def produce(engine: RedisEngine, order: int) -> list[EnqueueOutcome]:
                batch = [new(key=key) for key in (keys if order % 2 else reversed(keys))]
                return [answer.outcome for answer in await engine.enqueue(batch)]

            outcomes = await asyncio.gather(*(produce(engine, i) for i, engine in enumerate(workers)))
            counted = Tally(outcome for each in outcomes for outcome in each)
            assert counted == {EnqueueOutcome.ENQUEUED: len(keys), EnqueueOutcome.DUPLICATE: 3 * len(keys)}
            await sound(workers[0])

    run(test)


def test_one_id_is_one_task() -> None:
    async def test() -> None:
        async with engines(4) as workers:
            for batch in ([new() for _ in range(20)], [new(deadline=2**50) for _ in range(20)]):
                answers = await asyncio.gather(*(engine.enqueue(batch) for engine in workers))
                counted = Tally(answer.outcome for each in answers for answer in each)
                assert counted == {EnqueueOutcome.ENQUEUED: 20, EnqueueOutcome.EXISTS: 60}
            assert (await workers[0].counts()).tasks["default"][State.PENDING] == 40

    run(test)


def test_prerequisites_that_end_together_unblock() -> None:
    async def test() -> None:
        async with engines(3) as workers:
            for _ in range(10):
                needs = [new() for _ in range(3)]
                dependent = new(after=tuple(Edge(need.id) for need in needs))
                await workers[0].enqueue([*needs, dependent])
                found = await claim(workers[0], 3)
                assert len(found) == 3
                await asyncio.gather(*(settle(engine, [task]) for engine, task in zip(workers, found, strict=True)))
                (task,) = await claim(workers[0], 3)
                assert task.id == dependent.id
                await settle(workers[0], [task])
            await sound(workers[0])

    run(test)


def test_waiting_for_what_ends_just_now() -> None:
    async def test() -> None:
        async with engines(2) as (producer, worker):
            for _ in range(20):
                need = new()
                await producer.enqueue([need])
                found = await claim(worker, 1)
                dependent = new(after=(Edge(need.id),))
                await asyncio.gather(settle(worker, found), producer.enqueue([dependent]))
                (task,) = await claim(worker, 5)
                assert task.id == dependent.id
                await settle(worker, [task])
            await sound(producer)

    run(test)


def test_a_limit_holds_whoever_claims() -> None:
    async def test() -> None:
        async with engines(4) as workers:
            await set_queue(workers[0], max_concurrent=3)
            await workers[0].enqueue([new() for _ in range(40)])
            running: Tally[str] = Tally()
            most = done = 0

            async def work(engine: RedisEngine, worker: str) -> None:
                nonlocal most, done
                while done < 40:
                    found = await claim(engine, 2, worker)
                    running[worker] = len(found)
                    most = max(most, running.total())
                    running[worker] = 0
                    await settle(engine, found)
                    done += len(found)

            await asyncio.gather(*(work(engine, f"w{i}") for i, engine in enumerate(workers)))
            assert 0 < most <= 3
            await sound(workers[0])

    run(test)


# What others change while a verb is under way.


def after_begin(monkeypatch: pytest.MonkeyPatch, engine: RedisEngine, act: Callable[[], Awaitable[object]]) -> None:
    """The next verb of an engine has read the catalog, when something happens."""
    begin = Store.begin
    done: list[bool] = []

    async def patched(own: Store, now: int | None) -> Any:
        found = await begin(own, now)
        if own is engine._store and not done:
            done.append(True)
            await act()
        return found

    monkeypatch.setattr(Store, "begin", patched)


READS: dict[str, Callable[[RedisEngine, NewTask], Awaitable[Any]]] = {
    "get": lambda engine, task: engine.get([task.id]),
    "search": lambda engine, _: engine.search(Query(limit=10)),
    "cancel": lambda engine, task: engine.act([Cancel(task.id)]),
    "enqueue": lambda engine, task: engine.enqueue([new(id=task.id, name="other", key="k")]),
    "follow": lambda engine, task: engine.enqueue([new(after=(Edge(task.id),))]),
}


@pytest.mark.parametrize("verb", READS)
def test_a_task_of_a_kind_that_is_just_being_made_is_no_riddle(
    verb: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is in a track that was not there when the verb began: that is read again, and nothing is set aside."""

    async def test() -> None:
        async with engines(2) as (engine, other):
            await engine.enqueue([new()])
            await engine.queues()
            task = new(name="other", key="k")
            after_begin(monkeypatch, engine, lambda: other.enqueue([task]))
            answer = await READS[verb](engine, task)
            if verb == "get":
                assert [type(each) for each in answer] == [TaskRecord]
            elif verb == "search":
                assert {type(each) for each in answer.tasks} == {TaskRecord}
            elif verb == "cancel":
                assert answer == [Changed.DONE]
            elif verb == "enqueue":
                assert [each.outcome for each in answer] == [EnqueueOutcome.EXISTS]
            assert not engine._opened().aside.tasks
            assert len(await claim(engine, 10, lease=MINUTE)) == (1 if verb == "cancel" else 2)

    run(test)
    assert caplog.records == []


def test_a_claim_of_a_queue_that_is_just_being_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines(2) as (engine, other):
            await engine.enqueue([new() for _ in range(5)])
            await engine.queues()
            await set_queue(other, max_concurrent=2)
            assert len(await claim(engine, 5)) == 2
            await set_queue(other, max_concurrent=4)
            after_begin(monkeypatch, engine, lambda: set_queue(other, max_concurrent=3))
            assert len(await claim(engine, 5)) == 1

    run(test)


def test_a_forked_child_has_connections_of_its_own() -> None:
    async def in_child(engine: RedisEngine) -> None:
        engine.forget()
        await engine.open()
        await engine.enqueue([new(queue="child")])
        await engine.close()

    async def test() -> None:
        async with engines() as (engine,):
            await engine.enqueue([new()])
            before = engine._opened().client.line
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    asyncio.set_event_loop(None)
                    asyncio._set_running_loop(None)
                    asyncio.run(in_child(engine))
                    status = 0
                finally:
                    os._exit(status)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert status == 0
            await engine.enqueue([new()])
            assert engine._opened().client.line is before
            assert {queue.name for queue in await engine.queues()} == {"default", "child"}

    run(test)
