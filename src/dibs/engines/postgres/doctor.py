"""The health check of a store: finds unreadable rows, and compares its counts.

Findings about the server and the schema come from `server_findings`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from dibs.core.graph import Rule
from dibs.core.policy import CHECKED_MINUTES, CHECKED_ROWS
from dibs.core.states import State
from dibs.core.times import MINUTE
from dibs.engines.port import Read
from dibs.engines.postgres.catalog import Catalog, Stale
from dibs.engines.postgres.chores import CHORES
from dibs.engines.postgres.rows import TaskRow
from dibs.engines.postgres.server_findings import server_findings, store_findings
from dibs.engines.postgres.statements import statement
from dibs.engines.postgres.transaction import Snapshot
from dibs.engines.unreadable import UnreadableReport, readable
from dibs.engines.values import Finding, Level
from dibs.engines.verbs.chores import chores
from dibs.engines.verbs.reading import audit, decode_entry, stats
from dibs.engines.verbs.schedules import schedules
from dibs.engines.verbs.searching import read_tasks
from dibs.engines.verbs.steps import read_steps
from dibs.engines.verbs.workers import workers

__all__ = ["DURABILITY", "check"]

SAFETY = ("fsync", "full_page_writes", "synchronous_commit")
CHUNK = 1000
LOWEST_ID = "00000000-0000-0000-0000-000000000000"
DURABILITY = "Acknowledged tasks are in PostgreSQL's log on disk, and survive what the server and its replicas survive."

ODD_EDGES = Read("odd_edges", tuple[str, Rule], "edge of task")
"""Takes all rules that this version knows: (dependent, rule) of edges with another one."""


class Check(Snapshot):
    """One snapshot of the store with its catalog: tracks that this lacks do not exist."""

    async def find_rows(self, ids: Sequence[str]) -> dict[str, TaskRow]:
        try:
            return await super().find_rows(ids)
        except Stale as stale:
            self.aside.tracks.update(stale.tracks)
            return await super().find_rows(ids)


async def check(snapshot: Snapshot, full: bool) -> list[Finding]:
    """The health of the store. `full` counts all of it."""
    findings = [finding async for finding in server_findings(snapshot)]
    findings.insert(0, durability(findings))
    findings += [finding async for finding in store_findings(snapshot)]
    findings += await unreadable_rows(snapshot, full)
    if full:
        findings += [finding async for finding in counts_agree(snapshot)]
    return findings


async def unreadable_rows(snapshot: Snapshot, full: bool) -> list[Finding]:
    """Rows that can't be read: in small tables, and among the oldest unfinished tasks, or (`full`) everywhere."""
    found = UnreadableReport()
    catalog = await Catalog.read(snapshot.connection, statement("catalog", snapshot.schema), found)
    look = Check(snapshot.connection, snapshot.schema, catalog, snapshot.now)
    await read_tasks(look, full)
    await workers(look)
    await schedules(look)
    await chores(look, CHORES)
    await audit(look, CHECKED_ROWS)
    minute = look.now // MINUTE
    await stats(look, None, 0 if full else minute - CHECKED_MINUTES, minute)
    await read_steps(look, CHECKED_ROWS)
    if full:
        await read_history(look)
        await look.read(ODD_EDGES, [*Rule])
    return [*found.findings()]


async def read_history(look: Snapshot) -> None:
    task, number = LOWEST_ID, 0
    while rows := await look.rows("all_history", task, number, CHUNK):
        named = [(f"{row['task']} {row['n']}", row["entry"]) for row in rows]
        for _ in readable(look.aside, "history entry of task", named, decode_entry):
            pass
        task, number = rows[-1]["task"], rows[-1]["n"]


def durability(findings: list[Finding]) -> Finding:
    """What is promised, unless the server's settings break it."""
    off = [finding.title for finding in findings if finding.title in SAFETY and finding.level is not Level.OK]
    if not off:
        return Finding(Level.OK, "durability", DURABILITY)
    detail = f"{', '.join(off)} off: acknowledged tasks may be lost when the server crashes"
    return Finding(Level.WARNING, "durability", detail)


async def counts_agree(snapshot: Snapshot) -> AsyncIterator[Finding]:
    """Whether the counts kept with each move agree with counting."""
    states = set(State)
    kept = {(what, track): n for what, track, _, n in await snapshot.all_counts() if what in states}
    counted = {(row["state"], row["track"]): row["n"] for row in await snapshot.rows("recount")}
    if kept == counted:
        yield Finding(Level.OK, "counts", f"{sum(counted.values()):,} tasks, as counted")
        return
    for key in sorted(kept.keys() | counted.keys()):
        if kept.get(key, 0) != counted.get(key, 0):
            queue = snapshot.catalog.tracks[key[1]].queue if key[1] in snapshot.catalog.tracks else "an unknown queue"
            detail = f"{queue}: {kept.get(key, 0):,} {key[0]} kept, {counted.get(key, 0):,} counted"
            yield Finding(Level.ERROR, "counts", detail)
