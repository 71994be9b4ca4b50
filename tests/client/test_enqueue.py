"""Handing tasks to a queue."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from dibs import Context, Dibs, State
from dibs.errors import (
    DuplicateTask,
    IdempotencyConflict,
    InvalidArguments,
    InvalidOption,
    QueueDraining,
    QueueFull,
    WrongState,
)
from dibs.testing import ManualClock
from dibs.worker.settings import WorkerSettings
from dibs.worker.worker import Worker

from . import allowed
from .conftest import TIMEOUT, MakeApp


def test_the_arguments_are_stored_by_name(app: Dibs) -> None:
    @app.task(queue="mail", priority="high")
    def send(to: str, subject: str = "Hi", *, urgent: bool = False) -> None: ...

    info = send.enqueue("ada", urgent=True).refresh()
    assert info.args == {"to": "ada", "urgent": True}
    assert (info.queue, info.priority, info.state) == ("mail", 70, State.PENDING)
    assert UUID(info.id).version == 7


def test_a_decorator_needs_no_options(app: Dibs) -> None:
    @app.task
    def work(ctx: Context, number: int) -> int:
        return number

    assert work.enqueue(3).refresh().args == {"number": 3}
    assert work.name == f"{__name__}.work"


def test_a_task_can_still_be_called(app: Dibs) -> None:
    @app.task
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice.")


def test_using_says_everything_else(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def work() -> None: ...

    now = dibs_clock.time
    changed = work.using(
        queue="other",
        priority=7,
        delay=timedelta(minutes=1),
        deadline=3600,
        retries=9,
        timeout=12,
        lease=40,
        key="k",
        requires=["gpu", "host:a"],
        metadata={"tenant": 3},
        headers={"traceparent": "00-ab"},
    )
    info = changed.enqueue().refresh()
    assert (info.queue, info.priority, info.state) == ("other", 7, State.SCHEDULED)
    assert info.due_at == now + timedelta(minutes=1)
    assert info.deadline == now + timedelta(hours=1)
    assert (info.retries, info.timeout, info.key) == (9, 12.0, "k")
    assert info.requires == ("gpu", "host:a")
    assert (info.metadata, info.headers) == ({"tenant": 3}, {"traceparent": "00-ab"})
    assert work.enqueue().refresh().queue == "default"  # the task itself is unchanged


def test_using_adds_up(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def work() -> None: ...

    at = datetime(2026, 1, 2, tzinfo=UTC)
    info = work.using(queue="a", delay=5).using(at=at, retries=1).enqueue().refresh()
    assert (info.queue, info.due_at, info.retries) == ("a", at, 1)


def test_settings_go_from_call_to_app(make_app: MakeApp) -> None:
    app = make_app(retries=1, timeout=10, lease=50)

    @app.task(timeout=20)
    def work() -> None: ...

    app.queues.set("default", retries=2, timeout=15)
    info = work.using(lease=70).enqueue().refresh()
    assert (info.retries, info.timeout) == (2, 20.0)
    (claim,) = app.claim()
    assert claim.task.options.lease == 70_000_000


def test_async_code_enqueues_from_its_own_loop(app: Dibs) -> None:
    @app.task
    async def work(number: int) -> None: ...

    async def use() -> list[str]:
        handles = await asyncio.gather(*(work.aenqueue(number) for number in range(50)))
        return [handle.id for handle in handles]

    ids = asyncio.run(use())
    assert len(set(ids)) == 50
    assert app.queues.get("default").counts[State.PENDING] == 50


def test_a_plain_task_may_run_a_loop_of_its_own(tmp_path: Path) -> None:
    """Also while the worker drives the app's loop on its main thread, as `dibs worker` does."""
    app = Dibs(f"sqlite:///{tmp_path / 'tasks.db'}")

    @app.task
    def inner() -> None: ...

    @app.task
    def outer() -> None:
        asyncio.run(nested())

    async def nested() -> None:
        await inner.aenqueue()

    with app:
        outer.enqueue()
        app.hub.runner.main(Worker(app.hub, WorkerSettings(until_idle=True)).run())
        assert (app.hub.runner.run(app.hub.engine.counts())).tasks["default"][State.COMPLETED] == 2


