"""Waiting for tasks to end, and what is raised when they did not end well."""

from __future__ import annotations

import asyncio
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from dibs import Context, Dibs, Permanent, State
from dibs.errors import Closed, ResultGone, TaskCancelled, TaskFailed, UnknownTask, WrongThread
from dibs.testing import ManualClock

from .conftest import TIMEOUT, MakeApp


def test_results_come_typed(app: Dibs) -> None:
    @app.task
    def tomorrow(day: date) -> date:
        return day + timedelta(days=1)

    handle = tomorrow.enqueue(date(2026, 2, 28))
    with app.worker():
        assert handle.result(TIMEOUT) == date(2026, 3, 1)
    assert handle.info is not None
    assert handle.info.state is State.COMPLETED


def test_a_handle_can_be_awaited(app: Dibs) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async def use() -> list[int]:
        handles = [await double.aenqueue(number) for number in range(20)]
        return [await handles[0], *await asyncio.gather(*(handle.aresult(TIMEOUT) for handle in handles[1:]))]

    with app.worker():
        assert asyncio.run(use()) == [2 * number for number in range(20)]


def test_waiting_has_an_end(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handle = work.enqueue()
    with pytest.raises(TimeoutError, match=rf"task {handle.id} had not ended after 0\.01 s"):
        handle.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        asyncio.run(handle.aresult(timeout=0.01))
    with pytest.raises(TimeoutError):
        app.wait([handle], timeout=0.01)


def test_a_result_that_is_there_needs_no_waiting(app: Dibs) -> None:
    @app.task
    def work() -> int: ...

    handle = work.enqueue()
    app.settle(app.claim()[0], result=5)
    assert handle.result(timeout=TIMEOUT) == 5
    assert app.handle(handle.id).result(timeout=TIMEOUT) == 5


def test_many_can_wait_for_one(app: Dibs) -> None:
    @app.task
    def work() -> int: ...

    handle = work.enqueue()
    with ThreadPoolExecutor(8) as pool:
        waits = [pool.submit(handle.result, TIMEOUT) for _ in range(8)]
        (claim,) = app.claim()
        app.settle(claim, result=5)
        assert [wait.result(TIMEOUT) for wait in waits] == [5] * 8


def test_a_failure_brings_the_remote_traceback(app: Dibs) -> None:
    @app.task(retries=0)
    def divide(number: int) -> float:
        return number / 0

    handle = divide.enqueue(1)
    with app.worker(), pytest.raises(TaskFailed) as caught:
        handle.result(TIMEOUT)
    error = caught.value
    assert (error.task_id, error.reason, error.error_type) == (handle.id, "exhausted", "ZeroDivisionError")
    assert error.error_message == "division by zero"
    assert "return number / 0" in error.traceback
    assert str(error) == (
        f"task {handle.id} ({divide.name}) is dead, reason exhausted: ZeroDivisionError: division by zero"
    )


def test_permanent_failures_end_at_once(app: Dibs) -> None:
    @app.task
    def refuse() -> None:
        raise Permanent("no such customer")

    with app.worker(), pytest.raises(TaskFailed, match="no such customer") as caught:
        refuse.enqueue().result(TIMEOUT)
    assert caught.value.reason == "permanent"


def test_a_cancelled_task_says_so(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handle = work.enqueue()
    assert handle.cancel("changed my mind") == "cancelled"
    assert not handle.cancel()
    with pytest.raises(TaskCancelled, match="was cancelled, reason user: changed my mind") as caught:
        handle.result(TIMEOUT)
    assert (caught.value.task_id, caught.value.reason) == (handle.id, "user")


def test_cancelling_wakes_who_waits(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handle = work.enqueue()

    async def use() -> None:
        waiting = asyncio.ensure_future(handle.aresult(TIMEOUT))
        await handle.acancel()
        await waiting

    with pytest.raises(TaskCancelled):
        asyncio.run(use())


def test_a_pruned_result_is_gone(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handle = work.enqueue()
    app.settle(app.claim()[0])
    app.tasks.purge(handle.id)
    with pytest.raises(ResultGone, match="it was never committed, or it has been pruned") as caught:
        handle.result(TIMEOUT)
    assert caught.value.task_id == handle.id
    for look in (handle.refresh, handle.cancel, lambda: app.handle(handle.id), lambda: app.tasks.get(handle.id)):
        with pytest.raises(UnknownTask, match=f"no task has the id {handle.id}"):
            look()


def test_wait_for_all_however_they_end(app: Dibs) -> None:
    @app.task(retries=0)
    def work(number: int) -> int:
        return 10 // number

    handles = [work.enqueue(number) for number in (5, 0, 2)]
    with app.worker():
        infos = app.wait(handles, TIMEOUT)
        assert [info.state for info in asyncio.run(app.await_all(handles, TIMEOUT))] == [i.state for i in infos]
    assert [info.state for info in infos] == [State.COMPLETED, State.DEAD, State.COMPLETED]
    assert [info.result for info in infos] == [2, None, 5]


def test_closing_wakes_who_waits(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handles = [work.enqueue() for _ in range(3)]
    raised: list[BaseException] = []
    started = threading.Barrier(4)

    def wait(handle: Any) -> None:
        started.wait(TIMEOUT)
        try:
            handle.result()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    started.wait(TIMEOUT)
    app.close()
    for thread in threads:
        thread.join(TIMEOUT)
    assert [type(error) for error in raised] == [Closed] * 3


def test_a_closed_app_says_so(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handle = work.enqueue()
    app.close()
    app.close()
    for use in (work.enqueue, handle.refresh, handle.result, app.queues.list):
        with pytest.raises(Closed, match="this app has been closed"):
            use()
    with pytest.raises(Closed):
        asyncio.run(work.aenqueue())


@pytest.mark.parametrize("served", [False, True])
def test_async_code_may_close_an_app(served: bool) -> None:
    app = Dibs("memory://")

    @app.task
    async def work(number: int) -> None: ...

    async def use() -> None:
        if served:
            await work.aenqueue(1)
        app.close()
        with pytest.raises(Closed):
            await work.aenqueue(2)

    if not served:
        work.enqueue(1)
    asyncio.run(use())


@pytest.mark.parametrize("served", [False, True])
def test_async_code_closes_an_app_and_its_loop_goes_on(served: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Dibs("memory://")
    entered, may_end = threading.Event(), threading.Event()
    finish = app._close

    async def slow_finish() -> None:
        entered.set()
        await asyncio.to_thread(may_end.wait, TIMEOUT)
        await finish()

    monkeypatch.setattr(app, "_close", slow_finish)

    @app.task
    async def work(number: int) -> None: ...

    async def use() -> None:
        if served:
            await work.aenqueue(1)
        closing = asyncio.create_task(app.aclose())
        assert await asyncio.to_thread(entered.wait, TIMEOUT)  # which a loop that is blocked would not get to
        assert not closing.done()
        may_end.set()
        await closing
        await app.aclose()
        with pytest.raises(Closed):
            await work.aenqueue(2)

    if not served:
        work.enqueue(1)
    asyncio.run(use())
    app.close()


def test_an_app_is_closed_once_by_many_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Dibs("memory://")
    runner, times, looks = app.hub.runner, [], threading.Semaphore(0)
    finish = app._close

    def say(caller: str) -> None:
        if caller == "close":
            looks.release()

    async def count() -> None:
        times.append(1)
        if len(times) == 1:
            for _ in range(3):  # all of them have come
                await asyncio.to_thread(looks.acquire, timeout=TIMEOUT)
        await finish()

    monkeypatch.setattr(app, "_close", count)
    monkeypatch.setattr(runner, "_refuse_own_loop", say)

    async def use() -> None:
        await app.queues.alist()
        await asyncio.gather(*(app.aclose() for _ in range(3)))

    asyncio.run(use())
    assert len(times) == 1


def test_async_with_closes_and_tells_who_waits() -> None:
    async def use() -> None:
        async with Dibs("memory://") as app:

            @app.task
            def work() -> None: ...

            waiting = asyncio.create_task((await work.aenqueue()).aresult())
            while not app._waiter._futures:
                await asyncio.sleep(0)
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed):
            await app.queues.alist()

    asyncio.run(use())


def test_a_task_may_not_close_its_app(app: Dibs) -> None:
    @app.task(retries=0)
    async def leave() -> None:
        await app.aclose()

    @app.task(retries=0)
    async def leave_blocking() -> None:
        app.close()

    with app.worker():
        with pytest.raises(TaskFailed, match=r"aclose\(\) on Dibs's own loop"):
            leave.enqueue().result(TIMEOUT)
        with pytest.raises(TaskFailed, match=r"\bclose\(\) on Dibs's own loop"):
            leave_blocking.enqueue().result(TIMEOUT)


def test_an_app_that_did_nothing_can_be_closed() -> None:
    with Dibs("memory://") as app:
        pass
    with pytest.raises(Closed):
        app.queues.list()

    async def use() -> None:
        async with Dibs("memory://") as other:
            pass
        with pytest.raises(Closed):
            await other.queues.alist()

    asyncio.run(use())


def test_a_task_may_not_block_for_another(app: Dibs) -> None:
    @app.task
    def other() -> None: ...

    @app.task(retries=0)
    def waits() -> None:
        other.enqueue().result()

    @app.task(retries=0)
    async def waits_async() -> None:
        other.enqueue()

    with app.worker():
        with pytest.raises(TaskFailed, match="would hold a slot while waiting for another task") as caught:
            waits.enqueue().result(TIMEOUT)
        with pytest.raises(TaskFailed, match=r"use the async form \(aenqueue, aresult, …\)"):
            waits_async.enqueue().result(TIMEOUT)
    assert WrongThread.__qualname__ in caught.value.error_type


def test_history_tells_what_went_wrong(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def work() -> None: ...

    handle = work.enqueue()
    still.settle(still.claim()[0], "failed", error=ValueError("first"))
    dibs_clock.advance(10)
    still.settle(still.claim()[0], "released")
    lines = handle.history()
    assert [(line.event, line.lease) for line in lines] == [("failed", 1), ("released", 2)]
    assert lines[0].error is not None
    assert (lines[0].error.type, lines[0].error.message) == ("ValueError", "first")
    assert lines[1].at - lines[0].at == timedelta(seconds=10)
    assert still.tasks.history(handle.id) == lines


def test_info_derives_what_people_ask(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def work() -> None: ...

    handle = work.enqueue()
    dibs_clock.advance(2)
    (claim,) = still.claim()
    dibs_clock.advance(3)
    running = handle.refresh()
    assert (running.waited, running.ran, running.is_done) == (2.0, None, False)
    still.settle(claim)
    done = handle.refresh()
    assert (done.waited, done.ran, done.is_done, done.will_retry) == (2.0, 3.0, True, False)


def test_progress_can_be_seen(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handle = work.enqueue()
    (claim,) = app.claim()
    app.extend(claim, progress=0.25, message="a quarter")
    info = handle.refresh()
    assert (info.progress, info.progress_message) == (0.25, "a quarter")


def test_a_context_needs_a_task() -> None:
    with pytest.raises(ValueError, match="works inside a task only"):
        Context.current()


# A look without a wait.


def test_an_ended_task_gives_its_result_without_a_wait(app: Dibs) -> None:
    @app.task(retries=0)
    def work(number: int) -> float:
        return 10 / number

    good, bad = work.enqueue(5), work.enqueue(0)
    with pytest.raises(TimeoutError, match=f"task {good.id} had not ended after 0 s"):
        good.result(timeout=0)
    with app.worker(until_idle=True) as worker:
        worker.wait(TIMEOUT)
    assert good.result(timeout=0) == 2.0
    assert asyncio.run(good.aresult(timeout=0)) == 2.0
    assert good.result(timeout=0.001) == 2.0
    with pytest.raises(TaskFailed):
        bad.result(timeout=0)
    app.tasks.purge(good.id)
    with pytest.raises(ResultGone):
        good.result(timeout=0)


def test_a_large_result_comes_without_a_wait(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(blobs=tmp_path / "blobs", inline_limit=1024)

    @app.task
    def work() -> str:
        return "x" * 5000

    handle = work.enqueue()
    with app.worker(until_idle=True) as worker:
        worker.wait(TIMEOUT)
    assert handle.result(timeout=0) == "x" * 5000


def test_an_uncaught_failure_shows_where_the_task_failed(app: Dibs) -> None:
    @app.task(retries=0)
    def break_down() -> None:
        raise ValueError("no such customer")

    handle = break_down.enqueue()
    with app.worker(), pytest.raises(TaskFailed) as caught:
        handle.result(TIMEOUT)
    shown = "".join(traceback.format_exception(caught.value))
    assert "Where the task failed:\nTraceback (most recent call last):" in shown
    assert 'raise ValueError("no such customer")' in shown
    name = handle.refresh().name
    assert str(caught.value) == f"task {handle.id} ({name}) is dead, reason exhausted: ValueError: no such customer"


def test_a_handle_reads_no_queues(still: Dibs) -> None:
    @still.task
    def work() -> None: ...

    handle = work.enqueue()
    assert handle.refresh().effective_priority is None
    assert still.handle(handle.id).info == handle.info
    assert still.tasks.get(handle.id).effective_priority == 50.0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("get", r"a Handle has no 'get': write handle.result\(timeout=…\)"),
        ("status", r"write handle.refresh\(\).state"),
        ("ready", r"write handle.refresh\(\).state"),
        ("revoke", r"write handle.cancel\(\)"),
        ("frobnicate", "a Handle has no 'frobnicate'$"),
    ],
)
def test_what_other_libraries_call_it_says_what_to_write(still: Dibs, name: str, words: str) -> None:
    @still.task
    def work() -> None: ...

    handle = work.enqueue()
    with pytest.raises(AttributeError, match=words):
        getattr(handle, name)
    assert not hasattr(handle, name)
    assert copy(handle).id == handle.id
