"""Waiting where it would never end: refused, with what to write instead."""

from __future__ import annotations

import asyncio

import pytest

from dibs import Context, Dibs, Handle, State
from dibs.errors import TaskFailed, WrongResult, WrongThread

from .conftest import TIMEOUT, MakeApp


def test_awaiting_what_a_blocking_enqueue_gave_in_async_code_is_refused(app: Dibs) -> None:
    @app.task
    def work() -> int:
        return 7

    async def use() -> None:
        handle = work.enqueue()
        with pytest.raises(WrongThread, match=r"write await task.aenqueue\(…\)"):
            await handle
        with app.worker():
            assert await handle.aresult(TIMEOUT) == 7
            assert await (await work.aenqueue()) == 7

    asyncio.run(use())
    outside = work.enqueue()

    async def follow(handle: Handle[int]) -> int:
        return await handle

    with app.worker():
        assert asyncio.run(follow(outside)) == 7


def test_awaiting_in_a_task_is_refused_when_no_slot_would_be_left(app: Dibs) -> None:
    @app.task
    async def child() -> int:
        return 5

    @app.task(retries=0)
    async def parent() -> int:
        return await (await child.aenqueue())

    @app.task(retries=0)
    def in_a_thread() -> int:
        async def wait() -> int:
            return await (await child.aenqueue())

        return asyncio.run(wait())

    @app.task(retries=0)
    async def for_all(ctx: Context) -> None:
        await app.await_all([await child.aenqueue()])

    with app.worker(concurrency=1):
        for task in (parent, in_a_thread, for_all):
            with pytest.raises(TaskFailed, match=r"every slot of this worker \(1\) would wait") as caught:
                task.enqueue().result(TIMEOUT)
            assert caught.value.error_type == "dibs.errors.WrongThread"
    with app.worker(concurrency=2):
        assert parent.enqueue().result(TIMEOUT) == 5
        assert in_a_thread.enqueue().result(TIMEOUT) == 5


def test_of_two_parents_in_two_slots_the_second_is_refused(app: Dibs) -> None:
    @app.task
    async def child() -> int:
        return 5

    @app.task(retries=0)
    async def parent() -> int:
        return await (await child.using(delay=3600).aenqueue())

    feed = app.events("task.dead")
    with feed, app.worker(concurrency=2):
        handles = [parent.enqueue(), parent.enqueue()]
        refused = next(iter(feed)).data["task_id"]
        (other,) = [handle for handle in handles if handle.id != refused]
        assert other.refresh().state is State.RUNNING
        assert other.cancel()


def test_what_has_ended_and_what_others_run_may_be_awaited_in_the_only_slot(make_app: MakeApp, url: str) -> None:
    if url == "memory://":
        pytest.skip("two apps share a store")
    app, others = make_app(), make_app()

    @app.task(queue="here")
    async def parent(task_id: str) -> int:
        return int(await (await app.ahandle(task_id)))

    for each in (app, others):

        @each.task(name="there", queue="there")
        async def there() -> int:
            return 3

    done = app.remote("there", queue="there").enqueue()
    with others.worker(queues=["there"]), app.worker(queues=["here"], concurrency=1):
        assert parent.enqueue(done.id).result(TIMEOUT) == 3
        assert parent.enqueue(done.id).result(TIMEOUT) == 3


def test_looking_without_waiting_is_no_deadlock(app: Dibs) -> None:
    @app.task
    async def child() -> int:
        return 5

    @app.task(retries=0)
    async def parent() -> str:
        handle = await child.aenqueue()
        try:
            await handle.aresult(timeout=0)
        except TimeoutError:
            return "not yet"
        return "done"

    with app.worker(concurrency=1):
        assert parent.enqueue().result(TIMEOUT) == "not yet"


def test_a_stored_result_of_the_wrong_type_is_an_error_of_dibs(app: Dibs) -> None:
    @app.task(name="count")
    def count() -> int:
        return 3

    handle = count.enqueue()
    (claim,) = app.claim()
    app.settle(claim, result="three")  # by a worker in another language, or of another version
    with pytest.raises(WrongResult, match=r"the result of count is not of the type that it declares \(int\)"):
        handle.result(TIMEOUT)
