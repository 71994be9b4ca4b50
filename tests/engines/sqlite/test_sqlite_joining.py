"""Joining the user's own transaction on a SQLite file: locks, stale reads, threads, what frameworks leave unbegun."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import NullPool, event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dibs import Dibs, State, Task
from dibs.errors import StoreBusy, UnknownTask, UsageError
from servers.user_connections import SQLITE, guest, set_up_django

PATIENCE = 30.0
Work = Task[[int], int]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def app(file: Path) -> Iterator[Dibs]:
    with Dibs(f"sqlite:///{file}?busy_timeout=0.2") as app:
        app.queues.list()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE orders (number int)")
        yield app


@pytest.fixture
def work(app: Dibs) -> Work:
    @app.task
    def work(number: int) -> int:
        return number

    return work


@pytest.fixture
def engine(file: Path) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", poolclass=NullPool, connect_args={"timeout": 0.2})
    yield engine
    engine.dispose()


def stored(app: Dibs) -> int:
    return app.tasks.count().count


ORDER = sqlalchemy.text("INSERT INTO orders VALUES (1)")


# Which database.


def test_it_must_be_the_store_itself(app: Dibs, work: Work, file: Path, tmp_path: Path) -> None:
    """A hard link has the same file but another log, and a file that is attached commits by itself after a crash."""
    link, name = tmp_path / "link.db", tmp_path / "name.db"
    link.hardlink_to(file)
    name.symlink_to(file)
    for url in ("sqlite://", f"sqlite:///{link}", f"sqlite:///{tmp_path}/other.db"):
        engine = sqlalchemy.create_engine(url, poolclass=NullPool)
        with Session(engine) as session:
            if str(link) not in url:
                session.execute(sqlalchemy.text(f"ATTACH '{file}' AS tasks"))
            with pytest.raises(UsageError, match="but this app keeps its tasks in"):
                work.using(connection=session).enqueue(1)
        engine.dispose()
    engine = sqlalchemy.create_engine(f"sqlite:///{name}", poolclass=NullPool)
    with Session(engine) as session:
        session.execute(sqlalchemy.text("ATTACH ':memory:' AS mine"))
        work.using(connection=session).enqueue(1)
        session.commit()
    engine.dispose()
    assert stored(app) == 1


def test_a_connection_to_a_server_is_refused_by_name(work: Work) -> None:
    class Driver:
        """As a session on another store has it inside."""

    class Wrapper:
        needs_rollback = False
        connection = Driver()

        def validate_thread_sharing(self) -> None: ...
        def ensure_connection(self) -> None: ...

    Driver.__module__, Wrapper.__module__ = "psycopg", "django.db"
    with pytest.raises(UsageError, match=r"can't be a psycopg\..*Driver \(the driver of this connection\)"):
        work.using(connection=Wrapper()).enqueue(1)


def test_a_connection_that_may_only_read_is_refused(app: Dibs, work: Work, file: Path) -> None:
    for url in (f"sqlite:///file:{file}?mode=ro&uri=true", f"sqlite:///{file}"):
        engine = sqlalchemy.create_engine(url, poolclass=NullPool)
        with Session(engine) as session:
            session.execute(sqlalchemy.text("PRAGMA query_only = 1"))
            with pytest.raises(UsageError, match="can't write"):
                work.using(connection=session).enqueue(1)
        engine.dispose()
    assert stored(app) == 0


def test_a_connection_of_another_thread_is_refused(work: Work, file: Path) -> None:
    told: list[BaseException] = []

    def use(connection: Any) -> None:
        try:
            work.using(connection=connection).enqueue(1)
        except UsageError as error:
            told.append(error)

    with closing(sqlite3.connect(file)) as connection:
        thread = threading.Thread(target=use, args=[connection])
        thread.start()
        thread.join(PATIENCE)
    assert "thread" in str(told)


# Locks.


@pytest.mark.parametrize("kind", SQLITE)
def test_what_is_outside_the_transaction_waits_no_longer_than_its_timeout(
    app: Dibs, work: Work, file: Path, kind: str
) -> None:
    with guest(kind, str(file)) as mine:
        mine.execute("INSERT INTO orders VALUES (1)")
        inside = mine.enqueue(work, 1)
        with pytest.raises(StoreBusy):
            work.enqueue(2)
        mine.commit()
        assert inside.refresh().state is State.PENDING
        work.enqueue(3)
    assert stored(app) == 2


def test_an_app_that_opens_inside_the_transaction_waits_for_nothing(app: Dibs, file: Path) -> None:
    """The file is a store by then: opening it writes nothing."""
    app.close()
    with guest("sqlalchemy session", str(file)) as mine, Dibs(f"sqlite:///{file}?busy_timeout=0.2") as app:

        @app.task
        def work(number: int) -> int:
            return number

        mine.execute("INSERT INTO orders VALUES (1)")
        mine.enqueue(work, 1)
        mine.commit()
        assert stored(app) == 1


def test_others_that_write_for_longer_than_it_waits(
    app: Dibs, work: Work, file: Path, engine: sqlalchemy.Engine
) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other, Session(engine) as session:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="Roll your transaction back"):
            work.using(connection=session).enqueue(1)
        other.execute("COMMIT")
        session.rollback()
        work.using(connection=session).enqueue(1)
        session.commit()
    assert stored(app) == 1


def test_the_first_in_a_deferred_transaction_waits_for_others(app: Dibs, work: Work, file: Path) -> None:
    """Django begins like that. If the first thing were to read, the write after it could not wait."""
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        for number in range(5):
            other.execute("BEGIN IMMEDIATE")
            other.execute("INSERT INTO orders VALUES (0)")
            with guest("sqlite3", str(file)) as mine:
                mine.execute("BEGIN")
                ending = threading.Timer(0.1, other.execute, ["COMMIT"])
                ending.start()
                mine.enqueue(work, number)
                mine.commit()
                ending.join(PATIENCE)
    assert stored(app) == 5


def test_a_transaction_that_has_read_what_is_old_by_now_is_to_start_over(app: Dibs, work: Work, file: Path) -> None:
    with guest("sqlite3", str(file)) as mine:
        mine.execute("BEGIN")
        mine.connection.execute("SELECT * FROM orders").fetchall()
        work.enqueue(1)
        with pytest.raises(StoreBusy, match="start over"):
            mine.enqueue(work, 2)
        mine.rollback()
        mine.enqueue(work, 2)
        mine.commit()
    assert stored(app) == 2


# What frameworks leave unbegun.


def test_a_transaction_that_sqlalchemy_only_believes_in_is_begun(
    app: Dibs, work: Work, engine: sqlalchemy.Engine
) -> None:
    """Its driver begins at the first INSERT, not at a SELECT."""
    for ending in ("rollback", "commit"):
        with Session(engine) as session:
            session.execute(sqlalchemy.text("SELECT 1"))
            work.using(connection=session).enqueue(1)
            session.execute(ORDER)
            getattr(session, ending)()
    assert stored(app) == 1


def test_a_savepoint_takes_back_what_is_in_it(app: Dibs, work: Work, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        session.execute(ORDER)
        with session.begin_nested() as nested:
            lost = work.using(connection=session).enqueue(1)
            nested.rollback()
        with session.begin_nested():
            kept = work.using(connection=session).enqueue(2)
        session.commit()
    assert kept.refresh().state is State.PENDING
    with pytest.raises(UnknownTask):
        lost.refresh()
    with Session(engine) as session:
        session.execute(ORDER)
        with session.begin_nested():
            work.using(connection=session).enqueue(3)
        session.rollback()
    assert stored(app) == 1


def test_a_savepoint_that_comes_first_commits_rows_and_tasks_alike(
    app: Dibs, work: Work, file: Path, engine: sqlalchemy.Engine
) -> None:
    """The driver leaves it outside the transaction, which Dibs can't see. At least they stay together."""
    with Session(engine) as session:
        with session.begin_nested():
            session.execute(ORDER)
            work.using(connection=session).enqueue(1)
        session.rollback()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    assert stored(app) == 1


