"""Stores whose rows are written to behind the engine's back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from servers.postgres import SchemaPool, server_url

__all__ = ["ENGINES", "Damaged", "OnSqlite", "damaged"]

ENGINES = ("sqlite", "postgres")


class Damaged(Protocol):
    """A store, and the way to its rows. Tables are named without what the engine puts in front."""

    url: str

    def set(self, table: str, where: str, **columns: Any) -> int:
        """Write columns of the rows for which a condition holds; how many these were."""
        ...

    def row(self, table: str, where: str) -> tuple[Any, ...]: ...

    def json(self, text: str) -> Any:
        """What the engine keeps as JSON, as its column takes it."""
        ...


class OnSqlite:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        own = sqlite3.connect(self.path, timeout=10)
        try:
            with own:
                return own.execute(sql, parameters).fetchall()
        finally:
            own.close()

    def set(self, table: str, where: str, **columns: Any) -> int:
        parts = ", ".join(f"{name} = ?" for name in columns)
        return len(self.execute(f"UPDATE dibs_{table} SET {parts} WHERE {where} RETURNING 1", *columns.values()))

    def row(self, table: str, where: str) -> tuple[Any, ...]:
        (found,) = self.execute(f"SELECT * FROM dibs_{table} WHERE {where}")
        return found

    def json(self, text: str) -> Any:
        return text


class OnPostgres:
    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.url = f"{server_url()}&schema={schema}"

    def execute(self, sql: str, *parameters: Any) -> list[Any]:
        async def act() -> list[Any]:
            own = await asyncpg.connect(server_url())
            try:
                return await own.fetch(sql, *parameters)
            finally:
                await own.close()

        with ThreadPoolExecutor(1) as elsewhere:  # tests have a loop of their own
            return elsewhere.submit(asyncio.run, act()).result()

    def set(self, table: str, where: str, **columns: Any) -> int:
        parts = ", ".join(f"{name} = ${place}" for place, name in enumerate(columns, 1))
        sql = f"UPDATE {self.schema}.{table} SET {parts} WHERE {where} RETURNING 1"
        return len(self.execute(sql, *columns.values()))

    def row(self, table: str, where: str) -> tuple[Any, ...]:
        (found,) = self.execute(f"SELECT * FROM {self.schema}.{table} WHERE {where}")
        return tuple(found)

    def json(self, text: str) -> Any:
        return text.encode()


@contextmanager
def damaged(engine: str, folder: Path) -> Iterator[Damaged]:
    if engine == "sqlite":
        yield OnSqlite(folder / "tasks.db")
        return
    schema = schema_pool().take()
    yield OnPostgres(schema)
    schema_pool().put_back(schema)


@cache
def schema_pool() -> SchemaPool:
    return SchemaPool(server_url())
