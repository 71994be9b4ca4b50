"""Tasks by their name alone, for producers that don't have the code: the worker that runs one checks the arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from msgspec import structs

from dibs.client.options import Options
from dibs.core.codec import Codec, Signature, as_json, fingerprint
from dibs.core.options import brief, check_name
from dibs.core.results import TAKE, Take
from dibs.core.task import NewTask
from dibs.errors import InvalidArguments, UsageError
from dibs.runtime.definition import ExecutorKind, TaskDefinition
from dibs.runtime.hub import Hub

__all__ = ["define_by_name", "draft_by_name", "new_by_name"]


def define_by_name(name: str, queue: str) -> TaskDefinition:
    """What stands for the definition of a task whose code is elsewhere."""
    task_name = check_name(name, "a task's name")

    def absent(*_: object, **__: object) -> NoReturn:
        raise UsageError(f"the code of {task_name} is not here: it can be enqueued, but not called.")

    absent.__name__ = absent.__qualname__ = task_name
    absent.__doc__ = None
    return TaskDefinition(
        name=task_name,
        function=absent,
        signature=AnyArguments(lambda: None, task_name, takes_context=False),
        takes_context=False,
        executor=ExecutorKind.THREAD,
        queue=check_name(queue, "queue"),
    )


class AnyArguments(Signature):
    """Stands for parameters that are not known: it takes any arguments by name."""

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise InvalidArguments(
                f"{self.name} is known by its name only, so its arguments must be given by name, as in "
                f"enqueue(to='ada'), not by position: {brief(', '.join(map(repr, args)), 80)}."
            )
        return dict(kwargs)

    def encode(self, bound: Mapping[str, Any], codec: Codec) -> bytes:
        return codec.wrap(as_json(bound, f"the arguments of {self.name}"))

    def encode_taking(self, lifted: Mapping[str, Any], takes: Sequence[Take], codec: Codec) -> bytes:
        return codec.wrap(as_json({**lifted, TAKE: takes}, f"the arguments of {self.name}"))


def draft_by_name(hub: Hub, name: str, options: Options) -> NewTask:
    """What is the same for every task of this name with these options, among which is its queue."""
    return options.draft(hub, check_name(name, "a task's name"))


def new_by_name(
    hub: Hub, name: str, arguments: Mapping[str, Any], options: Options, draft: NewTask | None = None
) -> NewTask:
    """The task to enqueue. `draft` saves making it again for each of many."""
    return structs.replace(
        draft_by_name(hub, name, options) if draft is None else draft,
        id=options.id or hub.new_id(),
        args=hub.codec.encode(arguments, f"the arguments of {name}"),
        fingerprint="" if options.key is None else fingerprint(name, arguments),
    )
