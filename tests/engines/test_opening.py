"""Opening a store that is not there: created, or left alone."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from dibs.engines.base import Engine
from dibs.engines.sqlite import from_url
from dibs.errors import StoreMismatch, StoreMissing
from dibs.testing.conformance import EngineFactory


async def open_without_creating(engine: Engine) -> None:
    try:
        await engine.open(create=False)
    finally:
        await engine.close()


def test_a_missing_store_is_not_created(make_engine: EngineFactory) -> None:
    engine = make_engine()
    if asyncio.run(engine.migrations()) == []:
        pytest.skip("the store came with its engine")
    with pytest.raises(StoreMissing, match="there is no store"):
        asyncio.run(open_without_creating(engine))
    assert asyncio.run(engine.migrations()) != []

    async def open_and_close() -> None:
        await engine.open()
        await engine.close()

    asyncio.run(open_and_close())
    asyncio.run(open_without_creating(engine))


def test_a_missing_file_leaves_its_folder_empty(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match=f"there is no store at {tmp_path}/typo.db"):
        asyncio.run(open_without_creating(from_url(f"sqlite:///{tmp_path}/typo.db")))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_stays_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreMissing, match="there is no store in"):
        asyncio.run(open_without_creating(from_url(f"sqlite:///{tmp_path}/empty.db")))
    assert [(file.name, file.stat().st_size) for file in tmp_path.iterdir()] == [("empty.db", 0)]


def test_a_file_of_another_application_is_named_as_such(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "theirs.db") as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    connection.close()
    with pytest.raises(StoreMismatch):
        asyncio.run(open_without_creating(from_url(f"sqlite:///{tmp_path}/theirs.db")))
    with pytest.raises(StoreMissing):
        asyncio.run(open_without_creating(from_url(f"sqlite:///{tmp_path}/theirs.db?adopt=yes")))
    assert [file.name for file in tmp_path.iterdir()] == ["theirs.db"]
