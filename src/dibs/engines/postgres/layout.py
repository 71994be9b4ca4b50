"""Checks that a schema is a Dibs store of a known layout; creates a new one, or migrates an old one.

The layout is the sum of `migrations/`. Functions belong to the code: each version of Dibs creates its own beside those
of others (`statements`), so that processes of different versions can share a store; a new version drops those that no
process has used for 30 days. If nothing is missing, nothing is created, so opening a store that is up to date needs no
right to create anything.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

from asyncpg import exceptions
from msgspec import Struct

from dibs.engines.postgres.pool import Address, Connection
from dibs.engines.postgres.statements import (
    fingerprint,
    function_names,
    functions,
    migration_scripts,
    quoted,
    statement,
)
from dibs.errors import StoreBusy, StoreMismatch, StoreMissing

__all__ = ["OLDEST_READER", "Condition", "missing", "pending_migrations", "pending_script", "prepare"]

OLDEST_READER = 1
"""Code that knows this layout may use a store that this code has migrated. A breaking step raises it."""
OLDEST_SERVER = 140000
"""Statements use nothing newer than PostgreSQL 14."""

LOCK_TIMEOUT = "SET LOCAL lock_timeout = '2s';"
"""A process that waits for a table makes all others wait behind it, so it gives up and tries again."""
PAUSE_SECONDS = 0.2
STEP_SECONDS = 3600.0
"""Once it has its locks, a step may take this long."""


class Condition(Struct, frozen=True):
    """What exists of a store: its schema, its layout (0: none), the functions of this version."""

    has_schema: bool
    layout: int
    has_functions: bool


def known_layout(schema: str) -> int:
    return max(migration_scripts(schema))


async def stored(connection: Connection, address: Address) -> Condition:
    """What exists; `StoreMismatch` if the schema is not a store or too new."""
    version = connection.get_server_version()
    if version.major * 10000 < OLDEST_SERVER:
        raise StoreMismatch(
            f"{address} runs PostgreSQL {version.major}.{version.minor}. Dibs needs {OLDEST_SERVER // 10000} or newer."
        )
    schema = address.schema
    row = await connection.fetchrow(statement("layout", schema), schema, function_names())
    tables = row["tables"] or ()
    if not tables:
        return Condition(row["has_schema"], 0, False)
    if "store" not in tables or "tracks" not in tables:
        raise StoreMismatch(
            f"the schema {schema} of {address} has tables of another application. Dibs left it untouched. "
            "Add ?schema=NAME to the URL to give Dibs a schema of its own."
        )
    layout = await readable_layout(connection, address)
    return Condition(True, layout, row["functions"] == len(function_names()))


async def readable_layout(connection: Connection, address: Address) -> int:
    schema = address.schema
    row = await connection.fetchrow(f"SELECT layout, oldest_reader FROM {quoted(schema)}.store")  # noqa: S608  # quoted
    if row is None or row["oldest_reader"] > known_layout(schema):
        layout = "?" if row is None else row["layout"]
        raise StoreMismatch(
            f"{address} was written by a newer Dibs (layout {layout}, this one knows {known_layout(schema)}). "
            "Upgrade Dibs."
        )
    found: int = row["layout"]
    return found


async def prepare(connection: Connection, address: Address, create: bool = True) -> None:
    """Make the schema a Dibs store of the current layout. Several processes may do so at once."""
    until = time.monotonic() + address.timeout
    while missing(address.schema, condition := await stored(connection, address)):
        if condition.layout == 0 and not create:
            raise StoreMissing(f"there is no store at {address}. A worker, an enqueue or `dibs migrate` makes one.")
        try:
            await migrate(connection, address)
        except exceptions.LockNotAvailableError:
            if time.monotonic() > until:
                raise StoreBusy(
                    f"{address} could not be brought up to date: others held locks on its tables for "
                    f"{address.timeout:g} s. Nothing was changed; `dibs doctor` names long transactions."
                ) from None
            await asyncio.sleep(PAUSE_SECONDS * (0.5 + random.random()))
        except exceptions.InsufficientPrivilegeError as error:
            raise not_allowed(address, str(error)) from error
    with suppress(exceptions.InsufficientPrivilegeError, exceptions.ReadOnlySQLTransactionError):  # a reader's role
        await connection.execute(statement("use_version", address.schema))


async def migrate(connection: Connection, address: Address) -> None:
    """Apply what is missing, all or none."""
    async with connection.transaction():
        for script in preamble(address.schema):
            await connection.execute(script)
        condition = await stored(connection, address)  # another process may have been faster
        for _, script in missing(address.schema, condition):
            await connection.execute(script, timeout=STEP_SECONDS)


def not_allowed(address: Address, told: str) -> StoreMismatch:
    return StoreMismatch(
        f"{address} is not up to date, and this role may not change it ({told}). Run `dibs migrate` as a role that "
        "may: the owner of the schema or, for a new store, one that has had GRANT CREATE ON DATABASE."
    )


def preamble(schema: str) -> list[str]:
    """How a migration begins: with short waits, and one at a time."""
    key = f"dibs migrate {schema}".replace("'", "''")
    return [
        LOCK_TIMEOUT,
        "SET LOCAL statement_timeout = 0;",
        f"SELECT pg_advisory_xact_lock(hashtextextended('{key}', 0));",
    ]


def missing(schema: str, condition: Condition) -> list[tuple[str, str]]:
    """The steps from a condition to the current one: title and script."""
    name, known, steps = quoted(schema), known_layout(schema), []
    if not condition.has_schema:
        # Not "IF NOT EXISTS": that needs the right to create schemas even if this one exists.
        steps.append(("the schema", f"CREATE SCHEMA {name};"))
    for number, (title, script) in migration_scripts(schema).items():
        if number > condition.layout:
            steps.append((f"{number:04d} {title}", script))
    if condition.layout < known:
        mark = f"UPDATE {name}.store SET layout = {known}, oldest_reader = greatest(oldest_reader, {OLDEST_READER});"  # noqa: S608  # quoted
        steps.append(("the layout's number", mark))
    if not condition.has_functions:
        parts = [*functions(schema), statement("add_version", schema), statement("drop_old_versions", schema)]
        steps.append((f"functions {fingerprint()}", "\n".join(parts)))
    if condition.layout == 0:  # for tasks that end before there is a leader
        steps.append(("the first days", statement("first_days", schema)))
    return steps


async def pending_migrations(connection: Connection, address: Address) -> list[str]:
    """What `prepare` would do: the numbered steps, and the functions."""
    steps = missing(address.schema, await stored(connection, address))
    return [title for title, _ in steps if not title.startswith("the ")]


async def pending_script(connection: Connection, address: Address) -> list[str]:
    """What `prepare` would do, as one transaction for psql; nothing if there is nothing to do."""
    condition = await stored(connection, address)
    steps = missing(address.schema, condition)
    if not steps:
        return []
    told = [f"-- {title}\n{script}" for title, script in steps]
    return [
        "\\set ON_ERROR_STOP on",
        "BEGIN;",
        *preamble(address.schema),
        *unchanged(address, condition),
        *told,
        "COMMIT;",
    ]


def unchanged(address: Address, condition: Condition) -> list[str]:
    """Stops a script that was made for another layout than it finds."""
    if condition.layout == 0:
        return []  # creating tables that exist fails by itself
    lines = (
        "DO $$ BEGIN",
        f"IF (SELECT layout FROM {quoted(address.schema)}.store) <> {condition.layout} THEN",  # noqa: S608  # quoted
        "RAISE EXCEPTION 'this script was made for another layout: make it again with dibs migrate --sql';",
        "END IF; END $$;",
    )
    return ["\n".join(lines)]
