"""Problems of the server and of the schema, as findings with their remedies.

All of it is read from the catalogs and statistics of PostgreSQL, and reported by `doctor`: nothing here reads tasks,
counts rows or waits. If the role may not see something, a finding says so.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from dibs.core.humanize import format_duration
from dibs.core.times import day_of
from dibs.engines.postgres.claim_limits import reads_from_the_start
from dibs.engines.postgres.statements import fingerprint, migration_scripts, quoted
from dibs.engines.postgres.transaction import Snapshot
from dibs.engines.values import Finding, Level

__all__ = ["expected_indexes", "server_findings", "store_findings"]

LONG_TRANSACTION = 60.0
"""Seconds after which a transaction that keeps dead rows is worth a warning."""

LONG_WAIT = 5.0
"""Seconds after which a wait for a lock is worth a warning."""

OLD_SLOT = 1_000_000
"""Age, in transactions, of the oldest row that a slot keeps, above which it is worth a warning."""

MANY_DEAD = 50_000
"""Dead rows that a table may have, however few live ones there are."""

MOST_NAMED = 5
"""Queues that a finding names."""

CROWDED = 0.9
RUN_ON = (15, 18)
"""The versions that the tests run on."""

UNSAFE = "a crash of the server may take the last moments with it"
DAMAGE = "a crash of the server may damage its files"
MADE = re.compile(r"CREATE (UNIQUE )?INDEX (\w+) ON (.*?);", re.DOTALL)
DROPPED = re.compile(r'DROP INDEX (?:IF EXISTS )?"(?:[^"]|"")*"\.(\w+)')
TABLE = re.compile(r'CREATE TABLE "(?:[^"]|"")*"\.(\w+) \((.*?)\n\)', re.DOTALL)


async def server_findings(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """The server's settings, and the sessions that block others there."""
    server = await snapshot.row("server")
    yield version(server["version"])
    yield switch("fsync", server["fsync"], DAMAGE)
    yield switch("full_page_writes", server["full_page_writes"], DAMAGE)
    yield synchronous_commit(server["synchronous_commit"], server["set_by"])
    yield sessions(server["sessions"], server["most_sessions"])
    if not server["sees_all"]:
        yield Finding(
            Level.WARNING,
            "rights",
            f"{server['role']} can't see what sessions of others do, so long transactions and locks of theirs are "
            f"not looked at here: GRANT pg_monitor TO {quoted(server['role'])}",
        )
    async for finding in horizon(snapshot):
        yield finding
    async for finding in slots(snapshot):
        yield finding
    async for finding in lock_waits(snapshot):
        yield finding
    if not server["autovacuum"]:
        yield Finding(Level.WARNING, "autovacuum", "off: dead rows are never removed; set autovacuum = on")


