"""`chain` and `group`: calls one after another and side by side, to be enqueued as one workflow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar, overload

from dibs.client.dependencies import Flow, Shape, Source
from dibs.client.task import Call
from dibs.core.options import is_several, shown
from dibs.errors import InvalidOption

__all__ = ["Chain", "Group", "chain", "group"]

R = TypeVar("R")


class Composite(Flow[R]):
    """Several flows as one."""

    __slots__ = ("_first_tasks", "_last_tasks", "_shape")

    def __init__(self, first_tasks: tuple[Call[Any], ...], last_tasks: tuple[Any, ...], shape: Shape) -> None:
        self._first_tasks = first_tasks
        self._last_tasks = last_tasks
        self._shape = shape

    @property
    def first_tasks(self) -> tuple[Call[Any], ...]:
        return self._first_tasks

    @property
    def last_tasks(self) -> tuple[Any, ...]:
        return self._last_tasks

    @property
    def shape(self) -> Shape:
        return self._shape


class Chain(Composite[R]):
    """Steps of which each waits for the one before. Its result is that of the last one."""

    __slots__ = ("steps",)

    def __init__(self, steps: tuple[Flow[Any], ...]) -> None:
        self.steps = tuple(step for step in steps if step.first_tasks) or steps[:1]
        """Without empty groups: the step after one waits for the step before it."""
        super().__init__(self.steps[0].first_tasks, self.steps[-1].last_tasks, steps[-1].shape)

    def __repr__(self) -> str:
        return f"<Chain of {len(self.steps):,} steps>"


class Group(Composite[list[R]], Generic[R]):
    """Members that run side by side. Its result is the list of their results, in this order."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[Flow[R], ...]) -> None:
        self.members = members
        first_tasks = {call.id: call for member in members for call in member.first_tasks}
        last_tasks = {task.id: task for member in members for task in member.last_tasks}
        super().__init__(tuple(first_tasks.values()), tuple(last_tasks.values()), [member.shape for member in members])

    def __repr__(self) -> str:
        return f"<Group of {len(self.members):,}>"


def chain(*steps: *tuple[*tuple[Flow[Any], ...], Flow[R]]) -> Chain[R]:
    """Calls, groups and chains that run one after another."""
    if not steps:
        raise InvalidOption("a chain needs at least one step.")
    for step in steps:
        check_member(step, "chain")
    return Chain(steps)


@overload
def group(*members: Flow[R]) -> Group[R]: ...
@overload
def group(members: Iterable[Flow[R]], /) -> Group[R]: ...
def group(*members: Any) -> Group[Any]:
    """Calls, chains and groups that run side by side; given one by one, or as one iterable. It may be empty."""
    if len(members) == 1 and is_several(members[0]):
        members = tuple(members[0])
    for member in members:
        check_member(member, "group")
    return Group(members)


def check_member(value: object, where: str) -> None:
    if isinstance(value, Flow):
        return
    if isinstance(value, Source):
        raise InvalidOption(
            f"{shown(value)} has been enqueued already: a {where} is made of calls (task.call(…)). "
            "Let its first ones wait for it with using(after=…)."
        )
    raise InvalidOption(f"a {where} is made of calls (task.call(…)), chains and groups, not of {shown(value)}.")
