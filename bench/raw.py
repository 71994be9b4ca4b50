"""Plain `sqlite3` loops: what the same writes cost without a queue around them."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

__all__ = ["claim_and_move", "single_inserts"]

LAYOUT = """
CREATE TABLE tasks (id TEXT PRIMARY KEY, stream INTEGER, state TEXT, rank INTEGER, ready_at INTEGER, lease INTEGER,
                    lease_expires_at INTEGER, started_at INTEGER, worker TEXT, args TEXT, facts TEXT) WITHOUT ROWID;
CREATE INDEX pending ON tasks (stream, rank, id) WHERE state = 'pending';
CREATE INDEX leases ON tasks (lease_expires_at, id) WHERE lease_expires_at IS NOT NULL;
CREATE TABLE archive (day INTEGER, id TEXT, stream INTEGER, state TEXT, rank INTEGER, ready_at INTEGER, lease INTEGER,
                      started_at INTEGER, finished_at INTEGER, worker TEXT, result TEXT, args TEXT, facts TEXT,
                      PRIMARY KEY (day, id)) WITHOUT ROWID;
"""
INSERT = "INSERT INTO tasks VALUES (?1, 1, 'pending', ?2, ?2, 0, NULL, NULL, NULL, ?3, ?4)"
CLAIM = """
UPDATE tasks SET state = 'running', lease = lease + 1, lease_expires_at = ?1, started_at = ?1, worker = 'worker-1'
WHERE id IN (SELECT id FROM tasks WHERE stream = 1 AND state = 'pending' ORDER BY rank, id LIMIT 200)
RETURNING id, lease, args, facts
"""
MOVE = """
INSERT INTO archive
SELECT 20000, id, stream, 'completed', rank, ready_at, lease, started_at, ?3, worker, '1', args, facts
FROM tasks WHERE id = ?1 AND lease = ?2 AND state = 'running'
"""
LATER = 1_700_000_030_000_000
FACTS = '{"priority":50,"created_at":1700000000000000,"options":[3,null,30000000,1000000,300000000,1.0]}'


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.executescript(LAYOUT)
    return connection


def row(number: int) -> tuple[str, int, str, str]:
    """Ids in time order, as UUIDv7s are."""
    return f"{number:08x}-0000-7000-8000-000000000000", 1_700_000_000_000_000 + number, f'{{"number":{number}}}', FACTS


def single_inserts(directory: Path, count: int, synchronous: str = "FULL") -> float:
    """Rows per second, one transaction each."""
    connection = connect(directory / "raw-insert.db", synchronous)
    began = time.perf_counter()
    for number in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT, row(number))
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return count / took


def claim_and_move(directory: Path, count: int, synchronous: str = "FULL") -> float:
    """Rows per second: claim 200 in one transaction, move these 200 to the archive in the next."""
    connection = connect(directory / f"raw-move-{synchronous}.db", synchronous)
    connection.execute("BEGIN")
    connection.executemany(INSERT, (row(number) for number in range(count)))
    connection.execute("COMMIT")
    began = time.perf_counter()
    while claimed := claim(connection):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(MOVE, [(task_id, lease, LATER) for task_id, lease, *_ in claimed])
        connection.executemany("DELETE FROM tasks WHERE id = ?", [(task_id,) for task_id, *_ in claimed])
        connection.execute("COMMIT")
    took = time.perf_counter() - began
    connection.close()
    return count / took


def claim(connection: sqlite3.Connection) -> list[tuple[str, int, str, str]]:
    connection.execute("BEGIN IMMEDIATE")
    claimed = connection.execute(CLAIM, (LATER,)).fetchall()
    connection.execute("COMMIT")
    return claimed
