"""Stores whose rows are written to behind the engine's back."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import msgspec

from dibs.engines.redis import codec
from servers import redis
from servers.postgres import SchemaPool, server_url

__all__ = ["ENGINES", "Damaged", "OnSqlite", "damaged"]

ENGINES = ("sqlite", "postgres", "redis")


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
        """What is known of a task in `pending` and `running` is written there too."""
        if table != "tasks":
            return self.set_own(table, where, columns)
        ids = [each["id"] for each in self.execute(f"SELECT id FROM {self.schema}.tasks WHERE {where}")]
        chosen = f"id = ANY ('{{{','.join(map(str, ids))}}}')"
        if "state" in columns:
            self.execute(f"DELETE FROM {self.schema}.pending WHERE {chosen}")
        for other in ("pending", "running"):
            self.set_own(other, chosen, columns)
        return self.set_own(table, where, columns)

    def set_own(self, table: str, where: str, columns: dict[str, Any]) -> int:
        query = "SELECT column_name FROM information_schema.columns WHERE table_schema = $1 AND table_name = $2"
        known = {each[0] for each in self.execute(query, self.schema, table)}
        columns = {name: value for name, value in columns.items() if name in known}
        if not columns:
            return 0
        parts = ", ".join(f"{name} = ${place}" for place, name in enumerate(columns, 1))
        sql = f"UPDATE {self.schema}.{table} SET {parts} WHERE {where} RETURNING 1"
        return len(self.execute(sql, *columns.values()))

    def row(self, table: str, where: str) -> tuple[Any, ...]:
        also = f"LEFT JOIN {self.schema}.running USING (id)" if table == "tasks" else ""
        (found,) = self.execute(f"SELECT * FROM {self.schema}.{table} {also} WHERE {where}")
        return tuple(found)

    def json(self, text: str) -> Any:
        return text.encode()


COLUMNS = {
    "queues": ("name", "state", "settings", "epoch"),
    "tracks": ("number", "queue", "name", "requires", "lane", "epoch", "fair", "band"),
    "chores": ("name", "record", "cursor"),
    "audit": ("n", "at", "entry"),
    "workers": ("id", "state", "expires_at", "presence", "record"),
    "minutes": ("minute", "worker", "queue", "tier", "record"),
    "schedules": ("name", "next_fire_at", "paused", "record"),
    "steps": ("n", "id", "ended_at", "step"),
    "edges": ("dependent", "slot", "prerequisite", "rule", "weight", "open"),
    "history": ("task", "n", "entry"),
}
"""Of Redis' tables, without those of tasks."""
LINE = (
    "state", "rank", "ready_at", "due_at", "rerank_at", "lease", "version", "gated", "created_at", "sequence",
    "started_at", "worker", "cancel", "progress", "facts",
)  # fmt: skip
LAST_LINE = ("state", "finished_at", "lease", "started_at", "worker", "sequence", "progress", "length")


