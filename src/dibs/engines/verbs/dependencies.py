"""Tasks that wait for others: what follows when one of them ends, leaves or becomes more urgent.

Each step takes follow-ups of one kind and a bound, does as much as the bound allows with a fixed number of writes, and
answers how much it did and which follow-ups are not finished. It stores no progress of its own: an edge that has been
judged is closed, and an edge that has passed its urgency on has it stored.

Two transactions may judge different edges of one dependent at the same time. Each loads the dependent first and reads
the open edges afterwards, so the second one sees which edges the first has closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from dibs.core.graph import FOLLOW_UP_BUDGET, Rule
from dibs.core.ids import is_id
from dibs.core.moves import inherits
from dibs.core.states import UNFINISHED
from dibs.core.task import TaskRecord
from dibs.engines.decisions.dependencies import ANY_WEIGHT, judged, release
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.decisions.workflows import Outgoing
from dibs.engines.port import Found, Port, Read, View
from dibs.engines.values import Edges, Need
from dibs.engines.verbs.records import NEEDING, Records, ids_among

__all__ = ["EDGES_OF", "close_edges", "edges", "forget", "inherit_again", "pass_on_urgency", "release_dependents"]


class Incoming(Struct, array_like=True, frozen=True):
    """An open edge that leads to one of some tasks."""

    position: int
    dependent: str
    slot: int
    rule: Rule


class OpenEdge(Struct, array_like=True, frozen=True):
    """An edge as its dependent knows it."""

    dependent: str
    slot: int
    prerequisite: str


OPEN_EDGES_TO = Read("open_edges_to", Incoming, "edge of task", (1,))
"""Takes prerequisites and how many: the open edges that lead to them, most urgent first."""
OPEN_EDGES_OF = Read("open_edges_of", OpenEdge, "edge of task")
"""Takes (dependent, weight) rows and how many: open edges of these tasks that have another weight."""
EDGES_OF = Read("edges_of", Outgoing, "edge of task")
"""Takes dependents: all of their edges, in their order."""
HEAVIEST = Read("heaviest", tuple[str, int], "edge to task")
"""Takes ids: the highest weight of the open edges that lead to each, without those that nobody waits for."""
texts_decoder = msgspec.json.Decoder(list[str])


async def release_dependents(port: Port, steps: list[Step], most: int) -> Done:
    """Judge open edges that lead to tasks that have ended."""
    found = await port.fetch(OPEN_EDGES_TO, [step.about for step in steps], most)
    stuck = {row[0] for row in found.unread}
    edges = [edge for edge in found.rows if edge.position not in stuck]
    # Follow-ups with an unreadable edge stay stored for a process that can read it.
    port.stuck += [steps[place] for place in sorted(stuck)]
    first = found.last[0] if found.number == most and found.last is not None else len(steps)
    unfinished = [steps[place] for place in range(first, len(steps)) if place not in stuck]
    if edges:
        ends, goes = judged(steps, [(edge.position, edge.dependent, edge.slot, edge.rule) for edge in edges])
        records = Records(port)
        await records.load([*ends, *goes])
        await port.write("close_edges", [(edge.dependent, edge.slot) for edge in edges])
        release(port, records, ends, await ids_among(port, NEEDING, goes))
        await records.flush()
    return max(len(edges), len(steps) - len(unfinished)), unfinished


async def close_edges(port: Port, steps: list[Step], most: int) -> Done:
    """Close the open edges of tasks that have ended while they waited."""
    edges = await open_edges(port, {step.about: ANY_WEIGHT for step in steps}, most)
    if edges.rows:
        await port.write("close_edges", [(edge.dependent, edge.slot) for edge in edges.rows])
        await inherit_again(port, [edge.prerequisite for edge in edges.rows])
    return walked(edges, steps, most)


async def pass_on_urgency(port: Port, steps: list[Step], most: int) -> Done:
    """What some tasks wait for learns of their new urgency."""
    found = await port.find([step.about for step in steps])
    urgencies = {task_id: record.urgency for task_id, record in found.items() if isinstance(record, TaskRecord)}
    edges = await open_edges(port, urgencies, most)
    if edges.rows:
        weights = [(edge.dependent, edge.slot, urgencies[edge.dependent]) for edge in edges.rows]
        await port.write("save_edge_weights", weights)
        await inherit_again(port, [edge.prerequisite for edge in edges.rows])
    return walked(edges, steps, most)


async def open_edges(port: Port, weights: dict[str, int], most: int) -> Found[OpenEdge]:
    """Some open edges of tasks that weigh otherwise."""
    return await port.fetch(OPEN_EDGES_OF, [*weights.items()], most) if weights else Found([], 0, None)


def walked(edges: Found[OpenEdge], steps: list[Step], most: int) -> Done:
    """Edges that can't be read stay open, and end nothing by themselves."""
    more = edges.number == most and bool(edges.rows)
    return max(len(edges.rows), len(steps)), steps if more else []


async def inherit_again(port: Port, ids: Sequence[str]) -> None:
    """Unfinished tasks get the urgency of the most urgent ones that wait for them."""
    wanted = iter(sorted(set(ids)))
    while part := list(islice(wanted, FOLLOW_UP_BUDGET)):
        records = Records(port)
        await records.load(part)
        unfinished = [record for record in records.current.values() if record.state in UNFINISHED]
        heaviest = dict(await port.read(HEAVIEST, [record.id for record in unfinished])) if unfinished else {}
        for record in unfinished:
            weight = heaviest.get(record.id, 0)
            if weight != record.inherited:
                records.put(inherits(record, weight, port.settings(record.queue), port.now))
        await records.flush()


async def forget(port: Port, steps: list[Step], most: int) -> Done:
    """Delete the edges of tasks that are gone."""
    step = steps[0]
    ids = texts_decoder.decode(step.about)
    if step.n is not None:  # a task of the same id may have been enqueued since then
        there = await port.find(ids)
        ids = [each for each in ids if each not in there]
    deleted = await port.write("forget_edges", ids, most)
    return max(1, deleted), steps if deleted == most else steps[1:]


async def edges(view: View, ids: Sequence[str], followers: int) -> list[Edges]:
    needs: dict[str, list[Need]] = {task_id: [] for task_id in ids}
    for edge in await view.read(EDGES_OF, list(filter(is_id, needs))):
        needs[edge.dependent].append(Need(edge.prerequisite, edge.rule, bool(edge.is_open)))
    return [Edges(needs[task_id], await followers_of(view, task_id, followers)) for task_id in ids]


async def followers_of(view: View, task_id: str, limit: int) -> list[str]:
    found = await view.read(OPEN_EDGES_TO, [task_id], limit) if limit and is_id(task_id) else []
    return sorted({edge.dependent for edge in found})
