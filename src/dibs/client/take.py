"""`take`: pass the result of one task to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct

from dibs.client.dependencies import Shape, Source, few_enough
from dibs.core.graph import Edge
from dibs.core.options import shown
from dibs.core.results import Placeholder, Take, lift, shorten
from dibs.errors import InvalidOption

__all__ = ["Placed", "place", "take"]

R = TypeVar("R")


class Taken(Placeholder):
    """What `take` returns: it stands for a result that does not exist yet."""

    __slots__ = ("source",)

    def __init__(self, source: Source[Any]) -> None:
        self.source = source

    def __repr__(self) -> str:
        return f"take({self.source!r})"


def take(source: Source[R]) -> R:
    """The result of a call, chain or task, for the arguments of another call, which then waits for it.

    For a group it is the list of its members' results. To a type checker it is the result; at runtime it is a
    placeholder that is filled in when the task runs. A task that did not complete gives None.
    """
    if not isinstance(source, Source):
        raise InvalidOption(f"take() is for calls, chains, groups and handles, and {shown(source)} is none of them.")
    return cast(R, Taken(source))


class Placed(Struct, frozen=True):
    """The arguments of a call without placeholders, where results go instead, and what the call waits for."""

    args: dict[str, Any]
    takes: list[Take]
    after: tuple[Edge, ...]
    ends: tuple[Source[Any], ...]


def place(bound: Mapping[str, Any], after: Iterable[Edge], ends: Iterable[Source[Any]]) -> Placed:
    """Assign each result that is taken to a slot among the edges of the call. Existing edges keep their rules."""
    args, met = lift(bound)
    found = [(at, cast(Taken, placeholder).source) for at, placeholder in met]
    edges = {edge.id: edge for edge in after}
    sources = list(ends)
    for _, source in found:
        for end in source.last_tasks:
            if end.id not in edges:
                edges[end.id] = Edge(end.id)
                sources.append(end)
    slots = {task_id: slot for slot, task_id in enumerate(edges)}
    takes = [Take(at, shorten(slots_of(source.shape, slots))) for at, source in found]
    return Placed(args, takes, few_enough(edges), tuple(sources))


def slots_of(shape: Shape, slots: Mapping[str, int]) -> Any:
    return slots[shape] if isinstance(shape, str) else [slots_of(each, slots) for each in shape]
