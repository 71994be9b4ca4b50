"""The sandbox that users test their apps with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dibs.attempt.context import Context
from dibs.attempt.middleware import Next
from dibs.client.app import Dibs
from dibs.core.states import State
from dibs.errors import Permanent, Retry, TaskFailed, UsageError, WrongThread
from dibs.testing import ManualClock, Sandbox

MakeSandbox = Callable[..., Sandbox]


class Shop:
    """An app as somebody might write it, on a file that the tests must not touch."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.app = Dibs(f"sqlite:///{file}")
        self.ran: list[Any] = []
        self.threads: list[int] = []

        @self.app.task(queue="mail", priority="high", retries=2)
        def send(to: str, subject: str = "Hi") -> str:
            self.ran.append(to)
            self.threads.append(threading.get_ident())
            return f"sent {subject} to {to}"

        @self.app.task(retries=2)
        async def fail(times: int) -> str:
            self.ran.append("fail")
            if self.ran.count("fail") <= times:
                raise ConnectionError("no route")
            return "at last"

        @self.app.task
        async def order(customer: str) -> None:
            await send.aenqueue(customer)

        @self.app.task
        def order_blocking(customer: str) -> None:
            send.enqueue(customer)

        self.send, self.fail, self.order, self.order_blocking = send, fail, order, order_blocking


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "production.db")


def test_the_real_store_is_not_touched(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app)
    handle = shop.send.enqueue("ada")
    sandbox.run_due()
    assert handle.result() == "sent Hi to ada"
    assert shop.app.queues.get("mail").counts[State.COMPLETED] == 1
    assert not shop.file.exists()


def test_the_app_is_given_back(shop: Shop) -> None:
    hub, engine, runner = shop.app.hub, shop.app.hub.engine, shop.app.hub.runner
    with Sandbox(shop.app):
        assert shop.app.hub is hub
        assert hub.engine is not engine
    assert hub.engine is engine
    assert hub.runner is runner
    assert hub.url == shop.app.url


def test_two_kits_after_one_another_share_nothing(shop: Shop) -> None:
    with Sandbox(shop.app):
        shop.send.enqueue("ada")
    with Sandbox(shop.app) as sandbox:
        sandbox.assert_not_enqueued()
        assert sandbox.run_due() == []


def test_nothing_runs_before_it_is_asked_to(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app)
    handle = shop.send.enqueue("ada")
    assert handle.refresh().state is State.PENDING
    with pytest.raises(UsageError, match="call run_due"):
        handle.result()
    assert [info.state for info in sandbox.run_due()] == [State.COMPLETED]


def test_plain_functions_run_in_the_thread_of_the_test(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app)
    shop.send.enqueue("ada")
    shop.order_blocking.enqueue("bob")
    shop.order.enqueue("eve")
    sandbox.run_due()
    assert sorted(shop.ran) == ["ada", "bob", "eve"]
    assert set(shop.threads) == {threading.get_ident()}


def test_runs_are_in_claim_order(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app)
    for priority, name in [(10, "low"), (90, "critical"), (50, "normal")]:
        shop.send.using(priority=priority).enqueue(name)
    sandbox.run_due(limit=2)
    assert shop.ran == ["critical", "normal"]