def begins_by_itself(engine: sqlalchemy.Engine) -> None:
    """As SQLAlchemy's documentation has it, for savepoints that come first."""

    @event.listens_for(engine, "connect")
    def leave_it_to_us(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN")


def has_autocommit_off(engine: sqlalchemy.Engine) -> None:
    """What it recommends where the driver knows it."""

    @event.listens_for(engine, "connect")
    def off(connection: Any, _: object) -> None:
        connection.autocommit = False


NEWER = pytest.mark.skipif(sys.version_info < (3, 12), reason="the driver of Python 3.11 has no such attribute")


@pytest.mark.parametrize("set_up", [begins_by_itself, pytest.param(has_autocommit_off, marks=NEWER)])
def test_with_an_explicit_begin_savepoints_may_come_first(
    app: Dibs, work: Work, engine: sqlalchemy.Engine, set_up: Any
) -> None:
    set_up(engine)
    for ending in ("rollback", "commit"):
        with Session(engine) as session:
            with session.begin_nested():
                work.using(connection=session).enqueue(1)
                session.execute(ORDER)
            getattr(session, ending)()
    assert stored(app) == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the driver of Python 3.11 has no such attribute")
@pytest.mark.parametrize("autocommit", [True, False])
def test_the_drivers_own_autocommit(app: Dibs, work: Work, file: Path, autocommit: bool) -> None:
    with closing(sqlite3.connect(file, autocommit=autocommit)) as connection:  # type: ignore[call-overload]
        if autocommit:
            with pytest.raises(UsageError, match="no open transaction"):
                work.using(connection=connection).enqueue(1)
            connection.execute("BEGIN")
        work.using(connection=connection).enqueue(1)
        connection.execute("COMMIT") if autocommit else connection.commit()
    assert stored(app) == 1


def test_djangos_transactions_without_autocommit(app: Dibs, work: Work, file: Path) -> None:
    """Then the driver begins them, at the first INSERT."""
    set_up_django()
    with guest("django", str(file)) as mine:
        mine.enqueue(work, 1)
        mine.rollback()
        mine.enqueue(work, 2)
        mine.commit()
    assert stored(app) == 1


# Who stops waiting.


def test_who_stops_waiting_can_go_on(app: Dibs, work: Work, file: Path) -> None:
    async def go() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
        async with AsyncSession(engine) as session:
            with closing(sqlite3.connect(file, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await work.using(connection=session).aenqueue(1)
                other.execute("COMMIT")
            kept = await work.using(connection=session).aenqueue(2)
            await session.execute(ORDER)
            await session.commit()
        await engine.dispose()
        assert (await kept.arefresh()).state is State.PENDING

    began = time.monotonic()
    asyncio.run(go())
    assert time.monotonic() < began + 4  # not the driver's own five seconds
    assert stored(app) == 1


def test_a_session_on_the_loop_leaves_the_loop_free(app: Dibs, work: Work, file: Path) -> None:
    """While it waits for a lock, its own thread waits."""

    async def go() -> int:
        engine = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
        ticks = 0
        async with AsyncSession(engine) as session:
            with closing(sqlite3.connect(file, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                enqueueing = asyncio.ensure_future(work.using(connection=session).aenqueue(1))
                for _ in range(10):
                    await asyncio.sleep(0.01)
                    ticks += not enqueueing.done()
                other.execute("COMMIT")
            await enqueueing
            await session.commit()
        await engine.dispose()
        return ticks

    assert asyncio.run(go()) == 10
    assert stored(app) == 1
