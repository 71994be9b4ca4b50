"""The SQL of this engine: one file per statement under `sql/`, one per function under `functions/`, read once.

`dibs.` in the files stands for the schema, whose name is put in here and nowhere else.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["functions", "migration_scripts", "quoted", "statement"]

HERE = files("dibs.engines.postgres")
SCHEMA = re.compile(r"\bdibs\.")


def quoted(schema: str) -> str:
    """The schema's name as SQL spells it."""
    return '"' + schema.replace('"', '""') + '"'


def render(script: str, schema: str) -> str:
    """The script for one schema, without its comment lines, which only people read."""
    lines = (line for line in script.splitlines() if line.strip() and not line.lstrip().startswith("--"))
    name = quoted(schema)
    return SCHEMA.sub(lambda _: f"{name}.", "\n".join(lines))


@cache
def source(name: str) -> str:
    return (HERE / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@cache
def statement(name: str, schema: str) -> str:
    """The statement in ``sql/{name}.sql``."""
    return render(source(name), schema)


def functions(schema: str) -> list[str]:
    """All functions, to be made anew with every layout."""
    found = sorted((HERE / "functions").iterdir(), key=lambda resource: resource.name)
    return [render(each.read_text(encoding="utf-8"), schema) for each in found if each.name.endswith(".sql")]


def migration_scripts(schema: str) -> dict[int, tuple[str, str]]:
    """Number → (title, script) of each step, in order."""
    found = {}
    for resource in (HERE / "migrations").iterdir():
        stem, _, ending = resource.name.rpartition(".")
        if ending == "sql":
            number, _, title = stem.partition("_")
            script = render(resource.read_text(encoding="utf-8"), schema)
            found[int(number)] = (title.replace("_", " "), script)
    return dict(sorted(found.items()))
