"""The tasks of a workflow and what each waits for, as values."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct, structs

from dibs.client import drawing
from dibs.core.graph import Rule
from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.engines.base import Engine
from dibs.engines.values import Page, Query, UnreadableTask

__all__ = ["GraphEdge", "GraphNode", "WorkflowGraph", "pages", "read_graph"]

PAGE = 500


class GraphNode(Struct, frozen=True, kw_only=True):
    """One task. `outside`: others wait for it, but it is not a member. `state` None: its record has been pruned."""

    id: str
    """Its id."""
    name: str
    """Its name."""
    queue: str
    """Its queue."""
    state: State | None
    """None: its record has been pruned."""
    outside: bool = False
    """Others wait for it, but it is not a member."""


class GraphEdge(Struct, frozen=True, kw_only=True):
    """`task` waits for `after`, or did, if it is no longer open."""

    task: str
    """The task that waits."""
    after: str
    """What it waits for."""
    rule: Rule
    """What becomes of `task` if `after` does not complete."""
    is_open: bool
    """Whether it still waits."""


class WorkflowGraph(Struct, frozen=True, kw_only=True):
    """All tasks of a workflow, in the order in which they were made, and the edges between them."""

    id: str
    """Its id."""
    name: str
    """Its name."""
    nodes: list[GraphNode]
    """In the order in which they were made."""
    edges: list[GraphEdge]
    """Who waits for whom."""

    def text(self) -> str:
        """For a terminal: a line per task, or per many that are alike, each after those that it waits for."""
        return drawing.text(self)

    def mermaid(self) -> str:
        """For https://mermaid.js.org, which many wikis and code hosts draw."""
        return drawing.mermaid(self)


async def read_graph(engine: Engine, workflow_id: str, name: str) -> WorkflowGraph:
    """All tasks and edges of a workflow, read in bounded steps."""
    members = await read_members(engine, workflow_id)
    nodes = {record.id: node_of(record) for record in members}
    edges: list[GraphEdge] = []
    ids = list(nodes)
    for start in range(0, len(ids), PAGE):
        chunk = ids[start : start + PAGE]
        for task_id, found in zip(chunk, await engine.edges(chunk), strict=True):
            edges += [GraphEdge(task=task_id, after=n.id, rule=n.rule, is_open=n.is_open) for n in found.needs]
    outside = list(dict.fromkeys(edge.after for edge in edges if edge.after not in nodes))
    before: dict[str, GraphNode] = {}
    for start in range(0, len(outside), PAGE):
        chunk = outside[start : start + PAGE]
        for task_id, record in zip(chunk, await engine.get(chunk), strict=True):
            gone = GraphNode(id=task_id, name="", queue="", state=None)
            known = gone if record is None else node_of(record)
            member = isinstance(record, TaskRecord) and record.spec.workflow == workflow_id
            before[task_id] = structs.replace(known, outside=not member)
    return WorkflowGraph(id=workflow_id, name=name, nodes=[*before.values(), *nodes.values()], edges=edges)


async def read_members(engine: Engine, workflow_id: str) -> list[TaskRecord]:
    """The records of a workflow, oldest first."""
    query = Query(workflow=workflow_id, limit=PAGE)
    found = {record.id: record async for page in pages(engine, query) for record in page.records}
    return [found[task_id] for task_id in sorted(found)]


async def pages(engine: Engine, query: Query) -> AsyncIterator[Page]:
    """All pages of a search."""
    while True:
        page = await engine.search(query)
        yield page
        if page.cursor is None:
            return
        query = structs.replace(query, cursor=page.cursor)


def node_of(record: TaskRecord | UnreadableTask) -> GraphNode:
    return GraphNode(id=record.id, name=record.name, queue=record.queue, state=record.state)
