"""Runs that are stopped: timeouts, cancellation, lost leases, shutdown."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from worker_support import PATIENCE, drain, eventually, record_of

from dibs.client.app import Dibs
from dibs.core.states import Reason, State
from dibs.core.task import HistoryEvent, WorkerState
from dibs.engines.values import Beat, ClaimRequest
from dibs.errors import LeaseLost, TaskCancelled
from dibs.worker import Context, ExitCode, Worker, WorkerSettings, stopper


def test_an_async_task_is_cancelled_at_its_timeout_and_retried(app: Dibs) -> None:
    seen = []

    @app.task(timeout=0.05, retries=1)
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append((ctx.attempt, ctx.cancelled))
            raise

    handle = slow.enqueue()
    worker = drain(app)
    assert seen == [(1, True), (2, True)]
    record = record_of(app, handle.id)
    assert (record.state, record.reason) == (State.DEAD, Reason.EXHAUSTED)
    assert record.failure.type == "TimeoutError"
    assert handle.history()[0].event is HistoryEvent.TIMED_OUT
    assert worker.stats().timed_out == 2


def test_a_timeout_can_grow_with_each_attempt(app: Dibs) -> None:
    left: list[float] = []

    @app.task(timeout=10, timeout_growth=3, retries=2)
    async def grow(ctx: Context) -> None:
        assert ctx.time_left is not None
        left.append(ctx.time_left)
        raise OSError

    grow.enqueue()
    drain(app)
    assert [round(each) for each in left] == [10, 30, 90]


def test_a_coroutine_that_swallows_its_timeout_is_settled_without_it(app: Dibs) -> None:
    release = threading.Event()

    @app.task(timeout=0.05, retries=0)
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "too late"

    handle = stubborn.enqueue()
    with app.worker() as worker:
        eventually(lambda: record_of(app, handle.id).state is State.DEAD)
        assert worker.stats().leaked == 1
        release.set()
        eventually(lambda: worker.stats().leaked == 0)
    assert worker.stats().running == 0


def test_a_thread_past_its_timeout_keeps_its_slot_and_its_late_result_is_dropped(app: Dibs) -> None:
    release, ended = threading.Event(), threading.Event()

    @app.task(timeout=0.05, retries=0)
    def stuck(ctx: Context) -> str:
        release.wait(PATIENCE)
        assert ctx.cancelled
        ended.set()
        return "too late"

    @app.task
    async def other() -> str:
        return "runs"

    handle = stuck.enqueue()
    with app.worker(concurrency=4) as worker:
        eventually(lambda: record_of(app, handle.id).state is State.DEAD)
        assert worker.stats().running == 1
        assert other.enqueue().result(timeout=PATIENCE) == "runs"
        release.set()
        assert ended.wait(PATIENCE)
        eventually(lambda: worker.stats().running == 0)
    record = record_of(app, handle.id)
    assert (record.state, record.result) == (State.DEAD, None)


def test_a_worker_whose_threads_have_leaked_leaves(app: Dibs) -> None:
    release = threading.Event()

    @app.task(timeout=0.05, retries=0)
    def stuck() -> None:
        release.wait(PATIENCE)

    for _ in range(2):
        stuck.enqueue()
    worker = Worker(app.hub, WorkerSettings(concurrency=4)).start()
    report = worker.wait(PATIENCE)
    release.set()
    assert report is not None
    assert report.code is ExitCode.LEAKED


def test_a_running_async_task_is_cancelled(app: Dibs) -> None:
    started = threading.Event()

    @app.task
    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = forever.enqueue()
    with app.worker():
        assert started.wait(PATIENCE)
        handle.cancel("not needed")
        with pytest.raises(TaskCancelled) as caught:
            handle.result(timeout=PATIENCE)
    assert "not needed" in str(caught.value)
    assert record_of(app, handle.id).note == "not needed"


def test_a_running_thread_is_told_to_stop_and_settled_as_cancelled(app: Dibs) -> None:
    started = threading.Event()

    @app.task
    def forever(ctx: Context) -> None:
        started.set()
        pause = threading.Event()
        while True:
            ctx.raise_if_cancelled()
            pause.wait(0.005)

    handle = forever.enqueue()
    with app.worker():
        assert started.wait(PATIENCE)
        handle.cancel("stop it")
        with pytest.raises(TaskCancelled):
            handle.result(timeout=PATIENCE)
    assert record_of(app, handle.id).state is State.CANCELLED


def test_a_thread_that_completes_first_wins_over_its_cancellation(app: Dibs) -> None:
    started, go_on = threading.Event(), threading.Event()

    @app.task
    def skip_upkeep(ctx: Context) -> str:
        started.set()
        go_on.wait(PATIENCE)
        return "done anyway"

    handle = skip_upkeep.enqueue()
    with app.worker():
        assert started.wait(PATIENCE)
        handle.cancel("too late")
        go_on.set()
        assert handle.result(timeout=PATIENCE) == "done anyway"


def test_a_lost_lease_stops_the_run_at_once(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    started, stopped = threading.Event(), threading.Event()
    seen: list[Any] = []

    @app.task
    def forever(ctx: Context) -> None:
        if started.is_set():
            return
        started.set()
        pause = threading.Event()
        while not ctx.cancelled:
            pause.wait(0.005)
        seen.append(ctx.lease_valid)
        try:
            ctx.raise_if_cancelled()
        except LeaseLost:
            stopped.set()
            raise

    handle = forever.enqueue()
    engine = app.hub.engine
    with app.worker(concurrency=1) as worker:
        assert started.wait(PATIENCE)
        # Time passes for everybody else: the lease ends, and the task is taken back.
        record = record_of(app, handle.id)
        rescued = app.hub.runner.run(engine.rescue(now=record.lease_expires_at + 1))
        assert rescued.ids == [handle.id]
        wake(app, worker)
        assert stopped.wait(PATIENCE)
        handle.result(timeout=PATIENCE)
    assert seen == [False]
    assert worker.stats().lost == 1
    assert record_of(app, handle.id).lease > record.lease


def wake(app: Dibs, worker: Worker) -> None:
    """Have it look up now. It has been taken for dead: a sign of life comes first."""
    sign = Beat(id=worker.id, host="here", pid=1, version="1", queues=("default",), names=None)
    app.hub.runner.run(app.hub.engine.beat(sign))
    assert app.workers.pause(worker.id)
    assert app.workers.resume(worker.id)


def lose_all(app: Dibs, worker: Worker, ids: list[str]) -> None:
    """Time passes for everybody else: the leases of these runs end, and the tasks are taken back."""
    engine, runner = app.hub.engine, app.hub.runner
    app.queues.pause("default")  # else they would run again at once
    ended = max(record_of(app, each).lease_expires_at for each in ids) + 1
    assert sorted(runner.run(engine.rescue(now=ended)).ids) == sorted(ids)
    wake(app, worker)
    eventually(lambda: worker.stats().lost == len(ids))


def test_runs_that_lost_their_lease_have_time_to_end(app: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads can't be stopped. They did nothing wrong, and their worker does not leave because of them."""
    monkeypatch.setattr(stopper, "GRACE", 0.01)
    release = threading.Event()

    @app.task
    def hold() -> None:
        release.wait(PATIENCE)

    @app.task(timeout=0.5)
    def hold_for_long() -> None:
        release.wait(PATIENCE)

    @app.task(queue="other")
    async def quick() -> None:
        await asyncio.sleep(0.1)  # in which the worker would have left

    with app.worker(concurrency=5) as worker:
        ids = [hold.enqueue().id for _ in range(3)] + [hold_for_long.enqueue().id]
        eventually(lambda: worker.stats().running == 4)
        lose_all(app, worker, ids)
        quick.enqueue().result(timeout=PATIENCE)
        eventually(lambda: worker.stats().leaked == 1)  # the one that is past its timeout, too
        quick.enqueue().result(timeout=PATIENCE)
        assert (worker.stats().leaked, worker.stats().running) == (1, 4)
        release.set()
        eventually(lambda: worker.stats().running == 0)
        assert worker.stats().leaked == 0


