"""From calls that wait for each other to a batch that an engine can store."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from dibs.client.dependencies import Flow, few_enough
from dibs.client.flow import Chain, Group
from dibs.client.handle import Handle
from dibs.client.producer import enqueue_many
from dibs.client.task import Call
from dibs.core.graph import Edge, find_cycle, prerequisites_first
from dibs.core.options import brief, shown
from dibs.core.task import NewTask, with_spec
from dibs.engines.values import EnqueueAnswer
from dibs.errors import DependencyCycle, InvalidOption
from dibs.runtime.hub import Hub

__all__ = ["Batch", "assemble", "enqueue_in_order", "in_order", "workflow_id"]

MOST_LINKS = 200_000
"""The most edges that chains may make in one workflow: a group of 1,000 after a group of 1,000 would have a million."""

CYCLE_SHOWN = 8
"""Tasks of a cycle that the error names."""

Ends = tuple[Handle[Any] | Call[Any], ...]


class Batch(Struct, frozen=True):
    """A workflow as it is enqueued: its id, its calls in the order of the flow, its tasks prerequisites first."""

    workflow: str
    calls: list[Call[Any]]
    tasks: list[NewTask]


def assemble(flow: Flow[Any]) -> Batch:
    """All calls of a flow, with the edges that the flow implies."""
    if not isinstance(flow, Flow):
        raise InvalidOption(f"a workflow is made of calls, chains and groups, not of {shown(flow)}.")
    calls, before = collect(flow)
    if not calls:
        raise InvalidOption("a workflow needs at least one task.")
    check_calls(calls.values())
    workflow = workflow_id(next(iter(calls)))
    tasks = [linked(call.new, before.get(call.id, ()), workflow) for call in calls.values()]
    return Batch(workflow, list(calls.values()), in_order(tasks))


def collect(flow: Flow[Any]) -> tuple[dict[str, Call[Any]], Mapping[str, list[Ends]]]:
    """The calls of a flow by id, with those that they need, and what each waits for because of a chain."""
    calls: dict[str, Call[Any]] = {}
    before: defaultdict[str, list[Ends]] = defaultdict(list)
    seen: set[int] = set()
    links = 0
    stack: list[Flow[Any]] = [flow]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Call):
            if part.id in calls:
                raise InvalidOption(f"two calls of this workflow have the id {part.id}.")
            calls[part.id] = part
            stack += reversed(part.needs)
        elif isinstance(part, Group):
            stack += reversed(part.members)
        elif isinstance(part, Chain):
            stack += reversed(part.steps)
            for earlier, later in zip(part.steps, part.steps[1:], strict=False):
                links += len(earlier.last_tasks) * len(later.first_tasks)
                check_links(links)
                for call in later.first_tasks:
                    before[call.id].append(earlier.last_tasks)
    return calls, before


def check_links(links: int) -> None:
    if links > MOST_LINKS:
        raise InvalidOption(
            f"this workflow would have more than {MOST_LINKS:,} dependencies: in a chain, each start of a step waits "
            "for each end of the step before. Put a task between two large groups."
        )


def check_calls(calls: Iterable[Call[Any]]) -> None:
    for call in calls:
        options = call.task.options
        if options.connection is not None or options.block is not None:
            raise InvalidOption("a workflow is one transaction of its own: leave connection= and block= out.")
        if options.key is not None:
            raise InvalidOption(
                f"a workflow is enqueued as a whole, and the key of {call.new.name} could leave a part of it out. "
                "Enqueue a task that has the key, and let that task enqueue the workflow."
            )


def workflow_id(first: str) -> str:
    """The id of the workflow that begins with this call: enqueueing the same flow again gives the same one."""
    return first[:-12] + hashlib.sha256(first.encode()).hexdigest()[:12]


def linked(new: NewTask, before: Iterable[Ends], workflow: str) -> NewTask:
    """The task as a member of the workflow. Edges that the author has given keep their rules and places."""
    edges = {edge.id: edge for edge in new.after}
    for ends in before:
        for end in ends:
            if end.id not in edges:
                edges[end.id] = Edge(end.id)
    return with_spec(structs.replace(new, after=few_enough(edges)), workflow=workflow)


def in_order(tasks: Sequence[NewTask]) -> list[NewTask]:
    """The tasks so that each comes after those that it waits for."""
    edges = {new.id: [edge.id for edge in new.after] for new in tasks}
    by_id: dict[str, NewTask] = {}
    for new in tasks:
        if by_id.setdefault(new.id, new) is not new:
            raise InvalidOption(f"two calls of this batch have the id {new.id}.")
    cycle = find_cycle(edges)
    if cycle is not None:
        names = [f"{by_id[task_id].name} {task_id}" for task_id in cycle[:-1]]
        more = f" → {len(names) - CYCLE_SHOWN:,} more" if len(names) > CYCLE_SHOWN else ""
        path = brief(f"{' → '.join(names[:CYCLE_SHOWN])}{more} → {names[0]}", 400)
        raise DependencyCycle(f"these tasks would wait for each other for ever: {path}.", ids=cycle)
    for new in tasks:
        for need in edges[new.id]:
            if need in by_id and by_id[need].spec.key is not None:
                raise InvalidOption(
                    f"{new.name} can't wait for {by_id[need].name} in the same batch, as that has a key and may turn "
                    "out to be an earlier task. Enqueue that one first, and wait for its handle."
                )
    return [by_id[task_id] for task_id in prerequisites_first(edges)]


async def enqueue_in_order(hub: Hub, tasks: Sequence[NewTask]) -> list[EnqueueAnswer]:
    """All or nothing, in whatever order tasks that wait for each other are given; answers in that order."""
    if not any(new.after for new in tasks):
        return await enqueue_many(hub, tasks)
    ordered = in_order(tasks)
    answers = dict(zip((new.id for new in ordered), await enqueue_many(hub, ordered), strict=True))
    return [answers[new.id] for new in tasks]