async def store_findings(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """The state of the schema."""
    yield await layout(snapshot)
    async for finding in indexes(snapshot):
        yield finding
    async for finding in dead_rows(snapshot):
        yield finding
    async for finding in days(snapshot):
        yield finding


def version(text: str) -> Finding:
    major = int(text.partition(".")[0])
    known = "" if major in RUN_ON else f" (Dibs has been run on {' and '.join(map(str, RUN_ON))})"
    return Finding(Level.OK, "PostgreSQL", f"{text}{known}")


def switch(name: str, is_on: bool, risk: str) -> Finding:
    return Finding(Level.OK, name, "on") if is_on else Finding(Level.WARNING, name, f"off: {risk}; set {name} = on")


def synchronous_commit(value: str, set_by: str) -> Finding:
    """It can be set for the server, a database, or a role."""
    if value != "off":
        return Finding(Level.OK, "synchronous_commit", value)
    return Finding(Level.WARNING, "synchronous_commit", f"off (set by the {set_by}): {UNSAFE}; set it to on")


def sessions(number: int, most: int) -> Finding:
    told = f"{number:,} of {most:,} sessions are in use"
    if number < CROWDED * most:
        return Finding(Level.OK, "connections", told)
    return Finding(
        Level.WARNING, "connections", f"{told}: raise max_connections, lower pool_size, or put PgBouncer in between"
    )


async def horizon(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """Transactions that keep dead rows from being removed: claims get slower as these accumulate."""
    title = "long transactions"
    rows = await snapshot.rows("horizon", LONG_TRANSACTION)
    for row in rows:
        if row["pid"] is None:
            told = f"prepared transaction {literal(row['query'])} of {row['role']}"
            remedy = f"ROLLBACK PREPARED {literal(row['query'])} (or COMMIT PREPARED)"
        else:
            told = f"pid {row['pid']} ({session(row)})"
            remedy = f"SELECT pg_terminate_backend({row['pid']})"
        detail = (
            f"{told} has kept dead rows from being removed for {format_duration(row['seconds'])}: end it, or {remedy}"
        )
        yield Finding(Level.WARNING, title, detail)
    if not rows:
        yield Finding(Level.OK, title, f"none that keeps dead rows for more than {format_duration(LONG_TRANSACTION)}")
        return
    catalog = snapshot.catalog
    if slowed := sorted(name for name, queue in catalog.queues.items() if reads_from_the_start(catalog, queue)):
        others = f" and {len(slowed) - MOST_NAMED:,} more" if len(slowed) > MOST_NAMED else ""
        yield Finding(
            Level.WARNING,
            title,
            f"until then, claims from queues with limits, shares or two lanes get slower and slower: "
            f"{', '.join(slowed[:MOST_NAMED])}{others}",
        )


def session(row: Any) -> str:
    """A session and its activity."""
    query = next(iter((row["query"] or "").strip().splitlines()), "")
    parts = [row["role"], row["application"], row["state"], query and f"{query[:80]}"]
    return ", ".join(part for part in parts if part)


async def slots(snapshot: Snapshot) -> AsyncIterator[Finding]:
    for row in await snapshot.rows("slots"):
        title = f"{'replication slot' if row['is_slot'] else 'standby'} {row['name']}"
        kept = (
            "keeps nothing of the log" if row["bytes"] is None else f"keeps {row['bytes'] / 2**20:,.0f} MiB of the log"
        )
        rows = f" and dead rows for {row['transactions']:,} transactions" if row["transactions"] is not None else ""
        if not row["active"]:
            remedy = f"if nobody will come back to it, SELECT pg_drop_replication_slot({literal(row['name'])})"
            yield Finding(Level.WARNING, title, f"nobody uses it, and it {kept}{rows}: {remedy}")
        elif (row["transactions"] or 0) > OLD_SLOT:
            detail = f"{kept}{rows}: a standby is far behind, or has a long query of its own; end that there"
            yield Finding(Level.WARNING, title, detail)
        else:
            yield Finding(Level.OK, title, f"in use, {kept}")


async def lock_waits(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """Sessions that wait for a lock of this store, and the sessions that hold it."""
    keys = [row["key"] for row in await snapshot.rows("lock_keys_of", list(snapshot.catalog.queues))]
    for row in await snapshot.rows("lock_waits", snapshot.schema, keys, LONG_WAIT):
        blockers = row["blockers"] or []
        told = f"pid {row['pid']} has waited {format_duration(row['seconds'])} for a lock ({row['what']})"
        if not blockers:
            yield Finding(Level.WARNING, "locks", told)
            continue
        since = (
            ""
            if row["blocking_seconds"] is None
            else f", in a transaction for {format_duration(row['blocking_seconds'])}"
        )
        yield Finding(
            Level.WARNING,
            "locks",
            f"{told} that pid {blockers[0]} has ({session(row)}{since}): end it, or "
            f"SELECT pg_terminate_backend({blockers[0]})",
        )


def expected_indexes(schema: str) -> dict[str, str]:
    """Name → definition of all indexes that migrations create; primary keys are not among them."""
    found: dict[str, str] = {}
    for _, script in migration_scripts(schema).values():
        for table, columns in TABLE.findall(script):
            if "PRIMARY KEY" in columns:
                found[f"{table}_pkey"] = ""
        for unique, name, rest in MADE.findall(script):
            found[name] = f"CREATE {unique}INDEX {name} ON {' '.join(rest.split())}"
        for name in DROPPED.findall(script):
            found.pop(name, None)
    return found


async def layout(snapshot: Snapshot) -> Finding:
    row = await snapshot.row("versions", snapshot.schema)
    others = row["versions"] - 1
    told = f"{row['layout']}, functions {fingerprint()}"
    if others > 0:
        told += f"; {others:,} other version{'s have' if others > 1 else ' has'} left functions, which it may still use"
    return Finding(Level.OK, "layout", told)


async def indexes(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """Missing indexes make statements scan; invalid ones cost and don't help."""
    there = {row["name"]: row["valid"] for row in await snapshot.rows("indexes", snapshot.schema)}
    wrong = False
    for name, made in expected_indexes(snapshot.schema).items():
        if name not in there:
            wrong = True
            remedy = f"make it: {made}" if made else "the table has lost its primary key: restore it"
            yield Finding(Level.ERROR, "indexes", f"{name} is missing, so that whole tables are read; {remedy}")
    for name in sorted(name for name, valid in there.items() if not valid):
        wrong = True
        index = f"{quoted(snapshot.schema)}.{quoted(name)}"
        yield Finding(
            Level.WARNING, "indexes", f"{name} is invalid, and only costs: REINDEX INDEX {index}, or DROP INDEX {index}"
        )
    if not wrong:
        yield Finding(Level.OK, "indexes", f"{len(there):,}, none missing, none invalid")


async def dead_rows(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """Whether vacuum keeps up. Behind a long transaction it can't."""
    rows = await snapshot.rows("dead_rows", snapshot.schema)
    bad = [*neglected(snapshot, rows), *bloated(snapshot, rows)]
    for finding in bad:
        yield finding
    if not bad:
        yield Finding(Level.OK, "dead rows", f"{sum(row['dead'] for row in rows):,}")


def neglected(snapshot: Snapshot, rows: list[Any]) -> Iterator[Finding]:
    for row in rows:
        if row["neglected"]:
            table = f"{quoted(snapshot.schema)}.{row['name']}"
            remedy = f"ALTER TABLE {table} RESET (autovacuum_enabled)"
            yield Finding(Level.WARNING, "autovacuum", f"is off for {row['name']}: {remedy}")


def bloated(snapshot: Snapshot, rows: list[Any]) -> Iterator[Finding]:
    for row in rows:
        if row["dead"] > MANY_DEAD and row["dead"] > 2 * row["rows"]:
            since = "never vacuumed" if row["seconds"] is None else f"vacuumed {format_duration(row['seconds'])} ago"
            yield Finding(
                Level.WARNING,
                "dead rows",
                f"{row['name']} has {row['dead']:,} beside {row['rows']:,} live ones ({since}): end long transactions "
                f"first, then VACUUM {quoted(snapshot.schema)}.{row['name']}",
            )


async def days(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """Whether there are partitions for what ends today and tomorrow."""
    title = "days of finished tasks"
    there = {row["day"] for row in await snapshot.rows("days", snapshot.schema)}
    today = day_of(snapshot.now)
    row = await snapshot.row("other_days")
    if row["led"] and not {today, today + 1} <= there:
        detail = "today or tomorrow has no partition: no worker has led for a while; start one, it makes them"
        yield Finding(Level.WARNING, title, detail)
    elif row["others"]:
        detail = f"{len(there)} partitions; some tasks ended outside of them, and are deleted one by one in time"
        yield Finding(Level.OK, title, detail)
    else:
        yield Finding(Level.OK, title, f"{len(there)} partitions")


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
