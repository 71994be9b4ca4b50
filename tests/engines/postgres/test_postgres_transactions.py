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

from dibs import Dibs, State, Task
from dibs.client.tasks import Filter
from dibs.engines.topics import work_topic
from dibs.errors import (
    StoreBusy,
    StoreUnavailable,
    UsageError,
)
from servers.postgres import new_url, server_url
from servers.user_connections import ASYNC, DRIVERS, Mine, guest

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
