"""complete_in: a task's own writes and its completion in one transaction, as the worker sees it."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from worker_support import PATIENCE, eventually, record_of

from dibs import Context, Dibs, State
from dibs.core.task import HistoryEvent
from dibs.errors import InvalidArguments, LeaseLost, PayloadTooLarge, TaskFailed
from dibs.testing import Sandbox
from servers.postgres import new_url, server_url

SOON = 3.0
"""A timeout that is long enough for a transaction, whatever else the machine does."""

Begin = Callable[[], AbstractContextManager[Any]]
ABegin = Callable[[], AbstractAsyncContextManager[Any]]


class Shop:
    """An app, and a way to begin a transaction on its database, which commits unless something is raised."""

    def __init__(self, app: Dibs, begin: Begin, undo: Callable[[Any], None], abegin: ABegin) -> None:
        self.app = app
        self.begin = begin
        self.rollback = undo
        self.abegin = abegin


@asynccontextmanager
async def async_session(file: Path) -> AsyncIterator[AsyncSession]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def asyncpg_transaction() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server_url())
    async with connection.transaction():
        yield connection
    await connection.close()


@pytest.fixture(params=["sqlite", "sqlite session", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "postgres":
        with Dibs(new_url(), retry_base=0) as app:
            connect = lambda: psycopg.connect(server_url())  # noqa: E731
            yield Shop(app, connect, psycopg.Connection.rollback, asyncpg_transaction)
        return
    file = tmp_path / "shop.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", poolclass=NullPool)

    @contextmanager
    def begin() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(file)) as connection, connection:
            yield connection

    @contextmanager
    def begin_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session
            session.commit()

    @asynccontextmanager
    async def abegin() -> AsyncIterator[sqlite3.Connection]:
        with begin() as connection:
            yield connection

    with Dibs(f"sqlite:///{file}", retry_base=0) as app:
        app.queues.list()
        if request.param == "sqlite":
            yield Shop(app, begin, sqlite3.Connection.rollback, abegin)
        else:
            yield Shop(app, begin_session, Session.rollback, lambda: async_session(file))


def test_the_result_is_what_was_handed_over(shop: Shop) -> None:
    @shop.app.task
    def work(ctx: Context, number: int) -> Any:
        with shop.begin() as connection:
            ctx.complete_in(connection, result={"number": number})
        return "not kept"

    with shop.app.worker() as worker:
        handle = work.enqueue(5)
        assert handle.result(PATIENCE) == {"number": 5}
        eventually(lambda: worker.stats().completed == 1)
        assert (worker.stats().failed, worker.stats().refused, worker.stats().lost) == (0, 0, 0)
    assert handle.history() == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_connection_that_a_failing_task_leaves_open_keeps_nobody_waiting() -> None:
    with Dibs(new_url()) as app:

        @app.task(retries=0)
        def skip_upkeep(ctx: Context) -> None:
            connection = psycopg.connect(server_url())
            ctx.complete_in(connection)
            raise ValueError("with its transaction still open")

        @app.task
        def other() -> str:
            return "done"

        gc.disable()  # what goes with the task goes at once, not when somebody looks for cycles
        try:
            with app.worker():
                failing = skip_upkeep.enqueue()
                assert other.enqueue().result(PATIENCE) == "done"
                with pytest.raises(TaskFailed, match="with its transaction still open"):
                    failing.result(PATIENCE)
        finally:
            gc.enable()


def test_async_tasks_do_the_same(shop: Shop) -> None:
    @shop.app.task
    async def work(ctx: Context) -> Any:
        async with shop.abegin() as connection:
            await ctx.acomplete_in(connection, result=1)

    with shop.app.worker() as worker:
        assert work.enqueue().result(PATIENCE) == 1
        eventually(lambda: worker.stats().completed == 1)


def test_a_transaction_that_did_not_commit_is_a_failed_attempt(shop: Shop) -> None:
    @shop.app.task(retries=1)
    def work(ctx: Context) -> Any:
        with shop.begin() as connection:
            ctx.complete_in(connection, result=ctx.attempt)
            if ctx.attempt == 1:
                shop.rollback(connection)
        return "not kept"

    with shop.app.worker() as worker:
        handle = work.enqueue()
        assert handle.result(PATIENCE) == 2
        eventually(lambda: worker.stats().executed == 2)
        assert (worker.stats().failed, worker.stats().completed) == (1, 1)
    (entry,) = handle.history()
    assert entry.event is HistoryEvent.FAILED
    assert entry.error is not None
    assert entry.error.type == "TransactionNotCommitted"
    assert "did not commit" in entry.error.message


def test_one_that_never_commits_ends_dead_like_any_other(shop: Shop) -> None:
    @shop.app.task(retries=0)
    def work(ctx: Context) -> Any:
        with shop.begin() as connection:
            ctx.complete_in(connection)
            shop.rollback(connection)

    with shop.app.worker(), pytest.raises(TaskFailed, match="did not commit"):
        work.enqueue().result(PATIENCE)


def test_it_may_be_tried_again_in_another_transaction(shop: Shop) -> None:
    @shop.app.task(retries=0)
    def work(ctx: Context) -> Any:
        with shop.begin() as connection:
            ctx.complete_in(connection, result=1)
            shop.rollback(connection)
        with shop.begin() as connection:
            ctx.complete_in(connection, result=2)
            ctx.complete_in(connection, result=3)  # it has been said

    with shop.app.worker():
        assert work.enqueue().result(PATIENCE) == 2


def test_what_is_raised_inside_fails_the_attempt_as_ever(shop: Shop) -> None:
    @shop.app.task(retries=0)
    def work(ctx: Context) -> Any:
        with shop.begin() as connection:
            ctx.complete_in(connection)
            raise LookupError("no such order")

    with shop.app.worker(), pytest.raises(TaskFailed, match="no such order"):
        work.enqueue().result(PATIENCE)


def test_what_is_raised_after_the_commit_is_logged_and_the_task_stays_completed(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    @shop.app.task
    def work(ctx: Context) -> Any:
        with shop.begin() as connection:
            ctx.complete_in(connection)
        raise LookupError("after the event")

    with caplog.at_level(logging.WARNING, "dibs.worker"), shop.app.worker() as worker:
        handle = work.enqueue()
        assert handle.result(PATIENCE) is None
        eventually(lambda: worker.stats().completed == 1)
        assert worker.stats().failed == 0
    assert any("after the event" in message and "stays completed" in message for message in caplog.messages)
    assert handle.history() == []


def test_a_timeout_after_the_commit_changes_nothing(shop: Shop) -> None:
    left = threading.Event()

    @shop.app.task(timeout=SOON)
    def work(ctx: Context) -> Any:
        with shop.begin() as connection:
            ctx.complete_in(connection, result=1)
        eventually(lambda: ctx.cancelled)
        left.set()

    with shop.app.worker() as worker:
        handle = work.enqueue()
        assert handle.result(PATIENCE) == 1
        assert left.wait(PATIENCE)
        eventually(lambda: worker.stats().completed == 1)
        assert worker.stats().timed_out == 0
    assert handle.refresh().state is State.COMPLETED


def test_a_run_that_has_timed_out_can_no_longer_complete(shop: Shop) -> None:
    """It is to be run again, so what this run has done must not be done."""
    ends: list[str] = []

    @shop.app.task(timeout=1, retries=20)
    def work(ctx: Context) -> Any:
        try:
            if ctx.attempt == 1:
                eventually(lambda: record_of(shop.app, ctx.id).attempts == 1)
            with shop.begin() as connection:
                ctx.complete_in(connection, result=ctx.attempt)
            ends.append("committed")
        except LeaseLost:
            ends.append("rolled back")
            raise

    with shop.app.worker(concurrency=2):
        assert work.enqueue().result(PATIENCE) >= 2
    assert ends.count("committed") == 1
    assert "rolled back" in ends


def test_a_timeout_before_the_commit_is_reported_when_the_transaction_is_over(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The open transaction would keep the report waiting, and those of other tasks with it."""
    timed_out, others = threading.Event(), threading.Event()

    @shop.app.task(timeout=SOON, retries=0)
    def work(ctx: Context) -> None:
        with shop.begin() as connection:
            ctx.complete_in(connection)
            eventually(lambda: ctx.cancelled)
            timed_out.set()
            if "postgres" in shop.app.url:  # in a SQLite file nothing else can write until then
                assert others.wait(PATIENCE)
            shop.rollback(connection)

    @shop.app.task
    async def other() -> None: ...

    with caplog.at_level(logging.INFO, "dibs.worker"), shop.app.worker(concurrency=4) as worker:
        handle = work.enqueue()
        if "postgres" in shop.app.url:
            assert timed_out.wait(PATIENCE)
            eventually(lambda: any("goes on" in message for message in caplog.messages))
            assert worker.stats().unsettled == 0  # nothing is on its way that would have to wait
            other.enqueue().result(PATIENCE)
            others.set()
        with pytest.raises(TaskFailed, match="longer than its timeout"):
            handle.result(PATIENCE)
        eventually(lambda: worker.stats().timed_out == 1)


