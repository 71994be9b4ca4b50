"""Connections of the user's own, one class for each way in which people come to have one.

All of them look alike to a test, which is plain blocking code: those that have to be awaited bring a loop of their own.
Those of SQLAlchemy and Django lead to a server or to a SQLite file, by the URL alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiosqlite
import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dibs import Handle, Task
from servers.postgres import server_url

__all__ = ["ASYNC", "DRIVERS", "SQLITE", "Mine", "Waiting", "django_settings", "guest", "is_file", "set_up_django"]


def is_file(url: str) -> bool:
    """Whether this is the path of a SQLite file, rather than the address of a server."""
    return "://" not in url


class Mine:
    """A connection with a transaction that the test begins and ends. `connection` is what is handed to Dibs."""

    connection: Any

    def __init__(self, url: str, autocommit: bool = False) -> None:
        self.url = url
        self.autocommit = autocommit

    def open(self) -> None: ...
    def close(self) -> None: ...
    def begin(self) -> None:
        """Where the driver does not by itself."""

    def execute(self, sql: str) -> None: ...
    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")

    def fail(self) -> None:
        """Have a statement fail, which the transaction does not survive."""
        try:
            self.execute("SELECT 1 / 0")
        except Exception as error:
            assert "division by zero" in str(error)  # noqa: PT017  # each driver has a class of its own

    def enqueue(self, task: Task[..., Any], *args: Any, **options: Any) -> Handle[Any]:
        return task.using(connection=self.connection, **options).enqueue(*args)


class Psycopg(Mine):
    def open(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=self.autocommit)

    def close(self) -> None:
        self.connection.close()

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


class SqlAlchemy(Mine):
    def open(self) -> None:
        to_server = None if is_file(self.url) else lambda: psycopg.connect(self.url)
        self.engine = sqlalchemy.create_engine(
            f"sqlite:///{self.url}" if to_server is None else "postgresql+psycopg://",
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT" if self.autocommit else None,
            **({} if to_server is None else {"creator": to_server}),
        )
        self.connection = self.make()

    def make(self) -> Any:
        return self.engine.connect()

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()

    def execute(self, sql: str) -> None:
        self.connection.execute(sqlalchemy.text(sql))

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


class SqlAlchemySession(SqlAlchemy):
    def make(self) -> Any:
        return Session(self.engine)


def django_settings(url: str) -> dict[str, Any]:
    """A database as Django wants to have it described."""
    if is_file(url):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url}
    parts = urlsplit(url)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.strip("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": options.get("host", parts.hostname or ""),
        "PORT": options.get("port", parts.port or ""),
    }


def set_up_django() -> None:
    """Once in a process; nothing else in it uses Django."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(LOGGING_CONFIG=None)
        django.setup()


class Django(Mine):
    def open(self) -> None:
        set_up_django()
        from django.db.utils import ConnectionHandler

        self.connection = ConnectionHandler({"default": django_settings(self.url)})["default"]

    def close(self) -> None:
        self.connection.close()

    def begin(self) -> None:
        self.connection.set_autocommit(False)

    def execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


class Waiting(Mine):
    """One that is awaited, on a loop of its own."""

    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.run(self.aopen)

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def awaited() -> Any:
            return await work()

        return self.runner.run(awaited())

    def close(self) -> None:
        self.run(self.aclose)
        self.runner.close()

    async def aopen(self) -> None: ...
    async def aclose(self) -> None:
        await self.connection.close()

    def execute(self, sql: str) -> None:
        self.run(lambda: self.connection.execute(sql))

    def commit(self) -> None:
        self.run(self.connection.commit)

    def rollback(self) -> None:
        self.run(self.connection.rollback)

    def enqueue(self, task: Task[..., Any], *args: Any, **options: Any) -> Handle[Any]:
        found: Handle[Any] = self.run(lambda: task.using(connection=self.connection, **options).aenqueue(*args))
        return found


