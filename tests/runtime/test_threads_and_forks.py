"""One app, used from many threads, many loops and forked processes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from client.conftest import TIMEOUT, MakeApp
from dibs import Dibs, State, Task
from dibs.core.task import NewTask
from dibs.engines.base import MayBlock, never
from dibs.engines.memory import MemoryEngine
from dibs.engines.values import EnqueueAnswer
from dibs.errors import Closed


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked child; its exit code. A child that hangs is killed."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(TIMEOUT))
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_many_threads_enqueue(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(lambda number: work.enqueue(number).id, range(400)))
    assert len(set(ids)) == 400
    assert app.queues.get("default").counts[State.PENDING] == 400


def test_threads_and_coroutines_mix(app: Dibs) -> None:
    @app.task
    def work(number: int) -> int:
        return number

    async def use(start: int) -> list[int]:
        handles = await asyncio.gather(*(work.aenqueue(start + number) for number in range(20)))
        return [await handle for handle in handles]

    def use_blocking(start: int) -> list[int]:
        handles = [work.enqueue(start + number) for number in range(20)]
        return [handle.result(TIMEOUT) for handle in handles]

    with app.worker(), ThreadPoolExecutor(6) as pool:
        blocking = [pool.submit(use_blocking, start) for start in (0, 100, 200)]
        running = [pool.submit(asyncio.run, use(start)) for start in (300, 400, 500)]
        answers = [wait.result(TIMEOUT) for wait in (*blocking, *running)]
    assert answers == [list(range(start, start + 20)) for start in range(0, 600, 100)]


def test_one_bad_task_costs_its_neighbours_nothing(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    work.using(key="taken").enqueue(-1)
    app.queues.set("full", max_depth=1)
    work.using(queue="full").enqueue(0)
    gate = threading.Barrier(24)

    def enqueue(number: int) -> str:
        gate.wait(TIMEOUT)
        chosen = [work, work.using(queue="full"), work.using(key="taken")][number % 3]
        try:
            chosen.enqueue(number)
        except Exception as error:
            return type(error).__name__
        return "fine"

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(enqueue, range(24)))
    assert answers == ["fine", "QueueFull", "IdempotencyConflict"] * 8


def test_enqueues_caught_by_close_are_durable_or_raise(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    app = Dibs(url)

    @app.task
    def work(number: int) -> None: ...

    acknowledged: list[str] = []
    busy = threading.Semaphore(0)

    def produce() -> None:
        while True:
            try:
                acknowledged.append(work.enqueue(1).id)
            except Closed:
                return
            busy.release()

    threads = [threading.Thread(target=produce, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        assert busy.acquire(timeout=TIMEOUT)
    app.close()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    with Dibs(url) as again:
        infos = [again.tasks.get(task_id) for task_id in acknowledged]
    assert len(infos) >= 100


@pytest.mark.parametrize("serving", [False, True])
def test_a_forked_child_enqueues_and_the_parent_goes_on(tmp_path: Path, serving: bool) -> None:
    with Dibs(f"sqlite:///{tmp_path}/tasks.db") as app:

        @app.task
        def work(number: int) -> None: ...

        work.enqueue(1)
        if serving:
            app.hub.runner.serve()
        assert in_child(lambda: [work.enqueue(number) for number in (2, 3)]) == 0
        work.enqueue(4)
        assert sorted(task.args["number"] for task in app.tasks.search().tasks) == [1, 2, 3, 4]


def test_a_child_forked_during_others_work_starts_anew(tmp_path: Path) -> None:
    """The child must not wait for a flush, a lock or a waiter that belongs to a thread of its parent."""
    with Dibs(f"sqlite:///{tmp_path}/tasks.db") as app:

        @app.task
        def work(number: int) -> int: ...

        stop = threading.Event()
        under_way = threading.Semaphore(0)

        def produce() -> None:
            while not stop.is_set():
                work.enqueue(1)
                under_way.release()

        waiting = work.using(queue="other").enqueue(0)
        waiter = threading.Thread(target=lambda: waiting.result(TIMEOUT))
        producers = [threading.Thread(target=produce) for _ in range(4)]
        for thread in (waiter, *producers):
            thread.start()
        under_way.acquire(timeout=TIMEOUT)

        def child() -> None:
            handle = work.using(queue="child").enqueue(2)
            app.settle(app.claim(["child"])[0], result=7)
            assert handle.result(TIMEOUT) == 7

        codes = [in_child(child) for _ in range(5)]
        stop.set()
        app.settle(app.claim(["other"])[0], result=1)
        for thread in (waiter, *producers):
            thread.join(TIMEOUT)
            assert not thread.is_alive()
        assert codes == [0] * 5


def test_children_make_ids_of_their_own(tmp_path: Path) -> None:
    with Dibs(f"sqlite:///{tmp_path}/tasks.db") as app:

        @app.task
        def work() -> None: ...

        work.enqueue()
        codes = [in_child(lambda: [work.enqueue() for _ in range(20)]) for _ in range(3)]
        assert codes == [0, 0, 0]
        assert app.tasks.count().count == 61


def test_many_threads_come_first(make_app: MakeApp) -> None:
    """The loop and the engine are made once, however many ask for them at the same moment."""
    for number in range(20):
        app = make_app(at="memory://") if number % 2 else make_app()
        task = app.task(name="work")(abs_of)
        gate = threading.Barrier(4)

        def use(how: int, app: Dibs = app, gate: threading.Barrier = gate, task: Task[[int], int] = task) -> object:
            gate.wait(TIMEOUT)
            if how == 0:
                return asyncio.run(app.aclaim(["none"]))
            if how == 1:
                return app.queues.list()
            return task.enqueue(how)

        with ThreadPoolExecutor(4) as pool:
            assert len([wait.result(TIMEOUT) for wait in [pool.submit(use, how) for how in range(4)]]) == 4


def abs_of(number: int) -> int:
    return abs(number)


class SlowToOpen(MemoryEngine):
    """Counts how often it is opened, and lets others come while it is."""

    opened = 0

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        self.opened += 1
        await asyncio.sleep(0)


def test_an_engine_is_opened_once() -> None:
    engine = SlowToOpen()
    with Dibs("memory://", engine=engine) as app:

        async def use() -> None:
            await asyncio.gather(*(app.queues.alist() for _ in range(10)))

        asyncio.run(use())
    assert engine.opened == 1


class OpensWhenAllowed(MemoryEngine):
    """Refuses to work before it is open, as engines with connections do."""

    def __init__(self) -> None:
        super().__init__()
        self.may_open = asyncio.Event()
        self.is_open = False

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        await self.may_open.wait()
        self.is_open = True

    async def enqueue(
        self, tasks: Sequence[NewTask], *, atomic: bool = False, now: int | None = None
    ) -> list[EnqueueAnswer]:
        assert self.is_open
        return await super().enqueue(tasks, atomic=atomic, now=now)


def test_a_blocking_enqueue_waits_for_an_engine_that_another_thread_opens() -> None:
    engine = OpensWhenAllowed()
    engine._features = frozenset()
    with Dibs("memory://", engine=engine) as app, ThreadPoolExecutor(2) as pool:
        task = app.task(name="work")(abs_of)
        app.hub.runner.serve()
        first = pool.submit(app.queues.list)
        second = pool.submit(task.enqueue, 1)
        app.hub.runner.call_soon(engine.may_open.set)
        first.result(TIMEOUT)
        assert second.result(TIMEOUT).refresh().state is State.PENDING


class Gated(MemoryEngine):
    """Writes when it is allowed to; notes how many tasks each call had."""

    def __init__(self) -> None:
        super().__init__()
        self._features = frozenset()
        self.begun = threading.Event()
        self.may_write = asyncio.Event()
        self.batches: list[int] = []

    async def enqueue(
        self, tasks: Sequence[NewTask], *, atomic: bool = False, now: int | None = None
    ) -> list[EnqueueAnswer]:
        self.batches.append(len(tasks))
        self.begun.set()
        await self.may_write.wait()
        return await super().enqueue(tasks, atomic=atomic, now=now)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not holds():
            await asyncio.sleep(0)


def test_coroutines_of_any_loop_share_a_flush() -> None:
    engine = Gated()
    with Dibs("memory://", engine=engine) as app, ThreadPoolExecutor(3) as pool:
        task = app.task(name="work")(abs_of)

        async def use(count: int) -> list[str]:
            handles = await asyncio.gather(*(task.aenqueue(number) for number in range(count)))
            return [handle.id for handle in handles]

        running = [pool.submit(asyncio.run, use(1))]
        assert engine.begun.wait(TIMEOUT)
        running += [pool.submit(asyncio.run, use(count)) for count in (20, 30)]
        asyncio.run(until(lambda: len(app.hub.enqueuer._waiting) == 50))
        app.hub.runner.call_soon(engine.may_write.set)
        ids = [each for wait in running for each in wait.result(TIMEOUT)]
        assert len(set(ids)) == 51
        assert engine.batches == [1, 50]
        assert app.queues.get("default").counts[State.PENDING] == 51


def test_a_caller_that_leaves_takes_nobody_with_it() -> None:
    """Neither one that is cancelled, nor one whose loop is closed by the time of the answer."""
    engine = Gated()
    with Dibs("memory://", engine=engine) as app, ThreadPoolExecutor(1) as pool:
        task = app.task(name="work")(abs_of)

        async def leave() -> None:
            waiting = [asyncio.ensure_future(task.aenqueue(number)) for number in range(2)]
            await until(engine.begun.is_set)
            waiting[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting[0]

        asyncio.run(leave())
        patient = pool.submit(task.enqueue, 3)
        asyncio.run(until(lambda: len(app.hub.enqueuer._waiting) >= 1))
        app.hub.runner.call_soon(engine.may_write.set)
        assert patient.result(TIMEOUT).refresh().state is State.PENDING
        assert app.queues.get("default").counts[State.PENDING] == 3


def test_blocking_calls_of_all_kinds_get_along(make_app: MakeApp) -> None:
    """A caller that drives the loop does not wait for another that waits to drive it."""
    app = make_app()
    task = app.task(name="work")(abs_of)
    app.schedules.set("nightly", "work", cron="0 3 * * *", args=[1])
    gate = threading.Barrier(4)

    def use(call: Callable[[], object]) -> None:
        gate.wait(TIMEOUT)
        for _ in range(25):
            call()

    with ThreadPoolExecutor(4) as pool:
        calls = [lambda: app.schedules.run_now("nightly"), lambda: task.enqueue(2)] * 2
        for wait in [pool.submit(use, call) for call in calls]:
            wait.result(TIMEOUT)
    assert app.queues.get("default").counts[State.PENDING] == 100


def test_a_claim_that_waits_hears_of_what_others_enqueue(make_app: MakeApp) -> None:
    app = make_app()
    task = app.task(name="work")(abs_of)
    with ThreadPoolExecutor(1) as pool:
        claiming = pool.submit(app.claim, ["default"], wait=TIMEOUT)
        task.enqueue(1)
        assert [claim.name for claim in claiming.result(TIMEOUT)] == ["work"]


def test_coroutines_that_wait_when_the_app_is_closed_are_told() -> None:
    engine = Gated()
    app = Dibs("memory://", engine=engine)
    task = app.task(name="work")(abs_of)

    async def use() -> list[object]:
        return await asyncio.gather(*(task.aenqueue(number) for number in range(3)), return_exceptions=True)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, use())
        assert engine.begun.wait(TIMEOUT)
        app.close()
        assert [type(each) for each in running.result(TIMEOUT)] == [Closed] * 3


def test_who_closes_while_another_does_waits_for_the_end() -> None:
    engine = Gated()
    app = Dibs("memory://", engine=engine)
    task = app.task(name="work")(abs_of)
    runner = app.hub.runner
    runner.serve()
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(task.enqueue, 1)
        assert engine.begun.wait(TIMEOUT)
        first = pool.submit(app.close)
        asyncio.run(until(lambda: runner._closed))
        app.close()
        assert runner._loop is not None
        assert runner._loop.is_closed()
        first.result(TIMEOUT)
        assert isinstance(waiting.exception(TIMEOUT), Closed)


def test_a_parent_that_closes_leaves_its_child_the_store(tmp_path: Path) -> None:
    """SQLite's notes about locks are inherited by a fork, the locks are not: the log must stay."""
    closed, used = os.pipe(), os.pipe()
    with Dibs(f"sqlite:///{tmp_path}/tasks.db") as app:

        @app.task
        def work(number: int) -> int: ...

        work.enqueue(0)
        assert app.tasks.count().count == 1  # a reader is open, too
        child = os.fork()
        if child == 0:
            signal.alarm(int(TIMEOUT))
            code = 1
            try:
                work.enqueue(1)
                os.write(used[1], b".")
                os.read(closed[0], 1)
                for number in range(2, 12):
                    work.enqueue(number)
                code = 0 if app.tasks.count().count == 12 else 2
            finally:
                os._exit(code)
        os.read(used[0], 1)
    os.write(closed[1], b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in (*closed, *used):
        os.close(end)
    with Dibs(f"sqlite:///{tmp_path}/tasks.db") as app:
        assert app.tasks.count().count == 12
