"""The SQL of this engine: one file per statement under `sql/`, one per function under `functions/`, read once.

`dibs.` in the files stands for the schema, whose name is put in here and nowhere else. The name of a function gets the
fingerprint of all functions: processes of different versions, which may share a store, each call their own.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

__all__ = ["fingerprint", "function_names", "functions", "migration_scripts", "quoted", "statement"]

HERE = files("dibs.engines.postgres")
SCHEMA = re.compile(r"('?)\bdibs\.(?:(\w+)(?=\())?")
"""The schema, perhaps at the beginning of a text, perhaps in front of something that is called."""


def quoted(schema: str) -> str:
    """The schema's name as SQL spells it."""
    return '"' + schema.replace('"', '""') + '"'


def bare(script: str) -> str:
    """A script without its comment lines, which only people read."""
    return "\n".join(line for line in script.splitlines() if line.strip() and not line.lstrip().startswith("--"))


def render(script: str, schema: str) -> str:
    """The script for one schema, calling the functions of this version."""
    name = quoted(schema)

    def replace(found: re.Match[str]) -> str:
        quote, called = found[1], found[2] or ""
        ending = f"_{fingerprint()}" if called in function_sources() else ""
        return f"{quote}{name.replace(quote, 2 * quote) if quote else name}.{called}{ending}"

    return SCHEMA.sub(replace, bare(script))


@cache
def source(name: str) -> str:
    return (HERE / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@cache
def statement(name: str, schema: str) -> str:
    """The statement in ``sql/{name}.sql``."""
    return render(source(name), schema)


@cache
def function_sources() -> dict[str, str]:
    """Name → text of each function, in the order of their names. A file is called like the function in it."""
    found = sorted((HERE / "functions").iterdir(), key=lambda resource: resource.name)
    return {each.name[:-4]: bare(each.read_text(encoding="utf-8")) for each in found if each.name.endswith(".sql")}


@cache
def fingerprint() -> str:
    """What tells these functions from those of other versions."""
    return hashlib.sha256("\n".join(function_sources().values()).encode()).hexdigest()[:8]


def function_names() -> list[str]:
    """The functions as the database calls them."""
    return [f"{name}_{fingerprint()}" for name in function_sources()]


def functions(schema: str) -> list[str]:
    """All functions, as statements that make them."""
    return [render(own_variables(name, text), schema) for name, text in function_sources().items()]


def own_variables(name: str, text: str) -> str:
    """Inside a function its name is in front of a variable that a column is called like."""
    return re.sub(rf'(?<![\w."]){name}\.(?=\w)', f"{name}_{fingerprint()}.", text)


@cache
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