def test_a_blocking_call_inside_a_running_loop_is_allowed(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    async def use() -> State:
        return work.enqueue().refresh().state

    assert asyncio.run(use()) is State.PENDING


def test_many_are_enqueued_at_once(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    calls = [work.using(key="first").call(1), work.call(2), work.using(key="first").call(1)]
    first, second, third = app.enqueue_many(calls)
    assert first.id == third.id != second.id
    assert [first.duplicate, second.duplicate, third.duplicate] == [False, False, True]
    assert app.enqueue_many([]) == []


def test_many_are_enqueued_all_or_none(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    app.queues.set("narrow", max_depth=2)
    narrow = work.using(queue="narrow")
    with pytest.raises(QueueFull):
        app.enqueue_many([work.call(0), narrow.call(1), narrow.call(2), narrow.call(3)])
    assert app.tasks.count().count == 0


def test_many_can_be_enqueued_by_async_code(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    assert len(asyncio.run(app.aenqueue_many(work.call(n) for n in range(3)))) == 3


@pytest.mark.parametrize("option", [{"block": 1.0}, {"connection": object()}])
def test_many_are_a_transaction_of_their_own(app: Dibs, option: dict[str, object]) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidOption, match="leave connection= and block= out"):
        app.enqueue_many([work.using(**option).call()])  # type: ignore[arg-type]


def test_plain_functions_of_allowed_modules(make_app: MakeApp) -> None:
    app = make_app(allow=[allowed.__name__])
    info = app.enqueue(allowed.double, 4).refresh()
    assert (info.name, info.args) == (f"{allowed.__name__}:double", {"number": 4})
    assert asyncio.run(app.aenqueue(allowed.double, 5)).refresh().args == {"number": 5}


def test_workers_run_plain_functions_they_never_saw_enqueued(make_app: MakeApp) -> None:
    producer = make_app(allow=[allowed.__name__])
    handle = producer.enqueue(allowed.double, 4)
    with producer.worker():
        assert handle.result(TIMEOUT) == 8


def test_other_plain_functions_are_refused(make_app: MakeApp) -> None:
    app = make_app(allow=["json"])
    with pytest.raises(InvalidOption) as caught:
        app.enqueue(allowed.double, 4)
    module = allowed.__name__
    assert str(caught.value) == (
        f"functions of {module} are not allowed as tasks: decorate double with @app.task, "
        f"or make the app with Dibs(…, allow=['{module}'])."
    )
    with pytest.raises(InvalidOption, match="can't be imported by a worker"):
        app.enqueue(lambda: None)


def test_app_enqueue_takes_tasks_too(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    assert app.enqueue(work, 1).refresh().args == {"number": 1}
    assert app.task_named(work.name).enqueue(2).refresh().args == {"number": 2}
    with pytest.raises(InvalidOption, match=r"no task is called '.*wrk' here\. Did you mean '.*work'\?"):
        app.task_named(work.name.replace("work", "wrk"))


def test_ids_that_the_caller_chose(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    chosen = "0190163d-8694-739b-aea5-966c26f8ad91"
    assert work.using(id=chosen).enqueue(1).id == chosen
    again = work.using(id=UUID(chosen)).enqueue(1)
    assert (again.id, again.duplicate) == (chosen, True), "a caller that missed the answer may ask again"
    with pytest.raises(DuplicateTask, match=f"another task has the id {chosen} already"):
        work.using(id=chosen).enqueue(2)
    with pytest.raises(DuplicateTask):
        app.enqueue_many([work.call(3), work.using(id=chosen).call(2)])
    assert app.tasks.count().count == 1
    both = app.enqueue_many([work.call(3), work.using(id=chosen).call(1)])
    assert [handle.duplicate for handle in both] == [False, True]


def test_a_key_stands_for_one_task(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def pay(order: int, currency: str = "EUR") -> None: ...

    first = pay.using(key="order-1").enqueue(1)
    again = pay.using(key="order-1").enqueue(1, currency="EUR")  # a default that is spelt out is no other argument
    assert (again.id, again.duplicate, first.duplicate) == (first.id, True, False)
    with pytest.raises(IdempotencyConflict) as caught:
        pay.using(key="order-1").enqueue(2)
    assert caught.value.task_id == first.id
    assert str(caught.value) == (
        f"key 'order-1' in queue 'default' already stands for task {first.id}, which has other arguments."
    )
    assert pay.using(key="order-1", queue="elsewhere").enqueue(2).duplicate is False


def test_a_key_is_free_after_its_window(still: Dibs, dibs_clock: ManualClock) -> None:
    @still.task
    def pay(order: int) -> None: ...

    first = pay.using(key="k", window=60).enqueue(1)
    dibs_clock.advance(61)
    assert pay.using(key="k").enqueue(1).id == first.id  # not while it is unfinished
    first.cancel()
    assert pay.using(key="k").enqueue(1).id != first.id


def test_a_full_queue_refuses(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    app.queues.set("default", max_depth=1)
    work.enqueue()
    with pytest.raises(QueueFull) as caught:
        work.enqueue()
    assert caught.value.retry_after == 5.0
    assert "is full (max_depth 1)" in str(caught.value)
    assert work.using(delay=60).enqueue().refresh().state is State.SCHEDULED


def test_blocking_gives_up_after_its_time(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    app.queues.set("default", max_depth=1)
    work.enqueue()
    with pytest.raises(QueueFull):
        work.using(block=0.01).enqueue()
    with pytest.raises(QueueFull):
        asyncio.run(work.using(block=0.01).aenqueue())


def test_blocking_waits_for_room(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    app.queues.set("default", max_depth=1)
    work.enqueue(1)
    entered = threading.Event()
    states: list[State] = []

    def produce() -> None:
        entered.set()
        states.append(work.using(block=TIMEOUT).enqueue(2).refresh().state)

    producer = threading.Thread(target=produce)
    producer.start()
    assert entered.wait(TIMEOUT)
    (claim,) = app.claim()
    app.settle(claim)
    producer.join(TIMEOUT)
    assert states == [State.PENDING]


def test_a_draining_queue_refuses(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    app.queues.drain("default")
    with pytest.raises(QueueDraining, match="is draining and takes no new tasks until it is resumed"):
        work.enqueue()


def test_the_parent_and_its_headers_are_kept(app: Dibs) -> None:
    @app.task
    async def child() -> None: ...

    @app.task
    async def parent() -> str:
        return (await child.aenqueue()).id

    outer = parent.using(headers={"traceparent": "00-ab"}).enqueue()
    with app.worker():
        inner = app.handle(outer.result(TIMEOUT)).refresh()
    assert (inner.parent, inner.headers) == (outer.id, {"traceparent": "00-ab"})


def test_two_apps_know_nothing_of_each_other() -> None:
    first, second = Dibs("memory://"), Dibs("memory://")

    @first.task(name="same")
    def one() -> None: ...

    @second.task(name="same")
    def other() -> None: ...

    one.enqueue()
    assert (first.tasks.count().count, second.tasks.count().count) == (1, 0)


def test_one_name_is_taken_once(app: Dibs) -> None:
    @app.task(name="same")
    def one() -> None: ...

    with pytest.raises(InvalidOption, match="two tasks are called 'same'"):

        @app.task(name="same")
        def other() -> None: ...


def test_a_task_that_does_not_wait_can_not_be_edited(app: Dibs) -> None:
    @app.task
    def work() -> None: ...

    handle = work.enqueue()
    app.claim()
    with pytest.raises(WrongState, match="only waiting tasks can be edited"):
        app.tasks.edit(handle.id, priority=1)


def test_arguments_are_checked_before_anything_is_sent(app: Dibs) -> None:
    @app.task
    def work(number: int) -> None: ...

    with pytest.raises(InvalidArguments):
        work.enqueue("one")  # type: ignore[arg-type]
    assert app.queues.list() == []


def test_a_task_is_found_by_the_end_of_its_name(app: Dibs) -> None:
    @app.task(name="shop.mail.send")
    def send() -> None: ...

    @app.task(name="shop.fax.send")
    def fax() -> None: ...

    assert app.task_named("mail.send").name == "shop.mail.send"
    with pytest.raises(InvalidOption, match=r"Several are: shop\.mail\.send, shop\.fax\.send\."):
        app.task_named("send")
