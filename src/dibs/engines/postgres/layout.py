"""Is this schema ours, and is it of a layout that we know? If new, make it; if old, migrate it."""

from __future__ import annotations

from dibs.engines.postgres.pool import Address, Connection
from dibs.engines.postgres.statements import functions, migration_scripts, quoted
from dibs.errors import StoreMismatch

__all__ = ["OLDEST_SERVER", "migration_sql", "pending_migrations", "prepare"]

OLDEST_READER = 1
OLDEST_SERVER = 140000
"""Statements use nothing newer than PostgreSQL 14."""


def known_layout(schema: str) -> int:
    return max(migration_scripts(schema))


async def stored_layout(connection: Connection, address: Address) -> int:
    """The layout of the schema, 0 if Dibs may move in; `StoreMismatch` for what is not ours or too new."""
    version = connection.get_server_version()
    if version.major * 10000 < OLDEST_SERVER:
        raise StoreMismatch(
            f"{address} runs PostgreSQL {version.major}.{version.minor}. Dibs needs {OLDEST_SERVER // 10000} or newer."
        )
    schema = address.schema
    tables = await connection.fetchval(
        "SELECT array_agg(c.relname::text) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm')",
        schema,
    )
    if not tables:
        return 0
    if "store" not in tables or "streams" not in tables:
        raise StoreMismatch(
            f"the schema {schema} of {address} has tables of another application. Dibs left it untouched. "
            "Add ?schema=NAME to the URL to give Dibs a schema of its own."
        )
    row = await connection.fetchrow(f"SELECT layout, oldest_reader FROM {quoted(schema)}.store")  # noqa: S608  # quoted
    if row is None or row["oldest_reader"] > known_layout(schema):
        layout = "?" if row is None else row["layout"]
        raise StoreMismatch(
            f"{address} was written by a newer Dibs (layout {layout}, this one knows {known_layout(schema)}). "
            "Upgrade Dibs."
        )
    found: int = row["layout"]
    return found


async def prepare(connection: Connection, address: Address) -> None:
    """Make the schema a Dibs store of the current layout. Several processes may do so at once."""
    schema = address.schema
    if await stored_layout(connection, address) >= known_layout(schema):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"dibs migrate {schema}")
        layout = await stored_layout(connection, address)  # somebody else may have been faster
        if layout < known_layout(schema):
            for script in migration_sql(schema, layout):
                await connection.execute(script)


def migration_sql(schema: str, layout: int) -> list[str]:
    """The scripts that lead from a layout to the current one."""
    steps = [script for number, (_, script) in migration_scripts(schema).items() if number > layout]
    name, known = quoted(schema), known_layout(schema)
    begin = [] if layout else [f"CREATE SCHEMA IF NOT EXISTS {name};"]
    end = f"UPDATE {name}.store SET layout = {known}, oldest_reader = {OLDEST_READER};"  # noqa: S608  # quoted
    return [*begin, *steps, *functions(schema), end]


async def pending_migrations(connection: Connection, address: Address) -> list[str]:
    """What `prepare` would do."""
    layout = await stored_layout(connection, address)
    scripts = migration_scripts(address.schema)
    return [f"{number:04d} {title}" for number, (title, _) in scripts.items() if number > layout]