def test_a_run_that_goes_on_after_its_commit_is_left_alone(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """Its lease is gone with the commit, and the heartbeat finds out. That is no loss."""

    @shop.app.task(lease=1)
    def work(ctx: Context) -> Any:
        with shop.begin() as connection:
            ctx.complete_in(connection, result=1)
        link: Any = ctx._link
        eventually(lambda: link.committed)
        assert not ctx.cancelled

    with caplog.at_level(logging.WARNING, "dibs.worker"), shop.app.worker() as worker:
        assert work.enqueue().result(PATIENCE) == 1
        eventually(lambda: worker.stats().completed == 1)
        assert worker.stats().lost == 0
    assert caplog.messages == []


def test_a_lease_that_is_not_current_rolls_everything_back(shop: Shop) -> None:
    raised: list[BaseException] = []
    leases: list[int] = []
    shop.app.queues.list()

    @shop.app.task(retries=0)
    def work(ctx: Context) -> int:
        leases.append(ctx.lease)
        if len(leases) == 1:
            engine, runner = shop.app.hub.engine, shop.app.hub.runner
            later = shop.app.hub.clock.now() + 3600 * 1_000_000
            runner.run(engine.rescue(now=later))
            try:
                with shop.begin() as connection:
                    ctx.complete_in(connection, result=1)
            except LeaseLost as error:
                raised.append(error)
                raise
        return ctx.lease

    with shop.app.worker():
        lease = work.enqueue().result(PATIENCE)
    assert len(raised) == 1
    assert leases[0] < leases[1] == lease


def test_a_result_that_can_not_be_kept_is_said_at_once(shop: Shop) -> None:
    raised: list[BaseException] = []

    @shop.app.task(retries=0)
    def work(ctx: Context) -> Any:
        with shop.begin() as connection:
            for bad in (object(), "x" * 300_000):
                try:
                    ctx.complete_in(connection, result=bad)
                except (InvalidArguments, PayloadTooLarge) as error:
                    raised.append(error)
            ctx.complete_in(connection, result="good")

    with shop.app.worker():
        assert work.enqueue().result(PATIENCE) == "good"
    assert [type(error) for error in raised] == [InvalidArguments, PayloadTooLarge]


def test_a_large_result_goes_to_the_blob_store(tmp_path: Path) -> None:
    large = "x" * 300_000
    with Dibs(new_url(), blobs=f"file://{tmp_path}/blobs") as app:

        @app.task
        def work(ctx: Context) -> Any:
            with psycopg.connect(server_url()) as connection:
                ctx.complete_in(connection, result=large)

        with app.worker():
            assert work.enqueue().result(PATIENCE) == large


def test_an_async_task_is_told_to_use_an_async_connection() -> None:
    with Dibs(new_url()) as app:

        @app.task(retries=0)
        async def work(ctx: Context) -> Any:
            with psycopg.connect(server_url()) as connection:
                await ctx.acomplete_in(connection)

        with app.worker(), pytest.raises(TaskFailed, match="would stop the event loop"):
            work.enqueue().result(PATIENCE)


def test_an_async_run_that_is_cancelled_after_its_commit_stays_completed() -> None:
    with Dibs(new_url()) as app:

        @app.task(timeout=SOON)
        async def work(ctx: Context) -> Any:
            connection = await asyncpg.connect(server_url())
            try:
                async with connection.transaction():
                    await ctx.acomplete_in(connection, result=1)
                await asyncio.sleep(PATIENCE)
            finally:
                await connection.close()

        with app.worker() as worker:
            assert work.enqueue().result(PATIENCE) == 1
            eventually(lambda: worker.stats().completed == 1)
            assert worker.stats().timed_out == 0


def test_memory_has_nothing_to_join(app: Dibs) -> None:
    @app.task(retries=0)
    def work(ctx: Context) -> Any:
        with psycopg.connect(server_url()) as connection:
            ctx.complete_in(connection)

    with app.worker(), pytest.raises(TaskFailed, match="can't join a transaction"):
        work.enqueue().result(PATIENCE)


# In a sandbox there is no transaction to join: a completion holds if the task then returns.


def test_in_a_sandbox_a_task_completes_if_it_returns() -> None:
    app = Dibs(new_url(), retry_base=0)

    @app.task(retries=1)
    def work(ctx: Context) -> Any:
        ctx.complete_in(object(), result=ctx.attempt)
        if ctx.attempt == 1:
            raise LookupError("rolled back")
        return "not kept"

    @app.task
    async def work_async(ctx: Context) -> Any:
        await ctx.acomplete_in(object(), result=7)
        work.using(connection=object()).enqueue()

    with Sandbox(app) as sandbox:
        handle = work.enqueue()
        sandbox.run_until_idle()
        assert handle.refresh().state is State.COMPLETED
        assert handle.result() == 2
        assert [entry.event for entry in handle.history()] == [HistoryEvent.FAILED]
        other = work_async.enqueue()
        sandbox.run_until_idle()
        assert other.result() == 7
        sandbox.assert_enqueued(work, count=2)
    app.close()
