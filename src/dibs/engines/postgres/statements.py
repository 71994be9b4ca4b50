"""The SQL of this engine, by the names in the files under `sql/` and `functions/`, read once.

Placeholders are filled here: `{schema}` is the schema's name, `{schema_text}` the same inside a text, `{version}` the
fingerprint of all functions, which ends the name of each: processes of different versions may share a store, and each
calls its own functions. `{row}` and `{ended_row}` are the columns of a task, wherever it is.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

from dibs.engines.statement_files import blocks, migration_files, named, without_comments

__all__ = [
    "HERE",
    "fingerprint",
    "function_names",
    "function_sources",
    "functions",
    "migration_scripts",
    "quoted",
    "render",
    "statement",
    "statement_texts",
]

HERE = files("dibs.engines.postgres")
ROWS = {
    "{row}": (
        "t.id, t.track, t.state, t.rank, t.ready_at, t.due_at, t.rerank_at, t.lease, coalesce((SELECT b.expires_at "
        "FROM {schema}.batches AS b WHERE b.batch = t.batch), t.lease_expires_at) AS lease_expires_at, t.started_at, "
        "t.worker, t.sequence, t.version, t.progress, NULL::bigint AS finished_at, NULL::bytea AS result, t.args, "
        "t.facts, t.created_at"
    ),
    "{ended_row}": (
        "t.id, t.track, t.state, t.rank, t.ready_at, NULL::bigint AS due_at, NULL::bigint AS rerank_at, t.lease, "
        "NULL::bigint AS lease_expires_at, t.started_at, t.worker, t.sequence, t.version, t.progress, t.finished_at, "
        "t.result, t.args, t.facts, t.created_at"
    ),
}
"""The columns of `TaskRow`, of a task `t` that is unfinished, or has ended."""
PLACEHOLDER = re.compile(r"\{(schema|schema_text|version)\}")


def quoted(schema: str) -> str:
    """The schema's name as an SQL identifier."""
    return '"' + schema.replace('"', '""') + '"'


def render(script: str, schema: str) -> str:
    """The script for one schema, calling the functions of this version."""
    name = quoted(schema)
    values = {"schema": name, "schema_text": name.replace("'", "''"), "version": fingerprint()}
    return PLACEHOLDER.sub(lambda found: values[found[1]], script)


def with_rows(texts: dict[str, str]) -> dict[str, str]:
    for name, columns in ROWS.items():
        texts = {each: text.replace(name, columns) for each, text in texts.items()}
    return texts


@cache
def statement_texts() -> dict[str, str]:
    """Name → text of each statement, with its header."""
    return with_rows(blocks(HERE / "sql"))


@cache
def statement(name: str, schema: str) -> str:
    """The statement of that name."""
    return render(named(statement_texts(), name), schema)


@cache
def function_sources() -> dict[str, str]:
    """Name → text of each function, in the order of their names."""
    return {name: without_comments(text) for name, text in with_rows(blocks(HERE / "functions")).items()}


@cache
def fingerprint() -> str:
    """Distinguishes these functions from those of other versions."""
    return hashlib.sha256("\n".join(function_sources().values()).encode()).hexdigest()[:8]


def function_names() -> list[str]:
    """The names of the functions in the database."""
    return [f"{name}_{fingerprint()}" for name in function_sources()]


def functions(schema: str) -> list[str]:
    """All functions, as statements that create them."""
    return [render(text, schema) for text in function_sources().values()]


@cache
def migration_scripts(schema: str) -> dict[int, tuple[str, str]]:
    """Number → (title, script) of each step, in order."""
    steps = migration_files(HERE / "migrations")
    return {number: (title, render(script, schema)) for number, (title, script) in steps.items()}
