"""Poolers between us and the server, which change what a connection can be relied on for.

A pooler in transaction mode gives every transaction another session. Then nothing may be left in a session (prepared
statements, locks, LISTEN), and its settings are not ours.
"""

from __future__ import annotations

import logging

from dibs.engines.postgres.pool import Address, Connection, Pool
from dibs.engines.postgres.statements import quoted, statement
from dibs.engines.values import Finding, Level
from dibs.errors import StoreMismatch, StoreUnavailable

__all__ = ["check_direct_way", "check_way", "findings", "is_pooled"]

log = logging.getLogger("dibs.engines.postgres")

SESSION = "SELECT pg_backend_pid() AS pid, current_setting('default_transaction_isolation') AS isolation"


async def is_pooled(connection: Connection) -> bool:
    """Whether a pooler keeps the session: the server process is not the one that the connection was opened with."""
    served_by: int = await connection.fetchval("SELECT pg_backend_pid()")
    return served_by != int(connection.get_server_pid())


async def check_way(connection: Connection, address: Address) -> None:
    """Refuse a pooler that the URL does not mention, and defaults that only a session of our own could change."""
    row = await connection.fetchrow(SESSION)
    if not address.pooled and row["pid"] != connection.get_server_pid():
        raise StoreMismatch(
            f"there is a pooler, such as PgBouncer, between here and {address}. Add pgbouncer=yes to the URL and, so "
            "that tasks start at once and killed workers are noticed, direct_url= with a URL past the pooler."
        )
    if address.pooled and row["isolation"] != "read committed":
        raise StoreMismatch(
            f"{address} has default_transaction_isolation = '{row['isolation']}', which can't be changed through a "
            "pooler. Have its owner run ALTER ROLE … SET default_transaction_isolation = 'read committed'."
        )


async def check_direct_way(connection: Connection, address: Address) -> None:
    """Refuse a `direct_url` that leads to another store. One that can't be reached now may work later."""
    direct = address.direct()
    if address.direct_dsn is None or direct is None:
        return
    try:
        other = await Pool(direct).connect()
    except StoreMismatch as error:
        raise pooled_as_well(direct) from error
    except StoreUnavailable as error:
        log.warning("the way past the pooler is closed for now: %s", error)
        return
    try:
        if await is_pooled(other):
            raise pooled_as_well(direct)
        known = await other.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{quoted(address.schema)}.store")
        identity = statement("identity", address.schema)
        if not known or await other.fetchval(identity) != await connection.fetchval(identity):
            raise StoreMismatch(f"direct_url leads to another store than the URL ({direct}): it must be the same.")
    finally:
        other.terminate()


def pooled_as_well(direct: Address) -> StoreMismatch:
    return StoreMismatch(f"direct_url leads to a pooler as well ({direct}): it must lead to the server itself.")


def findings(address: Address) -> list[Finding]:
    """How workers learn of new tasks and of killed workers, for `dibs doctor`."""
    if not address.pooled:
        return [Finding(Level.OK, "connection", "straight to the server: new tasks are announced at once (LISTEN)")]
    if address.direct_dsn is not None:
        detail = "through a pooler, and straight to the server for LISTEN and for noticing killed workers"
        return [Finding(Level.OK, "connection", detail)]
    detail = (
        "through a pooler only: workers look for new tasks about twice a second; add direct_url= with a URL past the "
        "pooler, and they start at once"
    )
    return [Finding(Level.WARNING, "connection", detail)]