class PsycopgAsync(Waiting):
    async def aopen(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.url, autocommit=self.autocommit)


class Asyncpg(Waiting):
    async def aopen(self) -> None:
        self.connection = await asyncpg.connect(self.url)

    def begin(self) -> None:
        self.execute("BEGIN")

    commit = Mine.commit
    rollback = Mine.rollback


class AsyncpgPool(Asyncpg):
    async def aopen(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.connection = await self.pool.acquire()

    async def aclose(self) -> None:
        await self.pool.release(self.connection)
        await self.pool.close()


class Sqlite3(Mine):
    def open(self) -> None:
        self.connection = sqlite3.connect(self.url, isolation_level=None if self.autocommit else "")

    close, execute, commit, rollback = Psycopg.close, Psycopg.execute, Psycopg.commit, Psycopg.rollback


class Aiosqlite(Waiting):
    async def aopen(self) -> None:
        self.connection = await aiosqlite.connect(self.url, isolation_level=None if self.autocommit else "")


class SqlAlchemyAsync(Waiting):
    """On asyncpg, for which SQLAlchemy begins its transactions late."""

    async def aopen(self) -> None:
        self.engine = self.make_engine("AUTOCOMMIT" if self.autocommit else None)
        self.connection = await self.make()

    def make_engine(self, isolation: Any) -> Any:
        if is_file(self.url):
            return create_async_engine(f"sqlite+aiosqlite:///{self.url}", poolclass=NullPool, isolation_level=isolation)
        return create_async_engine(
            "postgresql+asyncpg://",
            async_creator=lambda: asyncpg.connect(self.url),
            poolclass=NullPool,
            isolation_level=isolation,
        )

    async def make(self) -> Any:
        return await self.engine.connect()

    async def aclose(self) -> None:
        await self.connection.close()
        await self.engine.dispose()

    def execute(self, sql: str) -> None:
        self.run(lambda: self.connection.execute(sqlalchemy.text(sql)))


class SqlAlchemyAsyncSession(SqlAlchemyAsync):
    async def make(self) -> Any:
        return AsyncSession(self.engine)


class SqlAlchemyAsyncPsycopg(SqlAlchemyAsync):
    def make_engine(self, isolation: Any) -> Any:
        return create_async_engine(
            "postgresql+psycopg_async://",
            async_creator=lambda: psycopg.AsyncConnection.connect(self.url),
            poolclass=NullPool,
            isolation_level=isolation,
        )


BLOCKING: dict[str, type[Mine]] = {
    "psycopg": Psycopg,
    "sqlalchemy": SqlAlchemy,
    "sqlalchemy session": SqlAlchemySession,
    "django": Django,
}
ASYNC: dict[str, type[Mine]] = {
    "psycopg async": PsycopgAsync,
    "asyncpg": Asyncpg,
    "asyncpg pool": AsyncpgPool,
    "sqlalchemy async": SqlAlchemyAsync,
    "sqlalchemy async session": SqlAlchemyAsyncSession,
    "sqlalchemy async psycopg": SqlAlchemyAsyncPsycopg,
}
DRIVERS = {**BLOCKING, **ASYNC}

SQLITE: dict[str, type[Mine]] = {
    "sqlite3": Sqlite3,
    "sqlalchemy": SqlAlchemy,
    "sqlalchemy session": SqlAlchemySession,
    "django": Django,
    "aiosqlite": Aiosqlite,
    "sqlalchemy async": SqlAlchemyAsync,
    "sqlalchemy async session": SqlAlchemyAsyncSession,
}


@contextmanager
def guest(kind: str, url: str | None = None, *, autocommit: bool = False) -> Iterator[Mine]:
    """An open connection, with a transaction unless the driver begins one by itself, or none is wanted."""
    url = url or server_url()
    mine = (SQLITE if is_file(url) else DRIVERS)[kind](url, autocommit)
    mine.open()
    try:
        if not autocommit:
            mine.begin()
        yield mine
    finally:
        mine.close()
