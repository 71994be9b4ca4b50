"""Enqueueing inside a PostgreSQL transaction of the user's own, with every driver."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from user_connection_help import ASYNC, BLOCKING, DRIVERS, Mine, guest, set_up_django

from dibs import Dibs, State, Task
from dibs.client.tasks import Filter
from dibs.engines.topics import work_topic
from dibs.engines.values import Level
from dibs.errors import (
    DuplicateTask,
    IdempotencyConflict,
    QueueDraining,
    QueueFull,
    RateLimited,
    StoreBusy,
    StoreUnavailable,
    UnknownTask,
    UsageError,
)
from servers.postgres import new_url, server_url

PATIENCE = 30.0
ORDERS = f"orders_{os.getpid()}"
Work = Task[[int], int]
numbers = count(1)


@pytest.fixture(scope="module")
def app() -> Iterator[Dibs]:
    with Dibs(new_url()) as app:
        yield app


@pytest.fixture
def work(app: Dibs) -> Work:
    """A task of a queue that nobody has used, so that each test sees its own tasks only."""
    number = next(numbers)

    @app.task(name=f"work-{number}", queue=f"queue-{number}")
    def work(number: int) -> int:
        return number

    return work


@pytest.fixture(params=DRIVERS)
def mine(request: pytest.FixtureRequest) -> Iterator[Mine]:
    with guest(request.param) as mine:
        yield mine


@pytest.fixture(scope="module", autouse=True)
def orders() -> None:
    with psycopg.connect(server_url()) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {ORDERS} (number int)")


def queue_of(work: Work) -> str:
    return work.definition.queue


def stored(app: Dibs, work: Work) -> int:
    return app.tasks.count(Filter(queue=queue_of(work))).count


def ordered(number: int) -> int:
    """How many orders of this number others can see."""
    with psycopg.connect(server_url()) as connection:
        found: Any = connection.execute(f"SELECT count(*) FROM {ORDERS} WHERE number = {number}").fetchone()
        return int(found[0])


def still_usable(mine: Mine) -> None:
    """What was written before is still there to be committed."""
    number = next(numbers) + 1_000_000
    mine.execute(f"INSERT INTO {ORDERS} VALUES ({number})")
    mine.commit()
    assert ordered(number) == 1


def test_there_if_it_commits_and_never_if_it_rolls_back(app: Dibs, work: Work, mine: Mine) -> None:
    work.enqueue(0)
    mine.execute(f"INSERT INTO {ORDERS} VALUES (1)")
    lost = [mine.enqueue(work, 1), mine.enqueue(work, 2, key="k"), mine.enqueue(work, 3, delay=60)]
    mine.rollback()
    assert stored(app, work) == 1
    for handle in lost:
        with pytest.raises(UnknownTask):
            handle.refresh()
    mine.begin()
    kept = [mine.enqueue(work, 1), mine.enqueue(work, 2, key="k"), mine.enqueue(work, 3, delay=60)]
    assert stored(app, work) == 1
    mine.commit()
    assert [handle.refresh().state for handle in kept] == [State.PENDING, State.PENDING, State.SCHEDULED]
    assert not any(handle.duplicate for handle in kept)
    assert not [
        finding for finding in app.hub.runner.run(app.hub.engine.check(full=True)) if finding.level is Level.ERROR
    ]


def test_the_first_thing_in_a_transaction_and_in_a_queue(app: Dibs, work: Work, mine: Mine) -> None:
    handle = mine.enqueue(work, 1)
    mine.commit()
    assert handle.refresh().state is State.PENDING


def test_a_savepoint_of_the_users_takes_it_back(app: Dibs, work: Work, mine: Mine) -> None:
    kept = mine.enqueue(work, 1)
    mine.execute("SAVEPOINT theirs")
    lost = [mine.enqueue(work, 2), mine.enqueue(work, 3, key="k")]
    mine.execute("ROLLBACK TO SAVEPOINT theirs")
    again = mine.enqueue(work, 4, key="k")
    mine.commit()
    assert [kept.refresh().state, again.refresh().state] == [State.PENDING] * 2
    assert stored(app, work) == 2
    with pytest.raises(UnknownTask):
        lost[0].refresh()


@pytest.mark.parametrize("kind", DRIVERS)
def test_autocommit_is_refused(app: Dibs, work: Work, kind: str) -> None:
    with guest(kind, autocommit=True) as mine:
        with pytest.raises(UsageError, match="no open transaction"):
            mine.enqueue(work, 1)
        assert stored(app, work) == 0


@pytest.mark.parametrize("kind", ["psycopg", "psycopg async"])
def test_a_transaction_that_was_begun_in_autocommit_mode_is_one(app: Dibs, work: Work, kind: str) -> None:
    with guest(kind, autocommit=True) as mine:
        mine.execute("BEGIN")
        mine.enqueue(work, 1)
        mine.execute("ROLLBACK")
        assert stored(app, work) == 0
        mine.execute("BEGIN")
        mine.enqueue(work, 1)
        mine.execute("COMMIT")
        assert stored(app, work) == 1


def test_a_failed_transaction_is_refused(app: Dibs, work: Work, mine: Mine) -> None:
    mine.enqueue(work, 1)
    mine.fail()
    for options in ({}, {"key": "k"}):
        with pytest.raises(UsageError, match="failed already"):
            mine.enqueue(work, 2, **options)
    mine.rollback()
    mine.begin()
    mine.enqueue(work, 3)
    mine.commit()
    assert stored(app, work) == 1


@pytest.mark.parametrize("options", [{}, {"key": "k"}])
@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("READ ONLY", "read-only"),
        ("ISOLATION LEVEL REPEATABLE READ", "REPEATABLE"),
        ("ISOLATION LEVEL SERIALIZABLE", "SERIALIZABLE"),
    ],
)
@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
def test_transactions_that_it_could_not_rely_on_are_refused(
    app: Dibs, work: Work, kind: str, mode: str, message: str, options: dict[str, Any]
) -> None:
    work.enqueue(0)
    with guest(kind) as mine:
        mine.execute(f"SET TRANSACTION {mode}")
        with pytest.raises(UsageError, match=message):
            mine.enqueue(work, 1, **options)
        if mode == "READ ONLY":
            mine.execute("SELECT 1")
            mine.commit()
        else:
            still_usable(mine)
        assert stored(app, work) == 1


@pytest.mark.parametrize("kind", DRIVERS)
def test_another_database_is_refused(app: Dibs, work: Work, kind: str, other_database: str) -> None:
    with guest(kind, other_database) as mine:
        mine.execute("CREATE TEMPORARY TABLE mine (number int)")
        with pytest.raises(UsageError, match=r"can't see the tasks|another database"):
            mine.enqueue(work, 1)
        mine.execute("INSERT INTO mine VALUES (1)")
        mine.commit()


@pytest.fixture(scope="module")
def other_database(app: Dibs) -> Iterator[str]:
    """A database of the same server that has a store of the same name, which is not the same."""
    name = f"dibs_other_{os.getpid()}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = server_url().replace("/postgres?", f"/{name}?")
    with Dibs(f"{url}&schema={app.url.rpartition('schema=')[2]}") as there:
        there.queues.list()
    yield url
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_another_database_without_any_store_is_refused(work: Work) -> None:
    with guest("psycopg", server_url().replace("/postgres?", "/template1?")) as mine:
        with pytest.raises(UsageError, match="can't see the tasks"):
            mine.enqueue(work, 1)
        mine.execute("SELECT 1")


def test_keys_are_held_as_ever(app: Dibs, work: Work, mine: Mine) -> None:
    first = mine.enqueue(work, 1, key="k")
    again = mine.enqueue(work, 1, key="k")
    assert (again.id, again.duplicate) == (first.id, True)
    with pytest.raises(IdempotencyConflict):
        mine.enqueue(work, 2, key="k")
    mine.commit()
    assert work.using(key="k").enqueue(1).duplicate
    assert stored(app, work) == 1


@pytest.mark.parametrize("kind", ASYNC)
def test_who_stops_waiting_can_go_on(app: Dibs, work: Work, kind: str) -> None:
    with guest("psycopg") as other, guest(kind) as mine:
        other.enqueue(work, 1, key="k")

        async def impatient() -> None:
            async with asyncio.timeout(1):  # the key is not to be had before the other one is done
                await work.using(connection=mine.connection, key="k").aenqueue(1)

        mine.enqueue(work, 2)
        with pytest.raises(TimeoutError):
            mine.run(impatient)  # type: ignore[attr-defined]
        mine.enqueue(work, 3)
        still_usable(mine)
        other.rollback()
    assert stored(app, work) == 2


def test_a_lock_timeout_of_the_users_leaves_the_transaction_usable(app: Dibs, work: Work) -> None:
    with guest("psycopg") as other, guest("psycopg") as mine:
        other.enqueue(work, 1, key="k")
        mine.execute("SET LOCAL lock_timeout = '100ms'")
        with pytest.raises(StoreBusy, match="others were in the way"):
            mine.enqueue(work, 1, key="k")
        mine.enqueue(work, 2)
        still_usable(mine)
        other.rollback()
    assert stored(app, work) == 1


@pytest.fixture(scope="module")
def clerk(app: Dibs) -> Iterator[str]:
    """A user who may do nothing yet."""
    name = f"clerk_{os.getpid()}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name}")
        yield name
        connection.execute(f"DROP OWNED BY {name}")
        connection.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("options", [{}, {"key": "k"}])
def test_a_user_without_rights_is_told_and_can_go_on(
    app: Dibs, work: Work, clerk: str, options: dict[str, Any]
) -> None:
    schema = app.url.rpartition("schema=")[2]
    work.enqueue(0)
    with guest("psycopg") as mine, psycopg.connect(server_url(), autocommit=True) as owner:
        owner.execute(f"DROP OWNED BY {clerk}")
        mine.execute("CREATE TEMPORARY TABLE mine (number int)")
        mine.execute(f"GRANT ALL ON mine TO {clerk}")
        mine.execute(f"SET LOCAL ROLE {clerk}")
        with pytest.raises(UsageError, match=f"permission denied for schema {schema}"):
            mine.enqueue(work, 1, **options)
        owner.execute(f"GRANT USAGE ON SCHEMA {schema} TO {clerk}")
        owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {clerk}")
        with pytest.raises(StoreUnavailable, match="lacks a right: permission denied for table"):
            mine.enqueue(work, 1, **options)
        mine.execute("INSERT INTO mine VALUES (1)")
        owner.execute(f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {clerk}")
        mine.enqueue(work, 1, **options)
        mine.commit()
    assert stored(app, work) == 2


def test_refusals_raise_and_leave_the_transaction_usable(app: Dibs, work: Work, mine: Mine) -> None:
    queue = queue_of(work)
    taken = work.enqueue(0)
    with pytest.raises(DuplicateTask):
        mine.enqueue(work, 1, id=taken.id)
    with pytest.raises(UnknownTask):
        mine.enqueue(work, 0, after=app.handle("0190a0b0-0000-7000-8000-000000000000"))
    mine.commit()
    app.queues.set(queue, max_depth=1)
    mine.begin()
    with pytest.raises(QueueFull):
        mine.enqueue(work, 1)
    mine.commit()
    app.queues.set(queue, max_depth=None, enqueue_rate=0.0001, enqueue_burst=1)
    mine.begin()
    mine.enqueue(work, 1)
    with pytest.raises(RateLimited):
        mine.enqueue(work, 2)
    mine.commit()
    app.queues.drain(queue)
    mine.begin()
    with pytest.raises(QueueDraining):
        mine.enqueue(work, 1)
    still_usable(mine)
    assert stored(app, work) == 2


def test_waiters_wake_when_it_commits(app: Dibs, work: Work, mine: Mine) -> None:
    topic = work_topic(queue_of(work))
    mine.enqueue(work, 0)
    mine.rollback()
    mine.begin()

    async def subscribed() -> Any:
        subscription = app.hub.engine.subscribe([topic])
        for _ in range(2):  # it listens now, and has looked again
            assert await subscription.wait(PATIENCE)
        return subscription

    app.hub.runner.serve()
    subscription = app.hub.runner.run(subscribed())
    try:
        mine.enqueue(work, 1)
        assert not app.hub.runner.run(subscription.wait(0.05))
        mine.commit()
        assert app.hub.runner.run(subscription.wait(PATIENCE))
    finally:
        app.hub.runner.run(closed(subscription))


async def closed(subscription: Any) -> None:
    subscription.close()


def test_a_worker_runs_it_after_the_commit(app: Dibs, work: Work, mine: Mine) -> None:
    with app.worker(queues=[queue_of(work)]):
        handle = mine.enqueue(work, 5)
        mine.commit()
        assert handle.result(PATIENCE) == 5


def test_large_and_odd_values_arrive_as_they_are(app: Dibs, mine: Mine) -> None:
    number = next(numbers)

    @app.task(name=f"echo-{number}", queue=f"queue-{number}")
    def echo(text: str) -> str:
        return text

    odd = "ä\\x00\"{},NULL'\n" + "x" * 100_000
    with app.worker(queues=[f"queue-{number}"]):
        plain = mine.enqueue(echo, odd, metadata={"a": [None, True]}, tenant='{"t\\', per="p q")
        keyed = mine.enqueue(echo, odd, key='k\\"ü{', requires=())
        mine.commit()
        assert (plain.result(PATIENCE), keyed.result(PATIENCE)) == (odd, odd)
    assert plain.refresh().metadata == {"a": [None, True]}


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_closed_connection_is_refused(work: Work, kind: str) -> None:
    mine = DRIVERS[kind](server_url())
    mine.open()
    mine.begin()
    if kind == "asyncpg pool":
        connection = mine.connection
        mine.run(lambda: mine.pool.release(connection))  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="closed"):
            mine.enqueue(work, 1)
        mine.connection = mine.run(mine.pool.acquire)  # type: ignore[attr-defined]
    elif kind in ("psycopg", "psycopg async", "asyncpg"):
        mine.run(connection_close(mine)) if kind in ASYNC else mine.connection.close()  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="closed"):
            mine.enqueue(work, 1)
    elif kind in ("sqlalchemy", "sqlalchemy async", "sqlalchemy async psycopg"):
        mine.run(connection_close(mine)) if kind in ASYNC else mine.connection.close()  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="SQLAlchemy can't use"):
            mine.enqueue(work, 1)
    mine.close()


def connection_close(mine: Mine) -> Any:
    return mine.connection.close


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_blocking_connection_is_not_for_async_code(work: Work, kind: str) -> None:
    with guest(kind) as mine:
        with pytest.raises(UsageError, match="blocks"):
            asyncio.run(work.using(connection=mine.connection).aenqueue(1))
        mine.execute("SELECT 1")


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_connection_is_not_for_blocking_code(work: Work, kind: str) -> None:
    with guest(kind) as mine:
        with pytest.raises(UsageError, match="async connection"):
            work.using(connection=mine.connection).enqueue(1)
        mine.execute("SELECT 1")


def test_other_things_are_refused_by_name(work: Work) -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(server_url()))
    with psycopg.connect(server_url()) as connection:
        things = [object(), "postgresql://…", engine, connection.cursor()]
        for thing in things:
            with pytest.raises(UsageError, match=r"connection= can't be a .* It may be of psycopg 3"):
                work.using(connection=thing).enqueue(1)
    engine.dispose()

    async def pools() -> None:
        async with asyncpg.create_pool(server_url(), min_size=1, max_size=1) as pool:
            with pytest.raises(UsageError, match=r"can't be a asyncpg\.pool\.Pool"):
                await work.using(connection=pool).aenqueue(1)

    asyncio.run(pools())


def test_a_driver_that_is_not_known_is_named(work: Work) -> None:
    class Connection:
        """As psycopg2 would have it."""

    Connection.__module__ = "psycopg2.extensions"
    with pytest.raises(UsageError, match=r"psycopg2\.extensions"):
        work.using(connection=Connection()).enqueue(1)


def test_blocking_sqlalchemy_needs_no_greenlet() -> None:
    program = (
        "import sys\n"
        "sys.modules['greenlet'] = None\n"
        "from sqlalchemy.orm import Session\n"
        "from dibs.engines.postgres.user_connections import unwrap\n"
        "assert unwrap(Session()).waits is False\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nothing_is_imported_that_the_user_does_not_use() -> None:
    program = (
        "import sys\n"
        "from dibs.engines.postgres import joining\n"
        "found = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not found & {'psycopg', 'sqlalchemy', 'django'}, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_pipeline_is_refused(work: Work) -> None:
    with (
        psycopg.connect(server_url()) as connection,
        connection.pipeline(),
        pytest.raises(UsageError, match="pipeline"),
    ):
        work.using(connection=connection).enqueue(1)


def test_how_the_user_has_set_up_psycopg_does_not_matter(app: Dibs, work: Work) -> None:
    from psycopg.adapt import Dumper, Loader
    from psycopg.rows import dict_row

    class Shouting(Loader):
        def load(self, data: Any) -> str:
            raise AssertionError("a loader of the user's was asked")

    class Refusing(Dumper):
        def dump(self, obj: Any) -> bytes:
            raise AssertionError("a dumper of the user's was asked")

    class OwnCursor(psycopg.Cursor[Any]):
        def execute(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("a cursor of the user's was asked")

    with psycopg.connect(server_url(), row_factory=dict_row, cursor_factory=OwnCursor) as connection:  # type: ignore[arg-type]
        for kind in ("int8", "text", "uuid", "bytea"):
            connection.adapters.register_loader(kind, Shouting)
        for python in (str, int, bytes, list, bool):
            connection.adapters.register_dumper(python, Refusing)
        raw = psycopg.RawCursor(connection)
        raw.execute(b"SET LOCAL bytea_output = 'escape'")
        raw.execute(b"SET LOCAL client_encoding = 'LATIN1'")
        raw.execute(b"SET LOCAL search_path = ''")
        handles = [work.using(connection=connection, key=key).enqueue(1) for key in (None, "ü")]
        connection.commit()
    assert [handle.refresh().state for handle in handles] == [State.PENDING] * 2
    assert work.using(key="ü").enqueue(1).duplicate


def test_djangos_own_connection_and_atomic_blocks(app: Dibs, work: Work) -> None:
    set_up_django()
    from django.db import connection, transaction

    try:
        with pytest.raises(UsageError, match=r"transaction\.atomic"):
            work.using(connection=connection).enqueue(0)
        with transaction.atomic():
            kept = work.using(connection=connection).enqueue(1)
            with transaction.atomic():
                lost = work.using(connection=connection, key="k").enqueue(2)
                transaction.set_rollback(True)
        assert kept.refresh().state is State.PENDING
        with pytest.raises(UnknownTask):
            lost.refresh()
        with transaction.atomic():
            transaction.set_rollback(True)  # as an error inside does
            with pytest.raises(UsageError, match="failed already"):
                work.using(connection=connection).enqueue(3)
        assert stored(app, work) == 1
    finally:
        connection.close()