def test_eager_runs_at_once(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    dibs_sandbox(shop.app, eager=True)
    assert shop.send.enqueue("ada", subject="News").result() == "sent News to ada"
    handles = shop.app.enqueue_many([shop.send.call("bob"), shop.send.call("eve")])
    assert [handle.result() for handle in handles] == ["sent Hi to bob", "sent Hi to eve"]


def test_eager_runs_what_tasks_enqueue(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app, eager=True)
    parent = shop.order.enqueue("ada")
    other = shop.order_blocking.enqueue("bob")
    assert shop.ran == ["ada", "bob"]
    assert [info.parent for info in sandbox.assert_enqueued(shop.send, count=2)] == [parent.id, other.id]


def test_eager_waits_for_run_due_after_an_enqueue_in_a_transaction(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    """The sandbox can't see the commit, before which no worker would see the task."""
    sandbox = dibs_sandbox(shop.app, eager=True)
    joined = shop.send.using(connection=object())
    handle = joined.enqueue("ada")
    with pytest.raises(UsageError, match="call run_due"):
        handle.result()

    async def use() -> None:
        await joined.aenqueue("bob")

    asyncio.run(use())
    assert shop.ran == []
    sandbox.run_due()
    assert shop.ran == ["ada", "bob"]
    assert handle.result() == "sent Hi to ada"


def test_eager_runs_what_tasks_enqueue_in_a_transaction(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    joined = shop.send.using(connection=object())

    @shop.app.task
    def order_in() -> None:
        joined.enqueue("ada")

    @shop.app.task
    async def order_in_async() -> None:
        joined.enqueue("bob")
        await joined.aenqueue("eve")

    dibs_sandbox(shop.app, eager=True)
    order_in.enqueue()
    order_in_async.enqueue()
    assert shop.ran == ["ada", "bob", "eve"]


def test_async_code_can_use_it(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app)

    async def use() -> str:
        handle = await shop.send.aenqueue("ada")
        await sandbox.arun_due()
        return await handle

    assert asyncio.run(use()) == "sent Hi to ada"


def test_the_clock_moves_through_delays_and_backoff(
    shop: Shop, dibs_sandbox: MakeSandbox, dibs_clock: ManualClock
) -> None:
    sandbox = dibs_sandbox(shop.app)
    start = dibs_clock.time
    shop.send.using(delay=timedelta(hours=1)).enqueue("ada")
    failing = shop.fail.enqueue(times=2)
    assert [info.state for info in sandbox.run_due()] == [State.RETRYING]
    ran = sandbox.run_until_idle()
    assert [info.name.rpartition(".")[2] for info in ran] == ["fail", "fail", "send"]
    assert failing.result() == "at last"
    assert dibs_clock.time == start + timedelta(hours=1)
    assert [line.event for line in failing.history()] == ["failed", "failed"]


def test_a_task_that_goes_on_failing_ends_dead(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app)
    handle = shop.fail.enqueue(times=99)
    assert [info.state for info in sandbox.run_until_idle()] == [State.RETRYING, State.RETRYING, State.DEAD]
    with pytest.raises(TaskFailed, match="no route") as caught:
        handle.result()
    assert caught.value.reason == "exhausted"
    assert 'raise ConnectionError("no route")' in caught.value.traceback


def test_abandoned_leases_are_taken_back(shop: Shop, dibs_sandbox: MakeSandbox, dibs_clock: ManualClock) -> None:
    sandbox = dibs_sandbox(shop.app)
    handle = shop.send.enqueue("ada")
    start = dibs_clock.time
    (claim,) = shop.app.claim(["mail"])
    assert sandbox.run_due() == []
    sandbox.run_until_idle()
    assert dibs_clock.time == start + timedelta(seconds=30)
    assert handle.result() == "sent Hi to ada"
    assert [line.event for line in handle.history()] == ["lost"]
    assert shop.app.settle(claim) is False


def test_tasks_that_never_end_are_an_error(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")

    @app.task(name="again")
    async def again() -> None:
        await again.using(delay=60).aenqueue()

    sandbox = dibs_sandbox(app)
    again.enqueue()
    with pytest.raises(AssertionError, match="still not idle after 20 runs; the next would be of again"):
        sandbox.run_until_idle(limit=20)


def test_exceptions_can_be_given_to_the_test(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    dibs_sandbox(shop.app, eager=True, reraise=True)
    with pytest.raises(ConnectionError, match="no route"):
        shop.fail.enqueue(times=1)


@pytest.mark.parametrize("kind", [KeyError, ValueError, TypeError, LookupError, OverflowError, ZeroDivisionError])
@pytest.mark.parametrize("way", ["one", "many", "workflow", "fire"])
def test_an_exception_reaches_the_test_as_it_is(dibs_sandbox: MakeSandbox, kind: type[Exception], way: str) -> None:
    app = Dibs("memory://", retries=0)

    @app.schedule(every=60)
    @app.task
    def fail() -> None:
        raise kind("own")

    sandbox = dibs_sandbox(app, eager=True, reraise=True)
    enqueue: dict[str, Callable[[], object]] = {
        "one": fail.enqueue,
        "many": lambda: app.enqueue_many([fail.call()]),
        "workflow": lambda: app.enqueue_workflow(fail.call()),
        "fire": lambda: sandbox.advance(60),
    }
    with pytest.raises(kind) as caught:
        enqueue[way]()
    assert (type(caught.value), caught.value.args) == (kind, ("own",))
    [ended] = sandbox.enqueued(fail)
    assert (ended.state, ended.failed_attempts) == ("dead", 1)
    assert not any(meter.errors for meter in app.hub.meters.read().values())


def test_outcomes_are_those_of_a_worker(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")

    @app.task
    def give_up() -> None:
        raise Permanent("never")

    @app.task
    def later(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry(after=90)

    @app.task
    def leave() -> None:
        raise SystemExit(3)

    @app.task
    def unspeakable() -> Any:
        return object()

    sandbox = dibs_sandbox(app)
    handles = [task.enqueue() for task in (give_up, later, leave, unspeakable)]
    sandbox.run_due()
    dead, retrying, left, odd = [handle.refresh() for handle in handles]
    assert (dead.state, dead.reason) == (State.DEAD, "permanent")
    assert retrying.due_at == sandbox.clock.time + timedelta(seconds=90)
    assert (left.state, left.error and left.error.type) == (State.RETRYING, "SystemExit")
    assert (odd.state, odd.reason) == (State.DEAD, "permanent")


def test_progress_cancel_and_timeout(dibs_sandbox: MakeSandbox, dibs_clock: ManualClock) -> None:
    app = Dibs("memory://")

    @app.task
    def halfway(ctx: Context) -> None:
        ctx.progress(0.5, "half")
        assert app.tasks.get(ctx.id).progress == 0.5

    @app.task
    def cancels_itself(ctx: Context) -> None:
        app.tasks.cancel(ctx.id, "enough")
        assert ctx.cancelled
        ctx.raise_if_cancelled()

    @app.task(timeout=10, retries=0)
    def slow(ctx: Context) -> None:
        assert ctx.time_left == pytest.approx(10, abs=1)
        dibs_clock.advance(11)
        assert ctx.time_left == 0

    sandbox = dibs_sandbox(app)
    handles = [task.enqueue() for task in (halfway, cancels_itself, slow)]
    sandbox.run_due()
    fine, cancelled, dead = [handle.refresh() for handle in handles]
    assert fine.state is State.COMPLETED
    assert (cancelled.state, cancelled.note) == (State.CANCELLED, "enough")
    assert (dead.state, dead.error and dead.error.type) == (State.DEAD, "TimeoutError")


def test_middleware_and_lifespan_take_part(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")
    seen: list[str] = []

    @app.middleware
    async def note(ctx: Context, proceed: Next) -> Any:
        seen.append(f"before {ctx.name}")
        result = await proceed()
        seen.append(f"after {result}")
        return result

    @app.lifespan
    async def resources() -> AsyncIterator[str]:
        seen.append("open")
        yield "a pool"
        seen.append("close")

    @app.task(name="plain")
    def plain(ctx: Context) -> str:
        assert Context.current() is ctx
        nested.enqueue()
        return str(ctx.state)

    @app.task(name="nested")
    async def nested() -> None:
        with pytest.raises(WrongThread):
            plain.enqueue()

    with Sandbox(app) as sandbox:
        plain.enqueue()
        sandbox.run_due()
    assert seen == ["open", "before plain", "after a pool", "before nested", "after None", "close"]
    with Sandbox(app, state="mine") as sandbox:
        assert plain.enqueue()
        assert sandbox.run_due()[0].result == "mine"


def test_capabilities_are_offered_or_not(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")

    @app.task(requires=["gpu"])
    def render() -> None: ...

    with Sandbox(app) as sandbox:
        render.enqueue()
        assert len(sandbox.run_due()) == 1
    with Sandbox(app, capabilities=()) as sandbox:
        render.enqueue()
        assert sandbox.run_until_idle() == []


def test_assert_enqueued(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app)
    shop.send.using(key="welcome-1").enqueue("ada", subject="Welcome")
    shop.send.using(queue="slow", priority=10).enqueue("bob")
    sandbox.assert_enqueued(shop.send, {"to": "ada"}, queue="mail", priority="high", key="welcome-1", count=1)
    sandbox.assert_enqueued(shop.send, count=2)
    sandbox.assert_not_enqueued(shop.order)
    sandbox.assert_not_enqueued(shop.send, {"to": "eve"})
    sandbox.assert_not_enqueued(queue="bulk")
    assert [info.args["to"] for info in sandbox.enqueued(queue="slow")] == ["bob"]


def test_a_failed_assertion_tells_what_was_enqueued(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(shop.app)
    with pytest.raises(AssertionError, match="Nothing was enqueued"):
        sandbox.assert_enqueued(shop.send)
    shop.send.enqueue("ada")
    name = shop.send.name
    with pytest.raises(AssertionError) as caught:
        sandbox.assert_enqueued(shop.send, {"to": "bob"}, queue="mail")
    assert str(caught.value) == (
        f"{name}(to='bob') with queue 'mail' was not enqueued. Enqueued:\n"
        f"  {name}(to='ada') in mail, priority 70, pending"
    )
    with pytest.raises(AssertionError, match="was not enqueued 2 times but once"):
        sandbox.assert_enqueued(shop.send, count=2)
    with pytest.raises(AssertionError, match="was enqueued"):
        sandbox.assert_not_enqueued(shop.send)


def test_arguments_are_compared_as_they_are_stored(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")

    @app.task
    def remind(at: datetime) -> None: ...

    sandbox = dibs_sandbox(app)
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    remind.enqueue(moment)
    sandbox.assert_enqueued(remind, {"at": moment})


def test_a_sandbox_has_to_be_open(shop: Shop) -> None:
    sandbox = Sandbox(shop.app)
    with pytest.raises(UsageError, match="not open"):
        sandbox.run_due()
    sandbox.start()
    with pytest.raises(UsageError, match="open already"):
        sandbox.start()
    sandbox.close()
    sandbox.close()
    assert not shop.file.exists()


def test_a_real_worker_can_run_in_a_sandbox(shop: Shop, dibs_sandbox: MakeSandbox) -> None:
    dibs_sandbox(shop.app)
    with shop.app.worker():
        assert shop.order.enqueue("ada").result(timeout=20) is None
    assert not shop.file.exists()


def test_process_tasks_run_in_place(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")

    @app.task(executor="process")
    def identify() -> int:
        return threading.get_ident()

    dibs_sandbox(app, eager=True)
    assert identify.enqueue().result() == threading.get_ident()


def test_deadlines_and_tiers_take_their_steps(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")
    ran: list[str] = []

    @app.task
    def work(name: str) -> None:
        ran.append(name)

    sandbox = dibs_sandbox(app)
    app.queues.set("default", policy="tiers", rate=0.001)  # one start, then none for a thousand seconds
    work.using(priority="high").enqueue("first")
    work.using(priority="low").enqueue("old and low")
    sandbox.run_due()
    sandbox.clock.advance(700)
    work.using(priority="medium").enqueue("young and medium")
    sandbox.run_until_idle()
    assert ran == ["first", "old and low", "young and medium"]


# Schedules.


def test_advance_fires_schedules_at_their_times(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")
    seen: list[str] = []

    @app.schedule(every=600, name="often")
    @app.schedule("0 13 * * *", name="daily")
    @app.task
    def note(ctx: Context) -> None:
        seen.append(f"{ctx.headers['schedule']} {ctx.headers['fire-time'][11:16]}")

    sandbox = dibs_sandbox(app)
    assert sandbox.advance(599).isoformat() == "2026-01-01T12:09:59+00:00"
    assert sandbox.enqueued() == []
    sandbox.advance(3600)
    sandbox.run_due()
    assert sorted(seen) == ["daily 13:00", *(f"often 12:{minute}0" for minute in range(1, 6)), "often 13:00"]
    assert len(sandbox.enqueued(note)) == 7
    sandbox.clock.advance(3600)
    assert sandbox.run_due() == []  # only `advance` fires
    assert sandbox.run_until_idle() == []


def test_advance_respects_what_the_test_changed(dibs_sandbox: MakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Dibs("memory://")

    @app.schedule(every=60, name="often", overlap="skip")
    @app.task
    def note() -> None: ...

    sandbox = dibs_sandbox(app, eager=True)
    sandbox.advance(120)
    assert [info.state for info in sandbox.enqueued()] == [State.COMPLETED] * 2
    app.schedules.pause("often")
    sandbox.advance(600)
    assert len(sandbox.enqueued()) == 2
    app.schedules.resume("often")
    app.queues.drain("default")
    sandbox.advance(90)  # due, and nobody takes it
    app.queues.resume("default")
    sandbox.advance(1)
    assert len(sandbox.enqueued()) == 3
    monkeypatch.setattr("dibs.testing.sandbox.MOST_MOVES", 20)
    with pytest.raises(AssertionError, match="advance less at a time"):
        sandbox.advance(3600)


def test_advance_in_async_code(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")

    @app.schedule(every=60)
    @app.task
    async def note() -> None: ...

    sandbox = dibs_sandbox(app)

    async def use() -> int:
        await sandbox.aadvance(60)
        return len(await sandbox.arun_due())

    assert asyncio.run(use()) == 1
