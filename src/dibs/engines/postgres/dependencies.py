"""Tasks that wait for others: what follows when one of them ends, is deleted or becomes more urgent.

Each step takes follow-ups of one kind and a bound, does as much as the bound allows with a fixed number of statements,
and answers how much that was and which follow-ups are not finished. Progress needs no note of its own: a judged edge
is closed, and an edge whose urgency was passed on has its new weight.

Two transactions may judge different edges of one dependent at the same time. Each locks the dependent first and reads
the open edges afterwards, so the second one sees which edges the first has closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from dibs.core.graph import FOLLOW_UP_BUDGET, Rule
from dibs.core.moves import inherits
from dibs.core.states import UNFINISHED
from dibs.engines.decisions.dependencies import ANY_WEIGHT, judged, release
from dibs.engines.decisions.follow_ups import Done, FollowUp
from dibs.engines.postgres.records import Records
from dibs.engines.postgres.rows import Row, columns
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.values import Edges, Need

__all__ = [
    "close_edges",
    "edges",
    "follow_ends",
    "forget",
    "inherit_again",
    "known_rule",
    "pass_on_urgency",
]

Edge = tuple[str, int, str]
"""Dependent, slot, prerequisite."""

RULES = frozenset(Rule)
texts_decoder = msgspec.json.Decoder(list[str])


async def follow_ends(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Judge open edges that lead to tasks that have ended."""
    found = await transaction.rows("open_edges_to", [follow_up.about for follow_up in follow_ups], most)
    stuck = {edge["position"] for edge in found if not known_rule(transaction, edge)}
    edges = [edge for edge in found if edge["position"] not in stuck]
    # Follow-ups with an unreadable edge stay stored for a process that can read it.
    transaction.stuck += [follow_ups[place] for place in sorted(stuck)]
    first = max(edge["position"] for edge in found) if len(found) == most else len(follow_ups)
    unfinished = [follow_ups[place] for place in range(first, len(follow_ups)) if place not in stuck]
    if edges:
        asked = [(edge["position"], str(edge["dependent"]), edge["slot"], Rule(edge["rule"])) for edge in edges]
        ends, goes = judged(follow_ups, asked)
        records = Records(transaction)
        await records.load([*ends, *goes])
        await transaction.write("close_edges", [e["dependent"] for e in edges], [e["slot"] for e in edges])
        release(transaction, records, ends, await records.ids_where("needing", goes))
        await records.flush()
    return max(len(edges), len(follow_ups) - len(unfinished)), unfinished


def known_rule(snapshot: Snapshot, edge: Row) -> bool:
    """Whether this version knows the rule of an edge."""
    if edge["rule"] in RULES:
        return True
    snapshot.aside.log_once("edge of task", edge["dependent"], f"this version does not know its rule {edge['rule']!r}")
    return False


async def close_edges(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Close the open edges of tasks that have ended while they waited."""
    edges = await open_edges(transaction, {follow_up.about: ANY_WEIGHT for follow_up in follow_ups}, most)
    if edges:
        await transaction.write("close_edges", [edge[0] for edge in edges], [edge[1] for edge in edges])
        await inherit_again(transaction, [edge[2] for edge in edges])
    return max(len(edges), len(follow_ups)), follow_ups if len(edges) == most else []


async def pass_on_urgency(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Pass new urgencies of some tasks on to what they wait for."""
    found = await transaction.find([follow_up.about for follow_up in follow_ups])
    urgencies = {record.id: record.urgency for record in transaction.records(found.values())}
    edges = await open_edges(transaction, urgencies, most)
    if edges:
        weights = [(edge[0], edge[1], urgencies[edge[0]]) for edge in edges]
        await transaction.write("save_edge_weights", *columns(weights, 3))
        await inherit_again(transaction, [edge[2] for edge in edges])
    return max(len(edges), len(follow_ups)), follow_ups if len(edges) == most else []


async def open_edges(transaction: Transaction, weights: dict[str, int], most: int) -> list[Edge]:
    """Some open edges of tasks whose weight has changed."""
    rows = await transaction.rows("open_edges_of", list(weights), list(weights.values()), most)
    return [(str(row["dependent"]), row["slot"], str(row["prerequisite"])) for row in rows]


async def inherit_again(transaction: Transaction, ids: Sequence[str]) -> None:
    """Give unfinished tasks the urgency of the most urgent task that waits for them."""
    wanted = iter(sorted(set(ids)))
    while part := list(islice(wanted, FOLLOW_UP_BUDGET)):
        records = Records(transaction)
        await records.load(part)
        unfinished = [record.id for record in records.current.values() if record.state in UNFINISHED]
        heaviest = {str(row["id"]): row["weight"] for row in await transaction.rows("heaviest", unfinished)}
        for record in [records.current[task_id] for task_id in unfinished]:
            weight = heaviest.get(record.id, 0)
            if weight != record.inherited:
                records.put(inherits(record, weight, transaction.settings(record.queue), transaction.now))
        await records.flush()


async def forget(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Delete the edges of deleted tasks."""
    follow_up = follow_ups[0]
    ids = texts_decoder.decode(follow_up.about)
    if follow_up.n is not None:  # a task with the same id may have been enqueued since
        there = await transaction.find(ids)
        ids = [each for each in ids if each not in there]
    deleted = await transaction.write("forget_edges", ids, most)
    return max(1, deleted), follow_ups if deleted == most else follow_ups[1:]


async def edges(snapshot: Snapshot, ids: Sequence[str], followers: int) -> list[Edges]:
    needs: dict[str, list[Need]] = {task_id: [] for task_id in ids}
    for row in await snapshot.rows("needs", list(needs)):
        if known_rule(snapshot, row):
            needs[str(row["dependent"])].append(Need(str(row["prerequisite"]), Rule(row["rule"]), row["open"]))
    return [Edges(needs[task_id], await followers_of(snapshot, task_id, followers)) for task_id in ids]


async def followers_of(snapshot: Snapshot, task_id: str, limit: int) -> list[str]:
    found = await snapshot.rows("open_edges_to", [task_id], limit) if limit else []
    return sorted({str(edge["dependent"]) for edge in found})
