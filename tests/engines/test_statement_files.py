"""Files of statements: named blocks, and what is wrong with them said clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs.engines.postgres import statements as postgres
from dibs.engines.sqlite import statements as sqlite
from dibs.engines.statement_files import blocks, migration_files, named


def test_blocks_keep_their_headers_and_give_up_their_comments(tmp_path: Path) -> None:
    (tmp_path / "tasks.sql").write_text(
        "-- name: two\n-- Takes nothing.\nSELECT 2\n  -- why\n;\n\n-- name: one\nSELECT 1;\n"
    )
    texts = blocks(tmp_path)
    assert list(texts) == ["one", "two"]
    assert texts["two"].startswith("-- Takes nothing.")
    assert named(texts, "two") == "SELECT 2\n;"


def test_a_name_belongs_to_one_statement(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- name: find\nSELECT 1;\n")
    (tmp_path / "b.sql").write_text("-- name: find\nSELECT 2;\n")
    with pytest.raises(ValueError, match=r"find occurs twice, the second time in b\.sql"):
        blocks(tmp_path)


def test_every_statement_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- All of them.\nSELECT 1;\n-- name: find\nSELECT 1;\n")
    with pytest.raises(ValueError, match=r"a\.sql begins with SQL that has no name"):
        blocks(tmp_path)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(LookupError, match="no file has a statement 'fnid'"):
        sqlite.statement("fnid")
    with pytest.raises(LookupError, match="no file has a statement 'fnid'"):
        postgres.statement("fnid", "dibs")


def test_migrations_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "0002_more_columns.sql").write_text("-- Why.\nSELECT 2;\n")
    (tmp_path / "0001_initial.sql").write_text("SELECT 1;\n")
    assert list(migration_files(tmp_path).items()) == [
        (1, ("initial", "SELECT 1;")),
        (2, ("more columns", "SELECT 2;")),
    ]
