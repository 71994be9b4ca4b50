"""The SQL of this engine: one file per statement under `sql/`, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["migration_scripts", "row_by_row", "statement"]


HERE = files("dibs.engines.sqlite")


def without_comments(script: str) -> str:
    """The script without its comment lines, which only people read."""
    return "\n".join(line for line in script.splitlines() if line.strip() and not line.lstrip().startswith("--"))


@cache
def statement(name: str) -> str:
    """The statement in ``sql/{name}.sql``."""
    return without_comments((HERE / "sql" / f"{name}.sql").read_text(encoding="utf-8"))


@cache
def row_by_row(name: str) -> str:
    """A statement that gathers its rows in one JSON array, without that: for when one of them spoils the array."""
    text = statement(name)
    before, gathered, after = text.partition("json_group_array(")
    assert (before.strip(), gathered) == ("SELECT", "json_group_array("), f"{name}.sql does not give one JSON array"
    end = closing(after)
    columns = after[:end]
    if columns.startswith("json_array("):
        columns = columns[len("json_array(") : -1]
    return f"SELECT {columns}{after[end + 1 :]}"


def closing(text: str) -> int:
    """Where the parenthesis closes that was open before the text."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    raise AssertionError("a parenthesis is left open")


@cache
def migration_scripts() -> dict[int, tuple[str, str]]:
    """Number → (title, script) of each step, in order."""
    found = {}
    for resource in (HERE / "migrations").iterdir():
        stem, _, ending = resource.name.rpartition(".")
        if ending == "sql":
            number, _, title = stem.partition("_")
            found[int(number)] = (title.replace("_", " "), without_comments(resource.read_text(encoding="utf-8")))
    return dict(sorted(found.items()))
