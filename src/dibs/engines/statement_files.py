"""The SQL files of an engine: statements in blocks that begin with `-- name: NAME`, and numbered migrations."""

from __future__ import annotations

import re
from importlib.resources.abc import Traversable

__all__ = ["blocks", "migration_files", "named", "without_comments"]

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def without_comments(script: str) -> str:
    """The script without its comment lines."""
    return "\n".join(line for line in script.splitlines() if line.strip() and not line.lstrip().startswith("--"))


def sql_files(folder: Traversable) -> list[Traversable]:
    return sorted((each for each in folder.iterdir() if each.name.endswith(".sql")), key=lambda each: each.name)


def blocks(folder: Traversable) -> dict[str, str]:
    """Name → text, comments included, of each block in the files of a folder, in the order of their names."""
    found: dict[str, str] = {}
    for file in sql_files(folder):
        before, *parts = NAME.split(file.read_text(encoding="utf-8"))
        if without_comments(before):
            raise ValueError(f"{file.name} begins with SQL that has no name")
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"{name} occurs twice, the second time in {file.name}")
            found[name] = text.strip()
    return dict(sorted(found.items()))


def named(texts: dict[str, str], name: str) -> str:
    """The SQL of one block, without comments."""
    if name not in texts:
        raise LookupError(f"no file has a statement {name!r}")
    return without_comments(texts[name])


def migration_files(folder: Traversable) -> dict[int, tuple[str, str]]:
    """Number → (title, script without comments) of each step, in order."""
    found = {}
    for file in sql_files(folder):
        number, _, title = file.name.removesuffix(".sql").partition("_")
        found[int(number)] = (title.replace("_", " "), without_comments(file.read_text(encoding="utf-8")))
    return found