class OnRedis:
    """Rows are JSON arrays in hashes, and tasks have lines before and behind theirs (`dibs.engines.redis.rows`)."""

    def __init__(self, prefix: str) -> None:
        self.base = f"{{{prefix}}}:"
        self.url = f"{redis.server().url}?prefix={prefix}"

    def command(self, name: str, key: str, *words: object) -> Any:
        return redis.server().command(name, f"{self.base}{key}", *words)

    def set(self, table: str, where: str, **columns: Any) -> int:
        if table == "store":
            self.command("HSET", "store", *(word for pair in columns.items() for word in pair))
            return 1
        changed = 0
        for key in self.hashes(table):
            rows = self.all(key)
            for field in matching(table, rows, where):
                self.put(table, key, field, rows[field], columns)
                changed += 1
        return changed

    def row(self, table: str, where: str) -> tuple[Any, ...]:
        (found,) = [
            (field, rows[field], self.command("HGET", "running", field))
            for key in self.hashes(table)
            for rows in [self.all(key)]
            for field in matching(table, rows, where)
        ]
        return found

    def json(self, text: str) -> Any:
        return text

    def hashes(self, table: str) -> list[str]:
        days = self.command("HKEYS", "days")
        return [f"finished:{day}" for day in days] if table == "finished" else [table]

    def all(self, key: str) -> dict[str, str]:
        """Each byte is a character here: some of what is stored is no text."""
        rows = redis.pairs(self.command("HGETALL", key))
        return {field: value.encode(errors="surrogateescape").decode("latin-1") for field, value in rows.items()}

    def put(self, table: str, key: str, field: str, value: str, columns: dict[str, Any]) -> None:
        if table in COLUMNS:
            row = {**dict(zip(COLUMNS[table], json.loads(value), strict=True)), **columns}
            changed = json.dumps([*row.values()])
        else:
            if table == "tasks" and "progress" in columns and (run := self.command("HGET", "running", field)):
                number = run.partition("\n")[0]
                self.command("HSET", "running", field, f"{number}\n0{columns['progress']}")
            changed = self.task(table, value, columns)
        self.command("HSET", key, field, changed.encode("latin-1"))
        if table == "edges" and "rule" in columns:
            self.follow(field.partition("\0")[0], columns["rule"])

    def follow(self, dependent: str, rule: str) -> None:
        """The rule of an edge is also in the index by which its end is told."""
        for member in self.command("ZRANGE", "followed", 0, -1):
            *facts, _ = codec.decode("sisis", member.encode())
            if facts[2] == dependent:
                self.command("ZREM", "followed", member)
                self.command("ZADD", "followed", 0, codec.encode("sisis", (*facts, rule)))

    def task(self, table: str, value: str, columns: dict[str, Any]) -> str:
        """The value of a task with other columns. They are written as they are, be they JSON or not."""
        end = result = ""
        if table != "tasks":
            first, _, rest = value.partition("\n")
            length = json.loads(first)[-1] or 0
            result, value = rest[:length], rest[length:]
            end = f"{rewritten(first, LAST_LINE, columns)}\n"
        span, track, length = value.partition("\n")[0].split(" ")
        rest = value.partition("\n")[2]
        line, _, args = rest[int(length) :].partition("\n")
        line = rewritten(line, LINE, columns)
        head = f"{span} {columns.get('track', track)} {length}\n{rest[: int(length)]}"
        return f"{end}{result}{head}{line}\n{columns.get('args', args)}"


def matching(table: str, rows: dict[str, str], where: str) -> list[str]:
    """The fields of a hash whose rows a condition selects."""
    names = COLUMNS.get(table, ("id",))
    own = sqlite3.connect(":memory:")
    try:
        own.execute(f"CREATE TABLE found (field, {', '.join(names)})")
        for field, value in rows.items():
            row = json.loads(value) if table in COLUMNS else [field]
            own.execute(f"INSERT INTO found VALUES (?{', ?' * len(names)})", [field, *row])
        return [field for (field,) in own.execute(f"SELECT field FROM found WHERE {where}")]
    finally:
        own.close()


def rewritten(line: str, names: Sequence[str], columns: dict[str, Any]) -> str:
    """A JSON array with other elements, given as JSON, or as a name."""
    parts = [bytes(each).decode() for each in msgspec.json.decode(line, type=list[msgspec.Raw])]
    for place, name in enumerate(names):
        if name in columns:
            parts[place] = json.dumps(columns[name]) if name == "state" else str(columns[name])
    return f"[{','.join(parts)}]"


@contextmanager
def damaged(engine: str, folder: Path) -> Iterator[Damaged]:
    if engine == "sqlite":
        yield OnSqlite(folder / "tasks.db")
        return
    if engine == "redis":
        yield OnRedis(f"damaged{next(prefixes)}")
        return
    schema = schema_pool().take()
    yield OnPostgres(schema)
    schema_pool().put_back(schema)


prefixes = count(1)


@cache
def schema_pool() -> SchemaPool:
    return SchemaPool(server_url())
