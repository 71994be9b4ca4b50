"""Health checks."""

from __future__ import annotations

from collections.abc import AsyncIterator

from dibs.core.states import State
from dibs.engines.postgres.symptoms import server_findings, store_findings
from dibs.engines.postgres.transaction import Snapshot
from dibs.engines.values import Finding, Level

__all__ = ["DURABILITY", "check"]

SAFETY = ("fsync", "full_page_writes", "synchronous_commit")
DURABILITY = "Acknowledged tasks are in PostgreSQL's log on disk, and survive what the server and its replicas survive."


async def check(snapshot: Snapshot, full: bool) -> list[Finding]:
    """How the store is. `full` counts all of it."""
    findings = [finding async for finding in server_findings(snapshot)]
    findings.insert(0, durability(findings))
    findings += [finding async for finding in store_findings(snapshot)]
    if full:
        findings += [finding async for finding in tallies_agree(snapshot)]
    return findings


def durability(findings: list[Finding]) -> Finding:
    """What is promised, unless the server is set not to keep it."""
    off = [finding.title for finding in findings if finding.title in SAFETY and finding.level is not Level.OK]
    if not off:
        return Finding(Level.OK, "durability", DURABILITY)
    detail = f"{', '.join(off)} off: acknowledged tasks may be lost when the server crashes"
    return Finding(Level.WARNING, "durability", detail)


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
