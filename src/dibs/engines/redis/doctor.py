"""The health check of a store: what the server promises, rows that can't be read, and whether counts agree."""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

from dibs.core.policy import CHECKED_MINUTES, CHECKED_ROWS
from dibs.core.states import State
from dibs.core.times import MINUTE
from dibs.engines.decisions.records import Place
from dibs.engines.redis import rows, statements
from dibs.engines.redis.chores import CHORES
from dibs.engines.redis.layout import Server, look_at
from dibs.engines.redis.snapshot import Snapshot
from dibs.engines.redis.store import Store, read_catalog
from dibs.engines.redis.tables import Row, Table
from dibs.engines.unreadable import UNREADABLE, UnreadableReport, readable
from dibs.engines.values import Finding, Level
from dibs.engines.verbs.chores import chores
from dibs.engines.verbs.dependencies import EDGES_OF
from dibs.engines.verbs.enqueueing import KEYS
from dibs.engines.verbs.reading import audit, decode_entry, stats
from dibs.engines.verbs.retention import BUCKETS_AFTER
from dibs.engines.verbs.schedules import schedules
from dibs.engines.verbs.searching import read_tasks
from dibs.engines.verbs.steps import read_steps
from dibs.engines.verbs.workers import workers
from dibs.engines.verbs.workflows import workflows

__all__ = ["check", "durability_of"]

NEARLY_FULL = 0.8
CHUNK = 500
RECOUNTS = 4
STATES = frozenset(State)
Whose = tuple[str, int]
"""A state and a track."""


def durability_of(server: Server, replicas: int) -> tuple[Level, str]:
    """What an acknowledged task survives."""
    waited = f" It waits for {replicas} replica{'' if replicas == 1 else 's'} to have it too." if replicas else ""
    if server.get("aof_enabled") != "1":
        return Level.WARNING, (
            "Acknowledged tasks are in the server's memory: a crash or restart loses what its last snapshot "
            f"(save) lacks. Set appendonly yes.{waited}"
        )
    fsync = server.get("appendfsync")
    if fsync == "always":
        return Level.OK, f"Acknowledged tasks are in the server's log on disk (appendfsync always).{waited}"
    told = (
        "the last second before a power loss" if fsync in ("", "everysec") else "the last moments before a power loss"
    )
    failover = "" if replicas else " A failover may lose what a replica had not got yet."
    return Level.OK, (
        f"Acknowledged tasks are in the server's log (appendonly), and survive its crash; {told} may be lost."
        f"{failover}{waited}"
    )


async def check(store: Store, full: bool) -> list[Finding]:
    """The health of the store. `full` reads all of it."""
    server = await store.client.persist(lambda: look_at(store.client))
    level, told = durability_of(server, store.address.replicas)
    findings = [
        Finding(level, "durability", told),
        Finding(Level.OK, server.name, f"{server.version}, {store.address.kind}, prefix {store.keys.tag}"),
        *server_findings(server),
        *await store.read(unreadable_rows, None, full),
    ]
    return [*findings, *await store.read(counts_agree, None)] if full else findings


def server_findings(server: Server) -> Iterator[Finding]:
    most, used = int(server.get("maxmemory") or 0), int(server.get("used_memory") or 0)
    if most and used > NEARLY_FULL * most:
        detail = f"{used / most:.0%} of maxmemory is used. At 100 % no task can be added or completed: raise maxmemory"
        yield Finding(Level.WARNING, "memory", detail)
    else:
        yield Finding(Level.OK, "memory", f"{used / 2**20:,.0f} MiB used{f' of {most / 2**20:,.0f}' if most else ''}")
    policy = server.get("maxmemory_policy")
    if policy and policy != "noeviction":
        detail = f"maxmemory-policy is {policy}: the server may delete tasks. Set it to noeviction"
        yield Finding(Level.ERROR, "eviction", detail)
    if server.get("aof_enabled") == "1" and server.get("aof_last_write_status") not in ("", "ok"):
        yield Finding(Level.ERROR, "log", "the last write to the append-only file failed: look at the server's disk")
    if server.get("role") == "slave":
        yield Finding(Level.ERROR, "role", "this is a read-only replica: no task can be added or run")


