"""Opening a SQLite store: addresses, new files, foreign files, newer layouts, damaged files."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_help import new, opened

from dibs.engines.sqlite import SqliteEngine, from_url
from dibs.engines.sqlite.file_store import Synchronous
from dibs.engines.sqlite.layout import APPLICATION_ID, run_script
from dibs.engines.sqlite.statements import migration_scripts
from dibs.errors import Closed, InvalidOption, StoreCorrupt, StoreMismatch, StoreUnavailable


def open_and_close(path: Path) -> None:
    async def go() -> None:
        async with opened(path):
            pass

    asyncio.run(go())


def test_urls() -> None:
    assert from_url("sqlite:///tasks.db").path == Path("tasks.db").resolve()
    assert from_url("sqlite:////var/lib/tasks.db").path == Path("/var/lib/tasks.db")
    assert from_url("sqlite:////a%20b/c.db").path == Path("/a b/c.db")
    engine = from_url("sqlite:///tasks.db?synchronous=normal&busy_timeout=2")
    assert (engine.synchronous, engine.busy_timeout) == ("normal", 2.0)


def test_says_what_an_acknowledged_task_survives(tmp_path: Path) -> None:
    async def durability(synchronous: Synchronous) -> str:
        async with opened(tmp_path / f"{synchronous}.db", synchronous=synchronous) as engine:
            return (await engine.about()).durability

    assert "a power loss may take" in asyncio.run(durability("normal"))
    assert "the loss of power" in asyncio.run(durability("full"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///x.db?synchronus=normal", "Did you mean 'synchronous'?"),
        ("sqlite:///x.db?synchronous=off", "full or normal"),
        ("sqlite:///x.db?busy_timeout=soon", "number of seconds"),
        ("sqlite:///x.db?busy_timeout=-1", "number of seconds"),
        ("sqlite://x.db", "sqlite:///tasks.db"),
        ("sqlite:///", "sqlite:///tasks.db"),
        ("sqlite:///:memory:", "memory://"),
    ],
)
def test_bad_urls(url: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(said)):
        from_url(url)


def test_a_closed_engine_says_so_and_opens_again(tmp_path: Path) -> None:
    async def go() -> None:
        engine = SqliteEngine(tmp_path / "x.db")
        with pytest.raises(Closed):
            await engine.counts()
        for _ in range(2):
            await engine.open()
            await engine.open()
            await engine.enqueue([new()])
            await engine.close()
            await engine.close()
        assert sorted(each.name for each in tmp_path.iterdir()) == ["x.db", "x.db-presence"]

    asyncio.run(go())


def test_foreign_database_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE customers (name)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreMismatch, match="another application"):
        open_and_close(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["theirs.db"]


def test_what_is_no_database_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n" * 1000)
    with pytest.raises(StoreMismatch, match="not a SQLite database"):
        open_and_close(path)
    assert path.read_text() == "buy milk\n" * 1000


def pretend(path: Path, layout: int, oldest_reader: int) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE dibs_store SET layout = ?, oldest_reader = ?", (layout, oldest_reader))
    connection.close()


def test_newer_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    open_and_close(path)
    pretend(path, 7, 7)
    with pytest.raises(StoreMismatch, match="newer Dibs"):
        open_and_close(path)


def test_newer_layout_that_old_readers_may_use_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    open_and_close(path)
    pretend(path, 7, 1)
    open_and_close(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT layout, oldest_reader FROM dibs_store").fetchone() == (7, 1)


def test_dibs_moves_into_a_foreign_database_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name)")
        connection.execute("INSERT INTO customers VALUES ('Ada')")
        connection.execute("PRAGMA user_version = 42")
        connection.execute("PRAGMA application_id = 7")
        connection.commit()

    async def go() -> None:
        engine = from_url(f"sqlite:///{path}?adopt=yes")
        assert await engine.migrations() != []
        await engine.open()
        await engine.enqueue([new()])
        await engine.close()

    asyncio.run(go())
    open_and_close(path)  # from now on it is a Dibs store like any other
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM customers").fetchall() == [("Ada",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (42,)
        assert connection.execute("PRAGMA application_id").fetchone() == (7,)
        assert connection.execute("SELECT count(*) FROM dibs_tasks").fetchone() == (1,)


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="directory exists"):
        open_and_close(tmp_path / "nowhere" / "x.db")


def test_a_directory_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="can't be opened"):
        open_and_close(tmp_path)


def schema(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def test_layout_is_the_sum_of_its_migrations(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    engine = SqliteEngine(path)
    assert asyncio.run(engine.migrations()) == [f"{n:04d} {title}" for n, (title, _) in migration_scripts().items()]
    assert not path.exists()
    open_and_close(path)
    assert asyncio.run(engine.migrations()) == []
    plain = sqlite3.connect(":memory:", isolation_level=None)
    for _, script in migration_scripts().values():
        run_script(plain, script)
    stored = sqlite3.connect(path)
    assert schema(stored) == schema(plain)
    assert list(migration_scripts()) == list(range(1, len(migration_scripts()) + 1))
    assert stored.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert stored.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert stored.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    plain.close()
    stored.close()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from sqlite_help import new
from dibs.engines.sqlite import SqliteEngine

async def main():
    engine = SqliteEngine(Path(sys.argv[1]))
    await engine.open()
    for _ in range(20):
        await engine.enqueue([new(args=b'{"x":"%s"}' % (b"y" * 3000)) for _ in range(50)])
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def run_killed(path: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", KILLED, str(path)]
    return subprocess.run(command, check=False, capture_output=True, env=environment, timeout=60)


def test_after_an_unclean_stop_the_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    done = run_killed(path)
    assert done.returncode == -9, done.stderr

    async def count() -> int:
        async with opened(path) as engine:
            counts = (await engine.counts()).tasks
            return sum(counts["default"].values())

    assert asyncio.run(count()) == 1000  # acknowledged tasks are there

    run_killed(path)
    data = bytearray(path.read_bytes())
    data[4096 * 20 : 4096 * 60] = b"\xa5" * 4096 * 40
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match="damaged"):
        open_and_close(path)
