"""Enqueueing inside a transaction of the user's own: with every driver and framework, on each store that has them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from dibs import Dibs, Handle, State, Task
from dibs.client.tasks import Filter
from dibs.engines.values import Level
from dibs.errors import (
    DuplicateTask,
    IdempotencyConflict,
    QueueDraining,
    QueueFull,
    RateLimited,
    UnknownTask,
    UsageError,
)
from servers.postgres import new_url, server_url
from servers.user_connections import DRIVERS, SQLITE, Mine, Waiting, django_settings, guest, set_up_django

PATIENCE = 30.0
ORDERS = f"user_orders_{os.getpid()}"
KINDS = [("postgres", kind) for kind in DRIVERS] + [("sqlite", kind) for kind in SQLITE]
Work = Task[[int], int]
numbers = count(1)


class Shop(Struct):
    """An app on a store, and how the user reaches the database that it is in."""

    app: Dibs
    url: str

    def guest(self, kind: str, *, autocommit: bool = False) -> Any:
        return guest(kind, self.url, autocommit=autocommit)

    def ordered(self, number: int) -> int:
        """How many orders of this number others can see."""
        with self.guest("sqlalchemy") as other:
            found = other.connection.exec_driver_sql(f"SELECT count(*) FROM {ORDERS} WHERE number = {number}")
            return int(found.scalar())

    def still_usable(self, mine: Mine) -> None:
        """What was written before is still there to be committed."""
        number = next(numbers) + 1_000_000
        mine.execute(f"INSERT INTO {ORDERS} VALUES ({number})")
        mine.commit()
        assert self.ordered(number) == 1


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Shop]]:
    file = tmp_path_factory.mktemp("user") / "shop.db"
    with Dibs(new_url()) as on_server, Dibs(f"sqlite:///{file}") as on_file:
        on_file.queues.list()
        shops = {"postgres": Shop(on_server, server_url()), "sqlite": Shop(on_file, str(file))}
        for shop in shops.values():
            with shop.guest("sqlalchemy") as mine:
                mine.execute(f"CREATE TABLE {ORDERS} (number int)")
                mine.commit()
        yield shops


def kind_of(param: tuple[str, str]) -> str:
    return "-".join(param).replace(" ", "-")


def on(*kinds: tuple[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("chosen", kinds, ids=kind_of)


@pytest.fixture(params=KINDS, ids=kind_of)
def chosen(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def kind(chosen: tuple[str, str]) -> str:
    return chosen[1]


@pytest.fixture
def shop(chosen: tuple[str, str], shops: dict[str, Shop]) -> Shop:
    return shops[chosen[0]]


@pytest.fixture
def app(shop: Shop) -> Dibs:
    return shop.app


@pytest.fixture
def mine(shop: Shop, kind: str) -> Iterator[Mine]:
    with shop.guest(kind) as mine:
        yield mine


@pytest.fixture
def work(app: Dibs) -> Work:
    """A task of a queue that nobody has used, so that each test sees its own tasks only."""
    number = next(numbers)

    @app.task(name=f"work-{number}", queue=f"queue-{number}")
    def work(number: int) -> int:
        return number

    return work


def queue_of(work: Work) -> str:
    return work.definition.queue


def stored(app: Dibs, work: Work) -> int:
    return app.tasks.count(Filter(queue=queue_of(work))).count


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


def test_autocommit_is_refused(shop: Shop, app: Dibs, work: Work, kind: str) -> None:
    with shop.guest(kind, autocommit=True) as mine:
        with pytest.raises(UsageError, match="no open transaction"):
            mine.enqueue(work, 1)
        assert stored(app, work) == 0


def test_keys_are_held_as_ever(app: Dibs, work: Work, mine: Mine) -> None:
    first = mine.enqueue(work, 1, key="k")
    again = mine.enqueue(work, 1, key="k")
    assert (again.id, again.duplicate) == (first.id, True)
    with pytest.raises(IdempotencyConflict):
        mine.enqueue(work, 2, key="k")
    mine.commit()
    assert work.using(key="k").enqueue(1).duplicate
    assert stored(app, work) == 1


def test_refusals_raise_and_leave_the_transaction_usable(shop: Shop, app: Dibs, work: Work, mine: Mine) -> None:
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
    shop.still_usable(mine)
    assert stored(app, work) == 2


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


def test_a_closed_connection_is_refused(shop: Shop, work: Work, chosen: tuple[str, str], kind: str) -> None:
    mine = (SQLITE if chosen[0] == "sqlite" else DRIVERS)[kind](shop.url)
    mine.open()
    mine.begin()
    if kind == "asyncpg pool":
        connection = mine.connection
        mine.run(lambda: mine.pool.release(connection))  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="closed"):
            mine.enqueue(work, 1)
        mine.connection = mine.run(mine.pool.acquire)  # type: ignore[attr-defined]
    elif kind in ("sqlalchemy", "sqlalchemy async", "sqlalchemy async psycopg"):
        close_early(mine)
        with pytest.raises(UsageError, match="SQLAlchemy can't use"):
            mine.enqueue(work, 1)
    elif kind != "django" and "session" not in kind:  # these open another
        close_early(mine)
        with pytest.raises(UsageError, match=r"closed|no active connection"):
            mine.enqueue(work, 1)
    mine.close()


def close_early(mine: Mine) -> None:
    mine.run(mine.connection.close) if isinstance(mine, Waiting) else mine.connection.close()


def test_what_blocks_is_not_for_async_code_nor_the_other_way_round(
    chosen: tuple[str, str], work: Work, mine: Mine
) -> None:
    mine.execute("SELECT 1")
    if isinstance(mine, Waiting):
        with pytest.raises(UsageError, match="async connection"):
            work.using(connection=mine.connection).enqueue(1)
    elif chosen != ("sqlite", "sqlite3"):  # that one is not worth a thread
        with pytest.raises(UsageError, match="blocks"):
            asyncio.run(work.using(connection=mine.connection).aenqueue(1))
    mine.execute("SELECT 1")


class Model(DeclarativeBase):
    pass


class Order(Model):
    __tablename__ = f"orm_{ORDERS}"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@on(("postgres", "sqlalchemy"), ("sqlite", "sqlalchemy"))
def test_a_model_and_its_task_live_and_die_together(app: Dibs, work: Work, mine: Mine) -> None:
    """With an ORM nothing is sent before it flushes, so Dibs may be the first to write."""
    Model.metadata.create_all(mine.engine)  # type: ignore[attr-defined]
    ordering = sessionmaker(mine.engine)  # type: ignore[attr-defined]

    def place(item: str, *, fail: bool = False) -> Handle[int]:
        with ordering.begin() as session:
            order = Order(item=item)
            session.add(order)
            early = work.using(connection=session).enqueue(0)
            session.flush()
            work.using(connection=session, key=item).enqueue(order.id)
            with session.begin_nested() as nested:
                session.add(Order(item="another"))
                work.using(connection=session).enqueue(-1)
                nested.rollback()
            if fail:
                raise LookupError(item)
        return early

    with pytest.raises(LookupError):
        place("tea", fail=True)
    assert stored(app, work) == 0
    assert place("tea").refresh().state is State.PENDING
    with ordering() as session:
        assert session.scalars(select(Order.item)).all() == ["tea"]
    assert stored(app, work) == 2
    Model.metadata.drop_all(mine.engine)  # type: ignore[attr-defined]


@on(("postgres", "django"), ("sqlite", "django"))
def test_djangos_own_connection_and_atomic_blocks(shop: Shop, chosen: tuple[str, str], app: Dibs, work: Work) -> None:
    set_up_django()
    from django.db import connections, transaction

    alias = chosen[0]
    connections.settings[alias] = django_settings(shop.url)
    connections.settings = connections.configure_settings(connections.settings)
    connection = connections[alias]
    try:
        with pytest.raises(UsageError, match=r"transaction\.atomic"):
            work.using(connection=connection).enqueue(0)
        with transaction.atomic(alias):
            kept = work.using(connection=connection).enqueue(1)
            with transaction.atomic(alias):
                lost = work.using(connection=connection, key="k").enqueue(2)
                transaction.set_rollback(True, alias)
        assert kept.refresh().state is State.PENDING
        with pytest.raises(UnknownTask):
            lost.refresh()
        with transaction.atomic(alias):
            transaction.set_rollback(True, alias)  # as an error inside does
            with pytest.raises(UsageError, match="failed already"):
                work.using(connection=connection).enqueue(3)
        assert stored(app, work) == 1
    finally:
        connection.close()
