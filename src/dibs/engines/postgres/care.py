"""Health checks."""

from __future__ import annotations

from collections.abc import AsyncIterator

from dibs.core.states import State
from dibs.engines.base import Finding, Level
from dibs.engines.postgres.transaction import Snapshot

__all__ = ["DURABILITY", "check"]

DURABILITY = "Acknowledged tasks are in PostgreSQL's log on disk, and survive what the server and its replicas survive."
UNSAFE = "a crash of the server may take the last moments with it"


async def check(snapshot: Snapshot, full: bool) -> list[Finding]:
    """How the store is. `full` counts all of it."""
    row = await snapshot.row("server")
    findings = [
        Finding(Level.OK, "durability", DURABILITY),
        Finding(Level.OK, "PostgreSQL", row["version"]),
        setting("fsync", row["fsync"]),
        setting("synchronous_commit", row["synchronous_commit"]),
    ]
    if full:
        findings += [finding async for finding in tallies_agree(snapshot)]
    return findings


def setting(name: str, is_on: bool) -> Finding:
    return Finding(Level.OK, name, "on") if is_on else Finding(Level.WARNING, name, f"off: {UNSAFE}")


async def tallies_agree(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """Whether the counts that are kept with each move are what counting gives."""
    states = set(State)
    kept = {(what, stream): n for what, stream, _, n in await snapshot.tallies() if what in states}
    counted = {(row["state"], row["stream"]): row["n"] for row in await snapshot.rows("recount")}
    if kept == counted:
        yield Finding(Level.OK, "counts", f"{sum(counted.values()):,} tasks, as counted")
        return
    for key in sorted(kept.keys() | counted.keys()):
        if kept.get(key, 0) != counted.get(key, 0):
            queue = snapshot.catalog.stream(key[1]).queue
            detail = f"{queue}: {kept.get(key, 0):,} {key[0]} kept, {counted.get(key, 0):,} counted"
            yield Finding(Level.ERROR, "counts", detail)
