"""Tasks that wait for other tasks: what an edge means, how a batch is ordered, and which task inherits what.

An edge leads from a *dependent* to a *prerequisite*. It is open until the prerequisite has ended; then its rule says
what becomes of the dependent. Edges are only ever made together with their dependent and lead to tasks that are
already known, so a cycle can only lie within one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from dibs.core.states import ENDED, State

MOST_EDGES = 10_000
"""What one task may wait for."""


FOLLOW_UP_BUDGET = 1_000
"""Edges or tasks that one verb follows up; the rest is left to claims."""


class Rule(StrEnum):
    """What becomes of a dependent whose prerequisite ended dead or cancelled."""

    CANCEL = "cancel"
    FAIL = "fail"  # dead, to be replayed
    RUN = "run"  # as if it had completed
    IF_FAILED = "if failed"  # run only then, to clean up: if it completes, the dependent is cancelled


class Verdict(StrEnum):
    """What an edge says about its dependent."""

    WAIT = "wait"
    GO = "go"
    CANCEL = "cancel"
    BURY = "bury"


class Edge(Struct, gc=False, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Wait for the task `id`."""

    id: str
    rule: Rule = Rule.CANCEL


def judge(rule: Rule, prerequisite: State) -> Verdict:
    """What an edge says when its prerequisite is in this state."""
    if prerequisite not in ENDED:
        return Verdict.WAIT
    if prerequisite is State.COMPLETED:
        return Verdict.CANCEL if rule is Rule.IF_FAILED else Verdict.GO
    if rule is Rule.CANCEL:
        return Verdict.CANCEL
    return Verdict.BURY if rule is Rule.FAIL else Verdict.GO


def find_cycle(edges: Mapping[str, Iterable[str]]) -> list[str] | None:
    """A cycle of tasks that wait for each other, the first one repeated at the end; None if there is none.

    Edges to what is not a key of `edges` lead out of the batch, and no edge leads back into it.
    """
    done: set[str] = set()
    for start in edges:
        if start in done:
            continue
        path: dict[str, None] = {start: None}
        stack = [(start, iter(edges[start]))]
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                path.popitem()
                done.add(node)
            elif following in path:
                cycle = list(path)
                return [*cycle[cycle.index(following) :], following]
            elif following in edges and following not in done:
                path[following] = None
                stack.append((following, iter(edges[following])))
    return None


def prerequisites_first(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """The keys of `edges`, which has no cycle, each after what it waits for; otherwise in the given order."""
    placed: dict[str, None] = {}
    for start in edges:
        stack = [start]
        while stack:
            node = stack[-1]
            missing = [] if node in placed else [need for need in edges[node] if need in edges and need not in placed]
            if missing:
                stack += reversed(missing)
            else:
                placed[stack.pop()] = None
    return list(placed)


def inherited_within(
    order: Sequence[str], edges: Mapping[str, Iterable[str]], priorities: Mapping[str, int]
) -> dict[str, int]:
    """What each task inherits from tasks of the same batch that wait for it, transitively.

    `order` has prerequisites first, so one pass from the end sees dependents before what they wait for. A task without
    a priority has ended already: it passes nothing on.
    """
    inherited: dict[str, int] = {}
    for task_id in reversed(order):
        if task_id not in priorities:
            continue
        urgency = max(priorities[task_id], inherited.get(task_id, 0))
        for need in edges.get(task_id, ()):
            if need in priorities and inherited.get(need, 0) < urgency:
                inherited[need] = urgency
    return inherited
