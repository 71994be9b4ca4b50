"""Enqueueing inside the user's own SQLite transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dibs import Dibs, State, Task
from dibs.errors import DuplicateTask, QueueFull, UnknownTask, UsageError

from .conftest import TIMEOUT

Work = Task[[int], int]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def app(file: Path) -> Iterator[Dibs]:
    with Dibs(f"sqlite:///{file}") as app:
        yield app


@pytest.fixture
def work(app: Dibs) -> Work:
    @app.task
    def work(number: int) -> int:
        return number

    return work


@pytest.fixture
def connection(app: Dibs, file: Path) -> Iterator[sqlite3.Connection]:
    app.queues.list()  # the file is Dibs's before it is anybody else's
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        yield connection


def test_it_appears_when_they_commit(app: Dibs, work: Work, connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (1)")
    handle = work.using(connection=connection).enqueue(1)
    with pytest.raises(UnknownTask):
        handle.refresh()
    connection.execute("COMMIT")
    assert handle.refresh().state is State.PENDING


def test_it_never_appears_when_they_roll_back(app: Dibs, work: Work, connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    handle = work.using(connection=connection, key="k").enqueue(1)
    connection.execute("ROLLBACK")
    with pytest.raises(UnknownTask):
        handle.refresh()
    assert app.tasks.count().count == 0
    assert work.using(key="k").enqueue(2).duplicate is False  # the key is free as well


def test_a_worker_runs_it_after_the_commit(app: Dibs, work: Work, connection: sqlite3.Connection) -> None:
    with app.worker():
        connection.execute("BEGIN IMMEDIATE")
        handle = work.using(connection=connection).enqueue(5)
        connection.execute("COMMIT")
        assert handle.result(TIMEOUT) == 5


def test_it_works_from_async_code(app: Dibs, work: Work, connection: sqlite3.Connection) -> None:
    async def use() -> State:
        connection.execute("BEGIN IMMEDIATE")
        handle = await work.using(connection=connection).aenqueue(1)
        connection.execute("COMMIT")
        return (await handle.arefresh()).state

    assert asyncio.run(use()) is State.PENDING


def test_refusals_are_the_same(app: Dibs, work: Work, connection: sqlite3.Connection) -> None:
    app.queues.set("default", max_depth=1)
    first = work.enqueue(1)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(QueueFull):
        work.using(connection=connection).enqueue(2)
    with pytest.raises(DuplicateTask):
        work.using(connection=connection, id=first.id).enqueue(3)
    connection.execute("COMMIT")
    assert app.tasks.count().count == 1


def test_it_needs_an_open_transaction(work: Work, connection: sqlite3.Connection) -> None:
    with pytest.raises(UsageError, match="transaction"):
        work.using(connection=connection).enqueue(1)


def test_it_needs_the_same_file(work: Work, connection: sqlite3.Connection, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        with pytest.raises(UsageError):
            work.using(connection=other).enqueue(1)
