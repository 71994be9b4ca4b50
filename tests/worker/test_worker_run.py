"""What happens to tasks that run, raise, ask and answer."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from worker_support import PATIENCE, drain, eventually, record_of

from dibs.attempt.middleware import Next
from dibs.client.app import Dibs
from dibs.core.states import Reason, State
from dibs.core.task import HistoryEvent
from dibs.errors import Permanent, Retry, TaskFailed
from dibs.worker import Context, ExitCode


def test_async_and_thread_tasks_give_results(app: Dibs) -> None:
    @app.task
    async def double(x: int) -> int:
        await asyncio.sleep(0)
        return 2 * x

    @app.task
    def shout(text: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return text.upper()

    first, second = double.enqueue(21), shout.enqueue("dibs")
    with app.worker() as worker:
        assert first.result(timeout=PATIENCE) == 42
        assert second.result(timeout=PATIENCE) == "DIBS"
    assert worker.stats().completed == 2
    assert worker.stats().success_rate == 1.0


def test_a_task_receives_what_it_declares(app: Dibs) -> None:
    seen = []

    @app.task
    async def take(at: datetime, *, count: int = 3) -> None:
        seen.append((at, count))

    moment = datetime(2030, 1, 2, tzinfo=UTC)
    take.enqueue(moment)
    drain(app)
    assert seen == [(moment, 3)]


def test_context_tells_about_the_run(app: Dibs) -> None:
    seen: dict[str, Any] = {}

    @app.task(queue="mail", priority="high", timeout=60)
    async def look(ctx: Context, x: int) -> None:
        seen.update(
            id=ctx.id,
            name=ctx.name,
            queue=ctx.queue,
            attempt=ctx.attempt,
            lease=ctx.lease,
            priority=ctx.priority,
            metadata=dict(ctx.metadata),
            valid=ctx.lease_valid,
            cancelled=ctx.cancelled,
            left=ctx.time_left,
            current=Context.current() is ctx,
        )
        ctx.raise_if_cancelled()

    handle = look.using(metadata={"a": 1}).enqueue(1)
    drain(app)
    left = seen.pop("left")
    assert 50 < left <= 60
    assert seen == {
        "id": handle.id,
        "name": look.name,
        "queue": "mail",
        "attempt": 1,
        "lease": record_of(app, handle.id).settled_lease,
        "priority": 70,
        "metadata": {"a": 1},
        "valid": True,
        "cancelled": False,
        "current": True,
    }


def test_context_variables_do_not_leak_between_tasks(app: Dibs) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")
    seen = []

    @app.task
    async def dirty() -> None:
        seen.append(variable.get())
        variable.set("dirty")

    @app.task
    def dirty_thread() -> None:
        seen.append(variable.get())
        assert Context.current().name == dirty_thread.name
        variable.set("dirty")

    for _ in range(3):
        dirty.enqueue()
        dirty_thread.enqueue()
    drain(app, concurrency=1)
    assert seen == ["clean"] * 6


def test_the_logger_names_the_task(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def talk(ctx: Context) -> None:
        ctx.logger.warning("hello %s", "you")

    handle = talk.enqueue()
    drain(app)
    record = next(record for record in caplog.records if record.name == "dibs.task")
    assert handle.id in record.getMessage()
    assert record.getMessage().endswith("hello you")
    assert record.__dict__["task_id"] == handle.id


def test_a_failing_task_is_retried_until_it_succeeds(app: Dibs) -> None:
    attempts = []

    @app.task(retries=5)
    async def flaky(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise OSError("not yet")
        return "there"

    handle = flaky.enqueue()
    worker = drain(app)
    assert attempts == [1, 2, 3]
    assert handle.result(timeout=PATIENCE) == "there"
    assert worker.stats().failed == 2
    assert [entry.event for entry in handle.history()] == [HistoryEvent.FAILED, HistoryEvent.FAILED]


def test_a_task_out_of_attempts_is_dead_and_shows_what_it_raised(app: Dibs) -> None:
    @app.task(retries=1)
    def broken() -> None:
        raise LookupError("nothing here")

    handle = broken.enqueue()
    drain(app)
    with pytest.raises(TaskFailed) as caught:
        handle.result(timeout=PATIENCE)
    assert caught.value.reason == Reason.EXHAUSTED
    assert caught.value.error_type == "LookupError"
    assert "nothing here" in caught.value.traceback
    assert "dibs/worker" not in caught.value.traceback
    assert record_of(app, handle.id).attempts == 2


def test_permanent_is_not_retried_and_no_retry_neither(app: Dibs) -> None:
    @app.task(retries=5)
    async def hopeless() -> None:
        raise Permanent("no such customer")

    @app.task(retries=5, no_retry=[KeyError])
    async def refused() -> None:
        raise KeyError("x")

    @app.task(retries=5, retry_on=[OSError])
    async def other() -> None:
        raise ValueError("x")

    handles = [hopeless.enqueue(), refused.enqueue(), other.enqueue()]
    drain(app)
    for handle in handles:
        record = record_of(app, handle.id)
        assert (record.state, record.reason, record.attempts) == (State.DEAD, Reason.PERMANENT, 1)


def test_retry_after_chooses_the_delay(app: Dibs) -> None:
    settled = threading.Event()

    @app.task
    async def later(ctx: Context) -> None:
        settled.set()
        raise Retry("busy", after=3600)

    handle = later.enqueue()
    with app.worker():
        assert settled.wait(PATIENCE)
    record = record_of(app, handle.id)
    assert record.state is State.RETRYING
    assert record.due_at - record.created_at >= 3600 * 10**6


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), BaseException("odd"), GeneratorExit()])
@pytest.mark.parametrize("kind", ["async", "thread"])
def test_whatever_a_task_raises_ends_its_attempt_not_the_worker(app: Dibs, error: BaseException, kind: str) -> None:
    async def on_loop() -> None:
        raise error

    def in_thread() -> None:
        raise error

    @app.task
    async def after() -> str:
        return "alive"

    bad = app.task(name="bad", retries=0)(on_loop if kind == "async" else in_thread).enqueue()
    with app.worker():
        with pytest.raises(TaskFailed) as caught:
            bad.result(timeout=PATIENCE)
        assert caught.value.error_type == type(error).__name__
        assert after.enqueue().result(timeout=PATIENCE) == "alive"


def test_a_result_that_can_not_be_kept_is_a_failure_without_retry(app: Dibs) -> None:
    @app.task
    async def odd() -> Any:
        return object()

    @app.task
    async def big() -> str:
        return "x" * 300_000

    first, second = odd.enqueue(), big.enqueue()
    drain(app)
    for handle, words in ((first, "can't be carried as JSON"), (second, "bytes")):
        record = record_of(app, handle.id)
        assert (record.state, record.reason, record.attempts) == (State.DEAD, Reason.PERMANENT, 1)
        assert words in record.failure.message


def test_arguments_that_no_longer_fit_are_retried(app: Dibs) -> None:
    @app.task(name="changed", retry_on=[OSError], retries=2)
    async def old(count: int) -> None: ...

    handle = old.enqueue(3)

    async def new(size: int) -> None: ...

    del app.hub.definitions["changed"]
    app.task(name="changed", retry_on=[OSError], retries=2)(new)
    drain(app)
    record = record_of(app, handle.id)
    assert (record.state, record.reason, record.attempts) == (State.DEAD, Reason.EXHAUSTED, 3)
    assert record.failure.type == "dibs.errors.InvalidArguments"


def test_an_unknown_name_is_never_claimed_and_blocks_nobody(app: Dibs) -> None:
    @app.task(name="gone", priority=90)
    async def gone() -> None: ...

    @app.task(name="known")
    async def known() -> str:
        return "done"

    first, second = gone.enqueue(), known.enqueue()
    del app.hub.definitions["gone"]
    drain(app)
    assert record_of(app, first.id).state is State.PENDING
    assert record_of(app, second.id).state is State.COMPLETED


def test_lifespan_gives_state_and_is_left_at_the_end(app: Dibs) -> None:
    events = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[dict[str, int]]:
        events.append("enter")
        yield {"pool": 7}
        events.append("leave")

    app.hub.lifespan = lifespan

    @app.task
    async def use(ctx: Context) -> int:
        events.append("run")
        return int(ctx.state["pool"])

    @app.task
    def use_in_thread(ctx: Context) -> int:
        return int(ctx.state["pool"])

    first, second = use.enqueue(), use_in_thread.enqueue()
    with app.worker():
        assert first.result(timeout=PATIENCE) == second.result(timeout=PATIENCE) == 7
        assert events == ["enter", "run"]
    assert events == ["enter", "run", "leave"]


def test_a_lifespan_that_fails_keeps_the_worker_from_starting(app: Dibs) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    app.hub.lifespan = lifespan
    worker = app.worker()
    with pytest.raises(OSError, match="no database"):
        worker.start()


def test_middleware_is_an_onion_and_the_error_hook(app: Dibs) -> None:
    events: list[str] = []

    async def outer(ctx: Context, call: Next) -> Any:
        events.append(f"outer {ctx.name}")
        try:
            return await call()
        except ValueError as error:
            events.append(f"saw {error}")
            raise
        finally:
            events.append("outer end")

    async def inner(ctx: Context, call: Next) -> Any:
        events.append("inner")
        result = await call()
        events.append("inner end")
        return f"<{result}>"

    app.hub.middleware[:] = [outer, inner]

    @app.task(name="good")
    async def good() -> str:
        events.append("task")
        return "fine"

    @app.task(name="in_thread")
    def in_thread() -> str:
        return "thread"

    @app.task(name="bad", retries=0)
    def bad() -> None:
        raise ValueError("no")

    handle = good.enqueue()
    drain(app)
    assert events == ["outer good", "inner", "task", "inner end", "outer end"]
    assert handle.result(timeout=PATIENCE) == "<fine>"
    threaded = in_thread.enqueue()
    drain(app)
    assert threaded.result(timeout=PATIENCE) == "<thread>"
    events.clear()
    bad.enqueue()
    drain(app)
    assert events == ["outer bad", "inner", "saw no", "outer end"]


def test_minutes_reach_the_store(app: Dibs) -> None:
    @app.task(priority="high")
    async def work() -> None: ...

    @app.task(retries=0)
    async def fail() -> None:
        raise ValueError

    for _ in range(3):
        work.enqueue()
    fail.enqueue()
    drain(app)
    minutes = app.hub.runner.run(app.hub.engine.stats(None, 0, 2**40))
    assert sum(minute.completed for minute in minutes if minute.tier == "high") == 3
    assert sum(minute.dead for minute in minutes if minute.tier == "medium") == 1
    assert sum(sum(minute.wait.values()) for minute in minutes) == 4


def test_progress_reaches_the_store_promptly(app: Dibs) -> None:
    told, go_on = threading.Event(), threading.Event()

    @app.task
    def slow(ctx: Context) -> None:
        ctx.progress(0.25, "a quarter")
        told.set()
        go_on.wait(PATIENCE)

    handle = slow.enqueue()
    with app.worker():
        assert told.wait(PATIENCE)
        deadline = threading.Event()
        for _ in range(2000):
            record = record_of(app, handle.id)
            if record.progress is not None:
                break
            deadline.wait(0.005)
        assert (record.progress, record.progress_message) == (0.25, "a quarter")
        go_on.set()
        handle.result(timeout=PATIENCE)


def test_start_stop_in_every_order(app: Dibs) -> None:
    @app.task
    async def work() -> str:
        return "done"

    worker = app.worker()
    assert worker.stop() is None
    worker.start()
    worker.start()
    assert work.enqueue().result(timeout=PATIENCE) == "done"
    report = worker.stop()
    assert report is not None
    assert report.code is ExitCode.CLEAN
    assert worker.stop() == report
    with worker:
        assert work.enqueue().result(timeout=PATIENCE) == "done"
    assert worker.stats().completed == 1


def test_starting_and_stopping_many_times_leaves_nothing_behind(app: Dibs) -> None:
    @app.task
    async def work(number: int) -> int:
        return number

    with app.worker():
        pass
    before = threading.active_count()
    for number in range(30):
        with app.worker():
            assert work.enqueue(number).result(timeout=PATIENCE) == number
    eventually(lambda: threading.active_count() <= before + 1)
    assert app.hub.runner.run(app.hub.engine.workers()) == []


def test_a_worker_takes_urgent_tasks_first(app: Dibs) -> None:
    order = []

    @app.task
    async def work(name: str) -> None:
        order.append(name)

    for priority, name in ((10, "low"), (50, "normal"), (90, "critical"), (70, "high")):
        work.using(priority=priority).enqueue(name)
    drain(app, concurrency=1)
    assert order == ["critical", "high", "normal", "low"]


def test_capabilities_decide_and_sticky_routing_works(app: Dibs) -> None:
    ran = []

    @app.task
    async def on(where: str) -> None:
        ran.append(where)

    on.using(requires=["host:a"], priority=90).enqueue("a")
    on.using(requires=["host:b"]).enqueue("b")
    on.using(requires=["gpu", "host:b"]).enqueue("gpu on b")
    on.enqueue("anywhere")
    drain(app, capabilities=("host:b",))
    assert ran == ["b", "anywhere"]
    drain(app, capabilities=("host:b", "gpu"))
    assert ran == ["b", "anywhere", "gpu on b"]
    drain(app, capabilities=("host:a",))
    assert ran[-1] == "a"


def test_every_worker_offers_its_own_host(app: Dibs) -> None:
    from dibs.runtime.environment import host

    @app.task
    async def here() -> str:
        return "here"

    handle = here.using(requires=[f"host:{host()}"]).enqueue()
    drain(app)
    assert handle.result(timeout=PATIENCE) == "here"


def test_logging_is_plain(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dibs.worker")

    @app.task(queue="mail")
    async def work() -> None: ...

    drain(app)
    assert any("serves mail" in message for message in caplog.messages)
