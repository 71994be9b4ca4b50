"""What tasks can wait for, and what becomes of them if it does not complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from uuid import UUID

from msgspec import Struct

from dibs.core.graph import MOST_EDGES, Edge, Rule
from dibs.core.ids import check_id
from dibs.core.options import is_several, nearest, shown
from dibs.errors import InvalidOption

if TYPE_CHECKING:
    from dibs.client.handle import Handle
    from dibs.client.task import Call

__all__ = ["After", "Flow", "Link", "Shape", "Source", "check_after", "few_enough"]

R_co = TypeVar("R_co", covariant=True)

Shape = str | list[Any]
"""The result of a source: that of the task with this id, or a list of such results."""

OTHERWISE = (Rule.CANCEL, Rule.FAIL, Rule.RUN)


class Source(Generic[R_co]):
    """Something that ends and has a result: a handle, a call, a chain or a group of calls."""

    __slots__ = ()

    @property
    def last_tasks(self) -> tuple[Handle[Any] | Call[Any], ...]:
        """The tasks that must end for it to have ended."""
        raise NotImplementedError

    @property
    def shape(self) -> Shape:
        """How its result is made up of results of tasks."""
        raise NotImplementedError

    def otherwise(self, rule: Literal["cancel", "fail", "run"]) -> Link:
        """For `after`: what becomes of the dependent if this one is dead or cancelled.

        "cancel" (the default), "fail" (it becomes dead, to be replayed) or "run" (it runs all the same).
        """
        if rule not in OTHERWISE:
            raise InvalidOption(
                f"otherwise() takes one of {', '.join(OTHERWISE)}, not {shown(rule)}.{nearest(rule, OTHERWISE)}"
            )
        return Link(self.last_tasks, Rule(rule))

    def if_failed(self) -> Link:
        """For `after`: run only if this one is dead or cancelled; if it completes, the dependent is cancelled."""
        return Link(self.last_tasks, Rule.IF_FAILED)


class Flow(Source[R_co]):
    """Calls that have not been enqueued yet: one, a chain or a group."""

    __slots__ = ()

    @property
    def first_tasks(self) -> tuple[Call[Any], ...]:
        """The calls that wait for whatever comes before it."""
        raise NotImplementedError


class Link(Struct, frozen=True):
    """Wait for these tasks, with a rule for the case that they don't complete."""

    last_tasks: tuple[Handle[Any] | Call[Any], ...]
    rule: Rule


After = Source[Any] | Link | str | UUID
"""What `using(after=…)` takes: handles, calls, groups, ids, and what `otherwise` and `if_failed` return."""


def check_after(value: After | Iterable[After]) -> tuple[tuple[Edge, ...], tuple[Source[Any], ...]]:
    """The edges to the given tasks, and the handles and calls among these."""
    edges: dict[str, Edge] = {}
    sources: list[Source[Any]] = []
    for item in value if is_several(value) else [value]:
        for edge, end in edges_to(item):
            there = edges.setdefault(edge.id, edge)
            if there.rule is not edge.rule:
                raise InvalidOption(f"after has two rules for task {edge.id}: {there.rule!r} and {edge.rule!r}.")
            if end is not None and there is edge:
                sources.append(end)
    return few_enough(edges), tuple(sources)


def edges_to(item: object) -> Iterable[tuple[Edge, Source[Any] | None]]:
    if isinstance(item, Source):
        return [(Edge(end.id), end) for end in item.last_tasks]
    if isinstance(item, Link):
        return [(Edge(end.id, item.rule), end) for end in item.last_tasks]
    if isinstance(item, str | UUID):
        return [(Edge(check_id(item)), None)]
    raise InvalidOption(
        f"after takes handles, calls, ids, or what handle.otherwise(…) and handle.if_failed() give, not {shown(item)}."
    )


def few_enough(edges: Mapping[str, Edge]) -> tuple[Edge, ...]:
    """What one task waits for."""
    if len(edges) > MOST_EDGES:
        raise InvalidOption(
            f"one task can wait for at most {MOST_EDGES:,} others, not for {len(edges):,}: "
            "let some tasks in between gather them."
        )
    return tuple(edges.values())