async def unreadable_rows(snapshot: Snapshot, full: bool) -> list[Finding]:
    """Rows that can't be read: in small tables, and among the oldest unfinished tasks, or (`full`) everywhere."""
    found = UnreadableReport()
    look = await with_report(snapshot, found)
    await read_tasks(look, full)
    await workers(look)
    await schedules(look)
    await chores(look, CHORES)
    await audit(look, CHECKED_ROWS)
    minute = look.now // MINUTE
    await stats(look, None, 0 if full else minute - CHECKED_MINUTES, minute)
    await workflows(look, None, CHECKED_ROWS, None)
    await read_steps(look, CHECKED_ROWS)
    await look.all_counts()
    if full:
        await read_tables(look)
    return [*found.findings()]


async def with_report(snapshot: Snapshot, found: UnreadableReport) -> Snapshot:
    """The same store, with another place for what can't be read."""
    client, keys = snapshot.draft.client, snapshot.keys
    look = Snapshot(client, keys, await read_catalog(client, keys, found, snapshot.now), snapshot.now)
    look.knows_all = True
    return look


async def read_tables(look: Snapshot) -> None:
    """Tables that may be long: histories, edges, keys, token buckets."""
    async for found in all_rows(look, statements.HISTORY):
        named = [(f"{row[0]} {row[1]}", row[-1]) for row in found]
        for _ in readable(look.aside, "history entry of task", named, decode_entry):
            pass
    async for found in all_rows(look, statements.EDGES):
        look.converted(EDGES_OF, [(*row[:4], *row[5:]) for row in found])
    async for found in all_rows(look, statements.KEYS):
        look.converted(KEYS, found)
    async for found in all_rows(look, statements.BUCKETS):
        look.converted(BUCKETS_AFTER, found)


async def all_rows(look: Snapshot, table: Table) -> AsyncIterator[list[Row]]:
    """The rows of a table, in chunks, in the order of its first index."""
    index, last = table.indexes[0], None
    while entries := await look.tables.index(index, after=last, most=CHUNK):
        yield await look.tables.rows(table, index, entries)
        last = entries[-1]


async def counts_agree(snapshot: Snapshot) -> list[Finding]:
    """Whether the counts kept with each move agree with counting. What moves while it is counted is counted again."""
    differ: dict[Whose, tuple[int, int]] = {}
    for _ in range(RECOUNTS):
        before, counted, after = await kept_counts(snapshot), await recount(snapshot), await kept_counts(snapshot)
        found = {
            whose: (before.get(whose, 0), counted.get(whose, 0))
            for whose in before.keys() | counted.keys()
            if before.get(whose, 0) == after.get(whose, 0) != counted.get(whose, 0)
        }
        same = {whose: each for whose, each in found.items() if differ.get(whose) == each}
        if not found:
            return [Finding(Level.OK, "counts", f"{sum(counted.values()):,} tasks, as counted")]
        if same:
            return [Finding(Level.ERROR, "counts", difference(snapshot, *each)) for each in sorted(same.items())]
        differ = found
    return [Finding(Level.OK, "counts", "tasks move too fast to be counted; nothing differs for long")]


async def kept_counts(snapshot: Snapshot) -> dict[Whose, int]:
    found = await snapshot.all_counts()
    return {(what, int(whose)): n for what, whose, n in found if what in STATES and n}


async def recount(snapshot: Snapshot) -> Totals[Whose]:
    counted: Totals[Whose] = Totals()
    sets = [snapshot.keys(f"{place}_ids") for place in (Place.TASKS, Place.DEAD)]
    for key in [*sets, *(snapshot.keys.finished_ids(day) for day in await snapshot.days())]:
        low = b"-"
        while members := await snapshot.draft.range(key, low, b"+", CHUNK):
            low = b"(" + members[-1]
            for task in (await snapshot.find_tasks([each.decode() for each in members])).values():
                with suppress(*UNREADABLE):
                    _, track, state, _ = rows.outline(task)
                    counted[state, track] += 1
    return counted


def difference(snapshot: Snapshot, whose: Whose, numbers: tuple[int, int]) -> str:
    track = snapshot.tracks.get(whose[1])
    queue = "an unknown queue" if track is None else track.queue
    return f"{queue}: {numbers[0]:,} {whose[0]} kept, {numbers[1]:,} counted"
