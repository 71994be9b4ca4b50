"""Edges between tasks, and workflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dibs.core.states import State
from dibs.engines.decisions.records import Place
from dibs.engines.redis import rows
from dibs.engines.redis.statements.names import ALL, read, same, write
from dibs.engines.redis.tables import Index, Row, Table

if TYPE_CHECKING:
    from dibs.engines.redis.snapshot import Snapshot
    from dibs.engines.redis.transaction import Transaction

__all__ = ["EDGES", "EDGE_ORDER", "MEMBERS", "members_in"]

# Edges.

EDGE_ORDER = Index("edge_order", "si", lambda row: row[:2], (0, 1))
FOLLOWED = Index("followed", "sisis", lambda row: (row[2], -row[4], row[0], row[1], row[3]) if row[5] else None, (2, 3))
NEEDED = Index("needed", "si", lambda row: row[:2] if row[5] else None, (0, 1))
EDGES = Table("edges", 2, (EDGE_ORDER, FOLLOWED, NEEDED))  # dependent, slot, prerequisite, rule, weight, open


async def having(view: Snapshot, index: Index, ids: list[str]) -> list[str]:
    found = await view.tables.indexes(index, [((each,), None) for each in ids], most=1, guard=True)
    return [each for each, entries in zip(ids, found, strict=True) if entries]


@read
async def followed(view: Snapshot, ids: list[str]) -> list[str]:
    return await having(view, FOLLOWED, ids)


@read
async def needing(view: Snapshot, ids: list[str]) -> list[str]:
    return await having(view, NEEDED, ids)


@read
async def edges_of(view: Snapshot, ids: list[str]) -> list[Row]:
    found = await view.tables.indexes(EDGE_ORDER, [((each,), None) for each in ids], most=ALL)
    edges = await view.tables.some(EDGES, [entry for entries in found for entry in entries])
    return [(*row[:4], row[5]) for row in edges]


@read
async def open_edges_of(view: Snapshot, wanted: list[Row], most: int) -> list[Row]:
    found: list[Row] = []
    for dependent, weight in wanted:
        if len(found) < most:
            entries = await view.tables.index(NEEDED, (dependent,), most=ALL)
            edges = await view.tables.some(EDGES, entries)
            found += [row[:3] for row in edges if row[4] != weight]
    return found[:most]


@read
async def open_edges_to(view: Snapshot, ids: list[str], most: int) -> list[Row]:
    found = await view.tables.indexes(FOLLOWED, [((each,), None) for each in ids], most=most)
    return [(place, *entry[2:]) for place, entries in enumerate(found) for entry in entries][:most]


@read
async def heaviest(view: Snapshot, ids: list[str]) -> list[Row]:
    found = await view.tables.indexes(FOLLOWED, [((each,), None) for each in ids], most=1)
    return [(each, -entries[0][1]) for each, entries in zip(ids, found, strict=True) if entries]


@write
async def save_edges(port: Transaction, found: list[Row]) -> int:
    await port.tables.put(EDGES, [(*row[:5], int(row[5])) for row in found])
    return len(found)


async def change_edges(port: Transaction, found: list[Row], change: Callable[[Row, Row], Row]) -> int:
    for asked, row in zip(found, await port.tables.get(EDGES, found), strict=True):
        if row is not None:
            port.tables.replace(EDGES, row, change(row, asked))
    return len(found)


@write
async def close_edges(port: Transaction, found: list[Row]) -> int:
    return await change_edges(port, found, lambda row, _: (*row[:5], 0))


@write
async def open_edges(port: Transaction, found: list[Row]) -> int:
    return await change_edges(port, found, lambda row, asked: (*row[:4], asked[2], 1))


@write
async def save_edge_weights(port: Transaction, found: list[Row]) -> int:
    return await change_edges(port, found, lambda row, asked: (*row[:4], asked[2], row[5]))


@write
async def forget_edges(port: Transaction, ids: list[str], most: int) -> int:
    found = await port.tables.indexes(EDGE_ORDER, [((each,), None) for each in ids], most=most)
    return await port.tables.delete(EDGES, [entry for entries in found for entry in entries][:most])


# Workflows.

WORKFLOW_ORDER = Index("workflow_order", "s", lambda row: row[:1])
WORKFLOWS = Table("workflows", 1, (WORKFLOW_ORDER,))  # id, name, created_at, total
MEMBERS = Index("members", rows.MEMBERS, same, (2,))  # workflow, place, task, state, reason


@read
async def workflow(view: Snapshot, workflow_id: str) -> list[Row]:
    return await view.tables.one(WORKFLOWS, workflow_id)


@read
async def workflows(view: Snapshot, before: str | None, most: int) -> list[Row]:
    after = None if before is None else (before,)
    found = await view.tables.index(WORKFLOW_ORDER, after=after, most=most, downwards=True)
    return await view.tables.some(WORKFLOWS, found)


@read
async def workflows_after(view: Snapshot, after: str | None, most: int) -> list[Row]:
    found = await view.tables.index(WORKFLOW_ORDER, after=None if after is None else (after,), most=most)
    members = await view.tables.indexes(MEMBERS, [(row, None) for row in found], most=1)
    return [(row[0], not each) for row, each in zip(found, members, strict=True)]


@write
async def add_workflow(port: Transaction, *row: Any) -> int:
    if await port.tables.one(WORKFLOWS, row[0]):
        return 0
    await port.tables.put(WORKFLOWS, [(*row, 0)])
    return 1


@write
async def count_members(port: Transaction, found: list[Row]) -> int:
    for (_, n), row in zip(found, await port.tables.get(WORKFLOWS, found), strict=True):
        if row is not None:
            port.tables.replace(WORKFLOWS, row, (*row[:3], row[3] + n))
    return len(found)


@write
async def delete_workflows(port: Transaction, ids: list[str]) -> int:
    return await port.tables.delete(WORKFLOWS, [(each,) for each in ids])


@read
async def count_by_state(view: Snapshot, ids: list[str]) -> list[Row]:
    found = await view.tables.indexes(MEMBERS, [((each,), None) for each in ids], most=ALL)
    totals: dict[tuple[str, str], int] = {}
    for row in (each for entries in found for each in entries):
        totals[row[0], row[3]] = totals.get((row[0], row[3]), 0) + 1
    return [(*key, n) for key, n in totals.items()]


async def members_in(
    view: Snapshot, workflow_id: str, place: Place, after: str | None, most: int, downwards: bool = False
) -> list[Row]:
    prefix = (workflow_id, place)
    start: Row | None = None if after is None else (*prefix, after)
    if start is not None and not downwards:
        start = (*start, "\U0010ffff")
    return await view.tables.index(MEMBERS, prefix, after=start, most=most, downwards=downwards)


@read
async def newest_members(view: Snapshot, before: str | None, most: int, *wanted: Any) -> list[Row]:
    *places, workflow_id = wanted
    found: list[Row] = []
    for is_wanted, place in zip(places, (Place.TASKS, Place.DEAD, Place.FINISHED), strict=True):
        if is_wanted:
            found += await members_in(view, workflow_id, place, before, most, downwards=True)
    ids = sorted((row[2] for row in found), reverse=True)[:most]
    tasks = await view.find_tasks(ids)
    return [rows.outline(tasks[each]) for each in ids if each in tasks]


@read
async def dead_members(view: Snapshot, workflow_id: str, after: str | None, most: int) -> list[str]:
    return [row[2] for row in await members_in(view, workflow_id, Place.DEAD, after, most)]


@read
async def cancelled_members(view: Snapshot, workflow_id: str, after: str | None, most: int) -> list[str]:
    found = await members_in(view, workflow_id, Place.FINISHED, after, ALL)
    return [row[2] for row in found if row[3:] == (State.CANCELLED, "dependency")][:most]


@read
async def cancellable_member(view: Snapshot, workflow_id: str) -> list[str]:
    found = await members_in(view, workflow_id, Place.TASKS, None, ALL)
    return [row[2] for row in found if row[3:] != (State.RUNNING, "asked")][:1]


@read
async def replayable_member(view: Snapshot, workflow_id: str) -> list[str]:
    dead = await dead_members(view, workflow_id, None, 1)
    return dead or await cancelled_members(view, workflow_id, None, 1)
