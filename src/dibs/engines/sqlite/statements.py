"""The SQL of this engine, by the names in the files under `sql/`, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from dibs.engines.statement_files import blocks, migration_files, named

__all__ = ["migration_scripts", "row_by_row", "statement", "statement_texts"]

HERE = files("dibs.engines.sqlite")


@cache
def statement_texts() -> dict[str, str]:
    """Name → text of each statement, with its header."""
    return blocks(HERE / "sql")


@cache
def statement(name: str) -> str:
    """The statement of that name."""
    return named(statement_texts(), name)


@cache
def row_by_row(name: str) -> str:
    """A statement without the JSON array that gathers its rows: for when one row spoils the array."""
    text = statement(name)
    before, gathered, after = text.partition("json_group_array(")
    assert (before.strip(), gathered) == ("SELECT", "json_group_array("), f"{name} does not give one JSON array"
    end = closing(after)
    columns = after[:end]
    if columns.startswith("json_array("):
        columns = columns[len("json_array(") : -1]
    return f"SELECT {columns}{after[end + 1 :]}"


def closing(text: str) -> int:
    """The position of the parenthesis that closes the one open before the text."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    raise AssertionError("a parenthesis is left open")


@cache
def migration_scripts() -> dict[int, tuple[str, str]]:
    """Number → (title, script) of each step, in order."""
    return migration_files(HERE / "migrations")
