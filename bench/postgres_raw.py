"""Plain asyncpg loops: what the same writes cost the database without a queue around them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg

__all__ = ["LOOPS", "Loop"]

BATCH = 100
BULK = 1000
LAYOUT = """
CREATE TABLE tasks (id uuid PRIMARY KEY, stream integer NOT NULL, state text NOT NULL, rank bigint NOT NULL,
                    lease integer NOT NULL, lease_expires_at bigint, started_at bigint, worker text,
                    args bytea NOT NULL, facts bytea NOT NULL) WITH (fillfactor = 80);
CREATE INDEX pending ON tasks (stream, rank, id) WHERE state = 'pending';
CREATE TABLE archive (id uuid NOT NULL, stream integer NOT NULL, state text NOT NULL, rank bigint NOT NULL,
                      lease integer NOT NULL, started_at bigint, finished_at bigint NOT NULL, worker text,
                      result bytea, args bytea NOT NULL, facts bytea NOT NULL);
CREATE INDEX archive_ids ON archive (id);
"""
COLUMNS = ("id", "stream", "state", "rank", "lease", "args", "facts")
INSERT = "INSERT INTO tasks (id, stream, state, rank, lease, args, facts) VALUES ($1, $2, $3, $4, $5, $6, $7)"
UNNEST = """
INSERT INTO tasks (id, stream, state, rank, lease, args, facts)
SELECT * FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::bigint[], $5::integer[], $6::bytea[], $7::bytea[])
"""
CLAIM = """
WITH picked AS MATERIALIZED (
    SELECT id FROM tasks WHERE stream = 1 AND state = 'pending' ORDER BY rank, id LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE tasks SET state = 'running', lease = lease + 1, lease_expires_at = $2, started_at = $2, worker = 'worker-1'
WHERE id = ANY (ARRAY(SELECT id FROM picked))
RETURNING id, lease, args, facts
"""
DELETE = "DELETE FROM tasks WHERE id = ANY ($1) AND state = 'running'"
MOVE = f"""
WITH gone AS ({DELETE} RETURNING *)
INSERT INTO archive
SELECT id, stream, 'completed', rank, lease, started_at, $2, worker, '1'::bytea, args, facts FROM gone
"""
LATER = 1_700_000_030_000_000
FACTS = b'{"priority":50,"created_at":1700000000000000,"options":[3,null,30000000,1000000,300000000,1.0]}'

Loop = Callable[[str, int], Coroutine[Any, Any, float]]


def row(number: int) -> tuple[Any, ...]:
    """Ids in time order, as UUIDv7s are."""
    task_id = uuid.UUID(int=(1_700_000_000_000 + number) << 80)
    return task_id, 1, "pending", number, 0, b'{"number":%d}' % number, FACTS


async def connect(url: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(url)
    await connection.execute(LAYOUT)
    return connection


async def single_inserts(url: str, count: int) -> float:
    """Rows per second, one commit each."""
    connection = await connect(url)
    insert = await connection.prepare(INSERT)
    began = time.perf_counter()
    for number in range(count):
        await insert.fetch(*row(number))
    return await finished(connection, count, began)


async def concurrent_inserts(url: str, count: int) -> float:
    """Rows per second, one commit each, on 64 connections at once."""
    connection = await connect(url)
    others = await asyncio.gather(*(asyncpg.connect(url) for _ in range(64)))
    inserts = [await each.prepare(INSERT) for each in others]
    numbers = iter(range(count))

    async def call(insert: Any) -> None:
        for number in numbers:
            await insert.fetch(*row(number))

    began = time.perf_counter()
    await asyncio.gather(*(call(insert) for insert in inserts))
    took = time.perf_counter() - began
    await asyncio.gather(*(each.close() for each in (connection, *others)))
    return count / took


async def copies(url: str, count: int) -> float:
    """Rows per second by COPY, 1,000 per commit."""
    connection = await connect(url)
    began = time.perf_counter()
    for start in range(0, count, BULK):
        records = [row(number) for number in range(start, min(start + BULK, count))]
        await connection.copy_records_to_table("tasks", records=records, columns=COLUMNS)
    return await finished(connection, count, began)


async def unnested_inserts(url: str, count: int) -> float:
    """Rows per second by INSERT … SELECT FROM unnest(…), 1,000 per commit."""
    connection = await connect(url)
    insert = await connection.prepare(UNNEST)
    began = time.perf_counter()
    for start in range(0, count, BULK):
        records = [row(number) for number in range(start, min(start + BULK, count))]
        await insert.fetch(*(list(column) for column in zip(*records, strict=True)))
    return await finished(connection, count, began)


async def claim_and_delete(url: str, count: int) -> float:
    """Rows per second: claim 100 in one transaction, delete these 100 in the next."""
    return await drain(url, count, DELETE)


async def claim_and_move(url: str, count: int) -> float:
    """Rows per second: claim 100 in one transaction, move these 100 to an archive in the next."""
    return await drain(url, count, MOVE)


async def drain(url: str, count: int, end: str) -> float:
    connection = await connect(url)
    await connection.copy_records_to_table("tasks", records=map(row, range(count)), columns=COLUMNS)
    await connection.execute("ANALYZE tasks")
    claim, settle = await connection.prepare(CLAIM), await connection.prepare(end)
    extra = (LATER,) if end is MOVE else ()
    began = time.perf_counter()
    while claimed := await claim.fetch(BATCH, LATER):
        await settle.fetch([task["id"] for task in claimed], *extra)
    return await finished(connection, count, began)


async def finished(connection: asyncpg.Connection, count: int, began: float) -> float:
    took = time.perf_counter() - began
    await connection.close()
    return count / took


LOOPS: dict[str, dict[str, Loop]] = {
    "raw: INSERT, COPY, DELETE": {
        "one_per_second": single_inserts,
        "callers_per_second": concurrent_inserts,
        "bulk_per_second": copies,
        "drain_per_second": claim_and_delete,
    },
    "raw: unnest, archive": {"bulk_per_second": unnested_inserts, "drain_per_second": claim_and_move},
}
