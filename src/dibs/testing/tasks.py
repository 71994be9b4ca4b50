"""New tasks from flat facts, for tests that need not know which of them belong to the spec."""

from __future__ import annotations

from msgspec import structs

from dibs.core.task import NewTask, TaskSpec, with_spec

__all__ = ["changed", "new_task"]

SPEC = frozenset(TaskSpec.__struct_fields__)


def new_task(id: str, queue: str, name: str, **facts: object) -> NewTask:
    """A new task of which all this is said."""
    return changed(NewTask(id=id, queue=queue, name=name), **facts)


def changed(task: NewTask, **facts: object) -> NewTask:
    """The same task with other facts."""
    said = {name: value for name, value in facts.items() if name in SPEC}
    rest = {name: value for name, value in facts.items() if name not in SPEC}
    return with_spec(structs.replace(task, **rest), **said)
