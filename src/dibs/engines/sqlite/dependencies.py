"""Tasks that wait for others: what follows when one of them ends, is deleted or becomes more urgent.

Each step takes follow-ups of one kind and a bound, does as much as the bound allows with a fixed number of statements,
and answers how much that was and which follow-ups are not finished. Progress needs no note of its own: a judged edge
is closed, and an edge whose urgency was passed on has its new weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from dibs.core.graph import FOLLOW_UP_BUDGET, Rule
from dibs.core.moves import inherits
from dibs.engines.decisions.dependencies import ANY_WEIGHT, judged, release
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.follow_ups import Done, FollowUp
from dibs.engines.sqlite.records import Records
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.values import Edges, Need

__all__ = ["NEEDS", "close_edges", "edges", "follow_ends", "forget", "inherit_again", "pass_on_urgency"]


class Incoming(Struct, array_like=True, frozen=True):
    """An open edge that leads to one of some tasks."""

    position: int
    dependent: str
    slot: int
    rule: Rule


class Edge(Struct, array_like=True, frozen=True):
    """An edge as its dependent stores it."""

    dependent: str
    slot: int
    prerequisite: str


INCOMING = RowDecoder(Incoming, "edge of task", 1)
EDGES = RowDecoder(Edge, "edge of task")
HEIRS = RowDecoder(tuple[str, int], "edge to task")
NEEDS = RowDecoder(tuple[str, str, Rule, int], "edge of task")
texts_decoder = msgspec.json.Decoder(list[str])


def follow_ends(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Judge open edges that lead to tasks that have ended."""
    asked = to_json([follow_up.about for follow_up in follow_ups])
    found, stuck, last = incoming(transaction, asked, most)
    edges = [edge for edge in found if edge.position not in stuck]
    # Follow-ups with an unreadable edge stay stored for a process that can read it.
    transaction.stuck += [follow_ups[place] for place in sorted(stuck)]
    first = len(follow_ups) if last is None else last
    unfinished = [follow_ups[place] for place in range(first, len(follow_ups)) if place not in stuck]
    if edges:
        transaction.write("close_edges", to_json([(edge.dependent, edge.slot) for edge in edges]))
        ends, goes = judged(follow_ups, [(edge.position, edge.dependent, edge.slot, edge.rule) for edge in edges])
        records = Records(transaction)
        needing = records.ids_where("needing", goes)
        records.load([*ends, *(each for each in goes if each not in needing)])
        release(transaction, records, ends, needing)
        records.flush()
    return max(len(edges), len(follow_ups) - len(unfinished)), unfinished


def incoming(snapshot: Snapshot, asked: str, most: int) -> tuple[list[Incoming], set[int], int | None]:
    """Open edges that lead to some tasks, and the positions of tasks with an unreadable edge.

    And the position of the last task, if there may be more edges.
    """

    def one_by_one(rows: list[tuple[Any, ...]]) -> tuple[list[Incoming], set[int], int | None]:
        found = INCOMING.one_by_one(rows, snapshot.aside)
        known = {(edge.position, edge.dependent, edge.slot) for edge in found}
        stuck = {row[0] for row in rows if row[:3] not in known}
        return found, stuck, rows[-1][0] if len(rows) == most else None

    def together(text: str) -> tuple[list[Incoming], set[int], int | None]:
        found = INCOMING.decode(text)
        return found, set(), found[-1].position if len(found) == most else None

    return snapshot.together_or_each(together, one_by_one, "open_edges_to", asked, most)


def close_edges(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Close the open edges of tasks that have ended while they waited."""
    edges, more = open_edges(transaction, {follow_up.about: ANY_WEIGHT for follow_up in follow_ups}, most)
    if edges:
        transaction.write("close_edges", to_json([(edge.dependent, edge.slot) for edge in edges]))
        inherit_again(transaction, [edge.prerequisite for edge in edges])
    return max(len(edges), len(follow_ups)), follow_ups if more else []


def pass_on_urgency(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Pass new urgencies of some tasks on to what they wait for."""
    records = Records(transaction, [follow_up.about for follow_up in follow_ups])
    urgencies = {record.id: record.urgency for record in records.current.values()}
    edges, more = open_edges(transaction, urgencies, most)
    if edges:
        weights = [(edge.dependent, edge.slot, urgencies[edge.dependent]) for edge in edges]
        transaction.write("save_edge_weights", to_json(weights))
        inherit_again(transaction, [edge.prerequisite for edge in edges])
    return max(len(edges), len(follow_ups)), follow_ups if more else []


def open_edges(transaction: Transaction, weights: dict[str, int], most: int) -> tuple[list[Edge], bool]:
    """Some open edges of tasks whose weight has changed; and whether there may be more."""
    edges, last = transaction.page(EDGES, "open_edges_of", to_json(list(weights.items())), most)
    return edges, last is not None and bool(edges)  # unreadable edges stay open and don't count as progress


def inherit_again(transaction: Transaction, ids: list[str]) -> None:
    """Give unfinished tasks the urgency of the most urgent task that waits for them."""
    wanted = iter(dict.fromkeys(ids))
    while part := list(islice(wanted, FOLLOW_UP_BUDGET)):
        changed = dict(transaction.many(HEIRS, "inherited_otherwise", to_json(part)))
        records = Records(transaction, changed)
        for record in list(records.current.values()):
            settings = transaction.settings(record.queue)
            records.put(inherits(record, changed[record.id], settings, transaction.now))
        records.flush()


def forget(transaction: Transaction, follow_ups: list[FollowUp], most: int) -> Done:
    """Delete the edges of deleted tasks."""
    follow_up = follow_ups[0]
    ids = texts_decoder.decode(follow_up.about)
    if follow_up.n is not None:  # a task with the same id may have been enqueued since
        there = transaction.find(ids)
        ids = [each for each in ids if each not in there]
    deleted = transaction.write("forget_edges", to_json(ids), most)
    return max(1, deleted), follow_ups if deleted == most else follow_ups[1:]


def edges(snapshot: Snapshot, ids: Sequence[str], followers: int) -> list[Edges]:
    needs: dict[str, list[Need]] = {task_id: [] for task_id in ids}
    for dependent, prerequisite, rule, is_open in snapshot.many(NEEDS, "needs", to_json(list(needs))):
        needs[dependent].append(Need(prerequisite, rule, bool(is_open)))
    return [Edges(needs[task_id], followers_of(snapshot, task_id, followers)) for task_id in ids]


def followers_of(snapshot: Snapshot, task_id: str, limit: int) -> list[str]:
    found = incoming(snapshot, to_json([task_id]), limit)[0] if limit else []
    return sorted({edge.dependent for edge in found})
