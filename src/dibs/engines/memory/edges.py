"""The edges between tasks, and the follow-ups when one of them ends or becomes more urgent."""

from __future__ import annotations

from collections import Counter as Totals
from collections import deque
from enum import StrEnum
from heapq import heappop, heappush

from msgspec import Struct

from dibs.core.graph import Rule
from dibs.core.states import ENDED, State
from dibs.core.task import TaskRecord
from dibs.engines.values import Need

__all__ = ["Edges", "FollowUp", "FollowUpKind", "Followed", "Link"]

Link = tuple[str, int]
"""A dependent, and the position of the edge among its own."""


class FollowUpKind(StrEnum):
    """What there is to do."""

    RELEASE_DEPENDENTS = "release dependents"  # the open edges that lead to a task that has ended
    CLOSE_EDGES = "close edges"  # the open edges of a task that has ended while it waited
    INHERIT_URGENCY = "inherit urgency"  # the open edges of a task whose urgency has changed
    CANCEL = "cancel"  # the members of a workflow
    REPLAY = "replay"


class FollowUp(Struct):
    """A step that continues later. `at` is how far it has come."""

    what: FollowUpKind
    id: str
    state: State = State.COMPLETED
    at: int = 0
    note: str = ""
    actor: str = ""


class Followed(Struct):
    """The open edges that lead to one task, and a heap of the urgencies behind them."""

    links: dict[Link, None]
    weights: list[tuple[int, str, int]]


class Edges:
    """All edges of a store. An edge stays with its dependent; it counts while it is open."""

    def __init__(self) -> None:
        self.needs: dict[str, list[Need]] = {}
        self.open_needs: Totals[str] = Totals()
        self.followed: dict[str, Followed] = {}
        self.follow_ups: deque[FollowUp] = deque()

    def add(self, dependent: str, needs: list[Need], urgency: int) -> None:
        """The edges of a new dependent."""
        self.needs[dependent] = needs
        for position, need in enumerate(needs):
            if need.is_open:
                self.link(dependent, position, need, urgency)

    def open(self, dependent: str, position: int, urgency: int) -> None:
        """Open an edge again."""
        need = self.needs[dependent][position]
        if not need.is_open:
            need = self.needs[dependent][position] = Need(need.id, need.rule, is_open=True)
            self.link(dependent, position, need, urgency)

    def link(self, dependent: str, position: int, need: Need, urgency: int) -> None:
        followed = self.followed.setdefault(need.id, Followed({}, []))
        followed.links[dependent, position] = None
        heappush(followed.weights, (-urgency, dependent, position))
        self.open_needs[dependent] += 1

    def close(self, dependent: str, position: int) -> None:
        """Close an edge."""
        need = self.needs[dependent][position]
        if need.is_open:
            self.needs[dependent][position] = Need(need.id, need.rule, is_open=False)
            self.open_needs[dependent] -= 1
            del self.followed[need.id].links[dependent, position]

    def pass_on_urgency(self, dependent: str, position: int, urgency: int) -> None:
        """The dependent has another urgency."""
        need = self.needs[dependent][position]
        if need.is_open:
            heappush(self.followed[need.id].weights, (-urgency, dependent, position))

    def heaviest(self, prerequisite: str, tasks: dict[str, TaskRecord]) -> int:
        """The highest urgency among the tasks that wait for a task."""
        followed = self.followed.get(prerequisite)
        while followed is not None and followed.weights:
            weight, dependent, position = followed.weights[0]
            if (dependent, position) in followed.links and tasks[dependent].urgency == -weight:
                return -weight
            heappop(followed.weights)
        return 0

    def rule(self, link: Link) -> Rule:
        return self.needs[link[0]][link[1]].rule

    def moved(self, old: TaskRecord | None, new: TaskRecord) -> None:
        """A task has changed: gather its follow-ups."""
        ends = new.state in ENDED and (old is None or old.state not in ENDED)
        if ends and new.id in self.followed:
            self.follow_ups.append(FollowUp(FollowUpKind.RELEASE_DEPENDENTS, new.id, new.state))
        if not self.open_needs.get(new.id):
            return
        if ends:
            self.follow_ups.append(FollowUp(FollowUpKind.CLOSE_EDGES, new.id))
        elif old is not None and old.urgency != new.urgency:
            self.follow_ups.append(FollowUp(FollowUpKind.INHERIT_URGENCY, new.id))

    def forget(self, task_id: str) -> list[str]:
        """Delete the edges of a task that was deleted; returns the tasks that it still waited for."""
        needed = []
        for position, need in enumerate(self.needs.get(task_id, ())):
            if need.is_open:
                self.close(task_id, position)
                needed.append(need.id)
        self.needs.pop(task_id, None)
        self.open_needs.pop(task_id, None)
        return needed
