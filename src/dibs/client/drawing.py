"""Draws a workflow, as text or in Mermaid. Many tasks that are alike are drawn as one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from dibs.core.graph import Rule, prerequisites_first
from dibs.core.states import State

if TYPE_CHECKING:
    from dibs.client.graph import GraphNode, WorkflowGraph

__all__ = ["mermaid", "text"]

FOLD_FROM = 13
"""At least this many tasks that are alike are drawn as one."""

AFTER_SHOWN = 6

COLOURS = {
    State.BLOCKED: "#e8d5f2",
    State.SCHEDULED: "#cfe8f3",
    State.PENDING: "#fdf1c7",
    State.RUNNING: "#c9dcfb",
    State.RETRYING: "#fbdcc0",
    State.COMPLETED: "#cdebd0",
    State.CANCELLED: "#dddddd",
    State.DEAD: "#f6c6c6",
}
SHOWN_FIRST = (State.COMPLETED, State.DEAD, State.CANCELLED, State.RUNNING, State.RETRYING)

Near = defaultdict[str, list[tuple[str, Rule]]]
"""The neighbours of each task, with the rule of the edge."""


class Box(Struct, frozen=True):
    """What is drawn as one: a task, or many that are alike; and the boxes that it waits for."""

    tasks: list[GraphNode]
    level: int
    needs: dict[int, Rule]

    @property
    def first(self) -> GraphNode:
        return self.tasks[0]

    @property
    def label(self) -> str:
        name = self.first.name or self.first.id
        return f"{name} × {len(self.tasks):,}" if len(self.tasks) > 1 else name

    @property
    def states(self) -> str:
        if len(self.tasks) == 1:
            return state_text(self.first.state)
        counts = Counter(node.state for node in self.tasks)
        order = dict.fromkeys([*SHOWN_FIRST, *State, None])
        return ", ".join(f"{counts[state]:,} {state_text(state)}" for state in order if counts[state])


def text(graph: WorkflowGraph) -> str:
    """A line per box, numbered, indented by how many steps come before it."""
    rows = []
    for number, box in enumerate(boxes_of(graph), 1):
        needs = sorted((need + 1, rule) for need, rule in box.needs.items())
        notes = [after_text(needs), "not in this workflow" if box.first.outside else ""]
        only = box.first.id if len(box.tasks) == 1 and box.first.name else ""
        rows.append((f"{number:,}", "  " * box.level + box.label, box.states, only, ", ".join(filter(None, notes))))
    return "\n".join(aligned(rows))


def mermaid(graph: WorkflowGraph) -> str:
    """A flow chart in Mermaid's language, coloured by state."""
    boxes = boxes_of(graph)
    lines = ["flowchart TD"]
    by_state: defaultdict[State, list[str]] = defaultdict(list)
    for place, box in enumerate(boxes):
        label = f"{box.label}<br/>{box.states}".replace('"', "#quot;")
        lines.append(f'    t{place}[["{label}"]]' if box.first.outside else f'    t{place}["{label}"]')
        states = {node.state for node in box.tasks}
        if len(states) == 1 and box.first.state is not None:
            by_state[box.first.state].append(f"t{place}")
    for place, box in enumerate(boxes):
        for need, rule in box.needs.items():
            label = "" if rule is Rule.CANCEL else f'|"{rule_text(rule)}"|'
            lines.append(f"    t{need} -->{label} t{place}")
    for state, names in by_state.items():
        lines.append(f"    classDef {state} fill:{COLOURS[state]},color:#000")
        lines.append(f"    class {','.join(names)} {state}")
    return "\n".join(lines)


def state_text(state: State | None) -> str:
    return "pruned" if state is None else str(state)


def rule_text(rule: Rule) -> str:
    return str(rule) if rule is Rule.IF_FAILED else f"otherwise {rule}"


def after_text(needs: Sequence[tuple[int, Rule]]) -> str:
    """What a line waits for, by number."""
    if not needs:
        return ""
    named = [f"{number:,}" if rule is Rule.CANCEL else f"{number:,} ({rule_text(rule)})" for number, rule in needs]
    more = f" and {len(named) - AFTER_SHOWN:,} more" if len(named) > AFTER_SHOWN else ""
    return f"after {', '.join(named[:AFTER_SHOWN])}{more}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Columns of equal width, the first one right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].rjust(widths[0]), *(cell.ljust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()


def boxes_of(graph: WorkflowGraph) -> list[Box]:
    """What to draw: in the order of levels, within a level in the order of the tasks."""
    needs, followers = neighbours(graph)
    order = prerequisites_first({node.id: [need for need, _ in needs[node.id]] for node in graph.nodes})
    kinds = alike(graph, order, needs, followers)
    levels: dict[str, int] = {}
    for task in order:
        levels[task] = max((levels[need] + 1 for need, _ in needs[task]), default=0)
    nodes = sorted(graph.nodes, key=lambda node: levels[node.id])
    members: defaultdict[int, list[GraphNode]] = defaultdict(list)
    for node in nodes:
        members[kinds[node.id]].append(node)
    together: list[list[GraphNode]] = []
    place: dict[str, int] = {}
    for node in nodes:
        if node.id not in place:
            kind = members[kinds[node.id]]
            together.append(kind if len(kind) >= FOLD_FROM else [node])
            place |= {each.id: len(together) - 1 for each in together[-1]}
    return [
        Box(tasks, levels[tasks[0].id], {place[need]: rule for node in tasks for need, rule in needs[node.id]})
        for tasks in together
    ]


def neighbours(graph: WorkflowGraph) -> tuple[Near, Near]:
    needs: Near = defaultdict(list)
    followers: Near = defaultdict(list)
    for edge in graph.edges:
        needs[edge.task].append((edge.after, edge.rule))
        followers[edge.after].append((edge.task, edge.rule))
    return needs, followers


def alike(graph: WorkflowGraph, order: Sequence[str], needs: Near, followers: Near) -> dict[str, int]:
    """The kind of each task: tasks of a kind have the same name, and the same kinds of tasks before and after them.

    Two passes over the edges, however large the workflow is: with the order, then against it. Tasks of a kind are
    equally many steps from the start, so drawing them as one makes no cycle.
    """
    own = {node.id: (node.name, node.queue, node.outside) for node in graph.nodes}
    from_start = numbered(order, own, needs)
    return numbered(order[::-1], from_start, followers)


def numbered(order: Sequence[str], own: Mapping[str, object], near: Near) -> dict[str, int]:
    """The same number for tasks with the same `own` facts and neighbours of the same numbers, which come first."""
    numbers: dict[tuple[object, ...], int] = {}
    found: dict[str, int] = {}
    for task in order:
        around = frozenset((found[other], rule) for other, rule in near[task])
        found[task] = numbers.setdefault((own[task], around), len(numbers))
    return found