def test_a_worker_that_leaves_waits_for_runs_that_lost_their_lease(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dibs.worker")
    ended: list[str] = []

    @app.task
    def hold(ctx: Context) -> None:
        while not any("Waiting up to" in message for message in caplog.messages):
            threading.Event().wait(0.01)
        threading.Event().wait(0.2)  # in which the worker would have left
        ended.append(ctx.id)

    with app.worker() as worker:
        handle = hold.enqueue()
        eventually(lambda: worker.stats().running == 1)
        lose_all(app, worker, [handle.id])
        report = worker.stop()
    assert ended == [handle.id]
    assert report is not None
    assert report.code is ExitCode.CLEAN


def test_a_worker_with_nothing_to_wait_for_does_not_say_that_it_waits(
    app: Dibs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dibs.worker")
    app.worker().start().stop()
    assert not any("Waiting" in message for message in caplog.messages)


def test_a_late_settlement_is_refused_logged_and_counted(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    started, go_on = threading.Event(), threading.Event()

    @app.task
    async def slow() -> str:
        started.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)
        return "first"

    handle = slow.enqueue()
    engine = app.hub.engine
    with app.worker(concurrency=1) as worker:
        assert started.wait(PATIENCE)
        record = record_of(app, handle.id)
        app.hub.runner.run(engine.rescue(now=record.lease_expires_at + 1))
        other = ClaimRequest(worker="other", sequence=1, queues=("default",), limit=1)
        assert len(app.hub.runner.run(engine.claim(other, now=record.lease_expires_at + 2)).tasks) == 1
        go_on.set()
        eventually(lambda: worker.stats().refused == 1)
    assert record_of(app, handle.id).worker == "other"
    assert any("was refused" in message for message in caplog.messages)
    counters = (app.hub.runner.run(app.hub.engine.counts())).counters
    assert sum(each.get("refused_writes", 0) for each in counters.values()) == 1  # type: ignore[call-overload]


def test_leases_are_kept_while_a_task_blocks_the_event_loop(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "dibs.worker")
    named = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "has blocked the event loop" in record.getMessage():
                named.set()

    watch = Watch()
    logging.getLogger("dibs.worker").addHandler(watch)

    leases: list[int] = []

    @app.task(lease=1)
    async def block(ctx: Context) -> tuple[bool, bool]:
        leases.append(ctx.lease)
        # Blocks the loop until the heartbeat has noticed, which is longer than the lease.
        seen = named.wait(PATIENCE)
        return seen, ctx.lease_valid

    handle = block.enqueue()
    try:
        with app.worker() as worker:
            assert handle.result(timeout=PATIENCE) == (True, True)
    finally:
        logging.getLogger("dibs.worker").removeHandler(watch)
    assert leases == [record_of(app, handle.id).lease]
    assert worker.stats().refused == 0
    message = next(message for message in caplog.messages if "has blocked" in message)
    assert handle.id in message
    assert "named.wait" in message


def test_shutdown_waits_for_what_runs(app: Dibs) -> None:
    started, go_on = threading.Event(), threading.Event()

    @app.task
    def work() -> str:
        started.set()
        go_on.wait(PATIENCE)
        return "finished"

    handle = work.enqueue()
    later = work.using(delay=3600).enqueue()
    worker = app.worker().start()
    assert started.wait(PATIENCE)
    worker.stop(wait=False)
    go_on.set()
    report = worker.wait(PATIENCE)
    assert report is not None
    assert (report.code, report.handed_back) == (ExitCode.CLEAN, 0)
    assert record_of(app, handle.id).state is State.COMPLETED
    assert record_of(app, later.id).state is State.SCHEDULED
    assert app.hub.runner.run(app.hub.engine.workers()) == []


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_shutdown_hands_back_what_does_not_end_in_time(app: Dibs, kind: str) -> None:
    started, release = threading.Event(), threading.Event()

    async def on_loop() -> None:
        started.set()
        await asyncio.Event().wait()

    def in_thread() -> None:
        started.set()
        release.wait(PATIENCE)

    handle = app.task(name="forever")(on_loop if kind == "async" else in_thread).enqueue()
    worker = app.worker().start()
    assert started.wait(PATIENCE)
    report = worker.stop(timeout=0)
    release.set()
    assert report is not None
    assert (report.code, report.handed_back) == (ExitCode.HANDED_BACK, 1)
    record = record_of(app, handle.id)
    assert (record.state, record.attempts, record.losses) == (State.PENDING, 0, 0)
    assert handle.history()[-1].event is HistoryEvent.RELEASED


def test_a_second_request_brings_the_end_forward(app: Dibs) -> None:
    started = threading.Event()

    @app.task
    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    forever.enqueue()
    worker = app.worker().start()
    assert started.wait(PATIENCE)
    worker.request_stop(3600)
    worker.request_stop(0)
    report = worker.wait(PATIENCE)
    assert report is not None
    assert report.code is ExitCode.HANDED_BACK


def test_a_paused_worker_claims_nothing_until_it_is_resumed(app: Dibs) -> None:
    @app.task
    async def work() -> str:
        return "done"

    with app.worker() as worker:
        assert work.enqueue().result(timeout=PATIENCE) == "done"
        app.workers.pause(worker.id)
        eventually(lambda: worker.stats().state is WorkerState.PAUSED)
        handle = work.enqueue()
        assert record_of(app, handle.id).state is State.PENDING
        app.workers.resume(worker.id)
        assert handle.result(timeout=PATIENCE) == "done"


def test_a_drained_worker_finishes_what_it_has_and_leaves(app: Dibs) -> None:
    started, go_on = threading.Event(), threading.Event()

    @app.task
    def work() -> str:
        started.set()
        go_on.wait(PATIENCE)
        return "done"

    handle = work.enqueue()
    worker = app.worker().start()
    assert started.wait(PATIENCE)
    app.workers.drain(worker.id)
    eventually(lambda: worker.stats().state is WorkerState.DRAINING)
    waiting = work.enqueue()
    go_on.set()
    report = worker.wait(PATIENCE)
    assert report is not None
    assert (report.code, report.reason) == (ExitCode.CLEAN, "drained")
    assert record_of(app, handle.id).state is State.COMPLETED
    assert record_of(app, waiting.id).state is State.PENDING
