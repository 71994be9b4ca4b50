"""What an app calls at the end of a task, custom backoff, snoozing, and results that are not kept."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import process_hooks
import pytest
from worker_support import PATIENCE, drain

from dibs import Context, Dibs, Permanent, Retry, State
from dibs.attempt.hooks import TaskEnd
from dibs.core.task import HistoryEvent
from dibs.errors import InvalidOption
from dibs.testing import ManualClock, Sandbox


def work() -> None: ...


Told = list[tuple[str, str, str]]


@pytest.fixture(scope="module", autouse=True)
def leave_nothing() -> Iterator[None]:
    yield
    process_hooks.app.close()
    shutil.rmtree(process_hooks.place)


def recorder(told: Told, who: str) -> Callable[[TaskEnd], None]:
    return lambda end: told.append((who, end.name, str(end.reason or end.state)))


def test_hooks_are_called_once_the_store_knows(app: Dibs) -> None:
    told: Told = []
    seen: list[tuple[TaskEnd, State, str]] = []

    @app.on_success
    async def after_success(end: TaskEnd) -> None:
        recorder(told, "app")(end)

    @app.on_failure
    def after_failure(end: TaskEnd) -> None:
        recorder(told, "app")(end)
        seen.append((end, app.handle(end.id).refresh().state, threading.current_thread().name))

    @app.task(name="good", on_success=recorder(told, "task"), on_failure=recorder(told, "never"))
    def good() -> None: ...

    @app.task(name="bad", retries=2, on_failure=recorder(told, "task"))
    def bad() -> None:
        raise LookupError("gone")

    @app.task(name="hopeless")
    async def hopeless() -> None:
        raise Permanent("no")

    good.enqueue()
    handle = bad.using(metadata={"order": 7}).enqueue()
    hopeless.enqueue()
    cancelled = good.using(delay=60).enqueue()
    cancelled.cancel()
    drain(app)
    assert sorted(told) == [
        ("app", "bad", "exhausted"),
        ("app", "good", "completed"),
        ("app", "hopeless", "permanent"),
        ("task", "bad", "exhausted"),
        ("task", "good", "completed"),
    ]
    end, state, thread = next(each for each in seen if each[0].name == "bad")
    assert (end.id, end.attempt, end.state, state) == (handle.id, 3, State.DEAD, State.DEAD)
    assert end.error is not None
    assert (end.error.type, end.error.message, end.metadata) == ("LookupError", "gone", {"order": 7})
    assert thread != "dibs-loop"


def test_what_a_hook_raises_is_logged_and_harms_nothing(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    told: Told = []

    @app.on_success
    def breaks(end: TaskEnd) -> None:
        raise SystemExit(3)

    @app.on_success
    async def breaks_too(end: TaskEnd) -> None:
        raise KeyError("k")

    app.on_success(recorder(told, "last"))

    @app.task
    def work() -> int:
        return 1

    handles = [work.enqueue() for _ in range(3)]
    with caplog.at_level(logging.ERROR, "dibs.worker"):
        drain(app)
    assert [handle.result() for handle in handles] == [1, 1, 1]
    assert len(told) == 3
    lines = [record.getMessage() for record in caplog.records]
    assert sum("whose outcome stands" in line for line in lines) == 6


@pytest.mark.parametrize("hook", [None, 5, "print", lambda: None, lambda one, two: None])
def test_what_is_no_hook_is_refused(app: Dibs, hook: Any) -> None:
    with pytest.raises(InvalidOption, match="on_failure must be a function of one argument"):
        app.on_failure(hook)
    if hook is not None:
        with pytest.raises(InvalidOption, match="on_success must be a function of one argument"):
            app.task(on_success=hook)(work)


def test_hooks_of_tasks_in_processes_run_in_the_worker() -> None:
    process_hooks.told.clear()
    handles = [process_hooks.good.enqueue(), process_hooks.wrong.enqueue()]
    drain(process_hooks.app, concurrency=1)
    assert [handle.refresh().state for handle in handles] == [State.COMPLETED, State.DEAD]
    assert sorted(process_hooks.told) == [("process_hooks.good", "completed"), ("process_hooks.wrong", "dead")]


# The same in a sandbox.


@pytest.fixture
def box(app: Dibs, dibs_clock: ManualClock) -> Iterator[Sandbox]:
    with Sandbox(app, clock=dibs_clock) as box:
        yield box


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ([1, timedelta(seconds=5), 30], [1, 5, 30, 30]),
        (lambda attempt: attempt * 10, [10, 20, 30, 40]),
        (lambda attempt, error: float(str(error)) + attempt, [8, 9, 10, 11]),
    ],
)
def test_waits_are_as_the_task_says(app: Dibs, box: Sandbox, backoff: Any, waits: list[float]) -> None:
    starts: list[datetime] = []

    @app.task(retries=4, backoff=backoff)
    def work() -> None:
        starts.append(box.clock.time)
        raise OSError("7")

    work.enqueue()
    box.run_until_idle()
    assert [(late - early).total_seconds() for early, late in pairwise(starts)] == waits


def test_retry_after_goes_before_backoff_and_a_timeout_has_it_too(app: Dibs, box: Sandbox) -> None:
    starts: list[datetime] = []
    errors: list[BaseException] = []

    def backoff(attempt: int, error: BaseException) -> float:
        errors.append(error)
        return 7

    @app.task(retries=2, timeout=60, backoff=backoff)
    def work(ctx: Context) -> None:
        starts.append(box.clock.time)
        if ctx.attempt == 1:
            raise Retry(after=100)
        if ctx.attempt == 2:
            box.clock.advance(61)

    work.enqueue()
    box.run_until_idle()
    assert [(late - early).total_seconds() for early, late in pairwise(starts)] == [100, 61 + 7]
    (error,) = errors
    assert isinstance(error, TimeoutError)


def test_a_backoff_that_fails_leaves_it_to_the_options(
    app: Dibs, box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(retries=1, retry_base=0, backoff=lambda attempt: "soon")  # type: ignore[arg-type, return-value]
    def work() -> None:
        raise OSError

    work.enqueue()
    with caplog.at_level(logging.ERROR, "dibs.worker"):
        assert box.run_due()[-1].state is State.DEAD
    assert "The backoff of" in caplog.text


@pytest.mark.parametrize(
    ("backoff", "words"),
    [
        ([], "names no wait"),
        ([1, -1], "a wait in backoff must not be negative"),
        ([10**9], "a wait in backoff must be from"),
        ("exponential", "must be a list of seconds"),
        (5, "must be a list of seconds"),
        (lambda: 5, "must take the number of the attempt"),
    ],
)
def test_backoff_is_checked(app: Dibs, backoff: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        app.task(backoff=backoff)(work)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_task_puts_itself_off_without_counting_an_attempt(app: Dibs, box: Sandbox, is_async: bool) -> None:
    runs: list[tuple[int, datetime]] = []

    def once(ctx: Context) -> str:
        runs.append((ctx.attempt, box.clock.time))
        try:
            if len(runs) == 1:
                ctx.snooze(60, note="not ready")
            if len(runs) == 2:
                ctx.snooze(until=box.clock.time + timedelta(hours=1))
            if len(runs) == 3:
                ctx.snooze(until=datetime(2001, 1, 1, tzinfo=UTC))
        except Exception:
            return "swallowed"
        return "done"

    async def later(ctx: Context) -> str:
        return once(ctx)

    task = app.task(name="poll", retries=0)(later if is_async else once)
    handle = task.enqueue()
    start = box.clock.time
    box.run_until_idle()
    assert handle.result() == "done"
    assert [attempt for attempt, _ in runs] == [1, 1, 1, 1]
    waits = [(at - start).total_seconds() for _, at in runs]
    assert waits == pytest.approx([0, 60, 3660, 3660], abs=0.001)
    assert handle.refresh().failed_attempts == 0
    assert [line.note for line in handle.history()][:2] == ["not ready", "the task put itself off"]


def test_snooze_is_checked(app: Dibs, box: Sandbox) -> None:
    problems: list[str] = []

    @app.task
    def work(ctx: Context) -> None:
        for wrong in ({"delay": -1}, {"delay": 5, "until": datetime.now(UTC)}, {"until": "noon"}, {"note": 5}):
            try:
                ctx.snooze(**wrong)  # type: ignore[arg-type]
            except InvalidOption as error:
                problems.append(str(error))

    work.enqueue()
    box.run_due()
    assert len(problems) == 4


def test_results_are_what_the_task_declares(app: Dibs, box: Sandbox) -> None:
    runs: list[str] = []

    @app.task(name="count")
    def count(wrong: bool = True) -> int:
        runs.append("count")
        return "three" if wrong else 3  # type: ignore[return-value]

    @app.task(name="nothing")
    def nothing() -> int:
        return None  # type: ignore[return-value]

    ended = [task.enqueue() for task in (count, nothing)]
    right = count.enqueue(False)
    box.run_until_idle()
    for handle in ended:
        info = handle.refresh()
        assert (info.state, info.reason) == (State.DEAD, "permanent")
        assert info.error is not None
        assert (info.error.type, info.error.traceback) == ("dibs.errors.WrongResult", "")
    assert right.result() == 3
    assert len(runs) == 2, "it was not tried again"


def test_a_result_that_is_not_kept(app: Dibs, box: Sandbox) -> None:
    @app.task(keep_result=False)
    def make() -> object:
        return object()

    handle = make.enqueue()
    box.run_due()
    assert handle.result() is None
    assert handle.refresh().state is State.COMPLETED
    with pytest.raises(InvalidOption, match="keep_result must be True or False"):
        app.task(keep_result="no")(work)  # type: ignore[call-overload]


def test_hooks_in_a_sandbox(app: Dibs, box: Sandbox) -> None:
    told: Told = []
    threads: list[threading.Thread] = []
    app.on_success(recorder(told, "app"))
    app.on_success(lambda end: threads.append(threading.current_thread()))

    @app.task(name="work", on_failure=recorder(told, "task"))
    def work(fail: bool) -> None:
        if fail:
            raise Permanent("no")

    work.enqueue(True)
    work.enqueue(False)
    box.run_due()
    assert told == [("task", "work", "permanent"), ("app", "work", "completed")]
    assert threads == [threading.current_thread()]


# In a worker and its processes.


def test_snoozing_and_wrong_results_in_every_executor() -> None:
    app = process_hooks.app
    handles = [task.enqueue() for task in (process_hooks.naps, process_hooks.naps_in_thread, process_hooks.naps_async)]
    wrong = process_hooks.wrong.enqueue()
    with app.worker(concurrency=4):
        assert [handle.result(PATIENCE) for handle in handles] == [1, 1, 1]
        app.wait([wrong], PATIENCE)
    events = [[line.event for line in handle.history()] for handle in handles]
    assert [each.count(HistoryEvent.SNOOZED) for each in events] == [1, 1, 1]
    assert wrong.refresh().failed_attempts == 1


def test_backoff_in_a_process_and_after_its_death() -> None:
    handles = [process_hooks.fails.enqueue(how) for how in ("raises", "dies")]
    with process_hooks.app.worker(concurrency=4):
        process_hooks.app.wait(handles, PATIENCE)
    for handle, error in zip(handles, ("OSError", "ProcessDied"), strict=True):
        info = handle.refresh()
        assert (info.state, info.failed_attempts) == (State.DEAD, 2)
        assert info.error is not None
        assert info.error.type == error
        assert handle.history()[0].at - info.created_at < timedelta(seconds=PATIENCE), "and not retry_base later"


def test_a_process_task_that_awaits_in_the_only_slot_is_refused() -> None:
    app = process_hooks.app
    with app.worker(concurrency=1):
        handle = process_hooks.waits.enqueue()
        app.wait([handle], PATIENCE)
    info = handle.refresh()
    assert info.error is not None
    assert info.error.type == "dibs.errors.WrongThread"


def test_a_worker_as_an_async_context_manager(app: Dibs) -> None:
    @app.task
    async def work() -> int:
        return 7

    async def use() -> int:
        async with app.worker() as worker:
            assert worker.stats().state == "active"
            return await (await work.aenqueue())

    assert asyncio.run(use()) == 7
