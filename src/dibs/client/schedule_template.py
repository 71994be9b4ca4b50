"""What `@app.schedule` declares: from a task and its arguments to the template of a schedule's tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

import msgspec
from msgspec import structs

from dibs.attempt.context import Context
from dibs.client.options import Options, RecurrenceOptions, check_known
from dibs.client.task import AsyncTask, Running, Task
from dibs.core.options import check_name, is_several
from dibs.core.recurrence import Recurrence, check_recurrence
from dibs.core.task import NewTask
from dibs.errors import InvalidOption, PayloadTooLarge
from dibs.runtime.definition import ScheduleDefinition
from dibs.runtime.hub import Hub

__all__ = ["ScheduleDecorator", "as_template", "declare", "make_recurrence", "template_of"]

P = ParamSpec("P")
R = TypeVar("R")
AnyTask = TypeVar("AnyTask", bound=Task[..., Any])

ONE_TASK_ONLY = {
    "key": "every fire is one task already, and overlap='skip' leaves out fires while the last task is unfinished",
    "delay": "the schedule says when",
    "at": "the schedule says when",
    "deadline": "give it in seconds, counted from when each task may start",
    "expires": "give it in seconds, counted from when each task may start",
    "after": "tasks that wait for others are not made by a schedule",
    "id": "every fire has an id of its own",
    "block": "a schedule whose queue is full fires when there is room",
    "connection": "it is the leading worker that enqueues",
}
"""Options that can't be given to a schedule, and why."""


class ScheduleDecorator(Protocol):
    """What `@app.schedule(…)` returns: it leaves a Task as it is, and turns a function into one."""

    @overload
    def __call__(self, task: AnyTask, /) -> AnyTask: ...
    @overload
    def __call__(self, task: Callable[Concatenate[Context, P], Running[R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, task: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, task: Callable[P, Running[R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, task: Callable[P, R], /) -> Task[P, R]: ...


def make_recurrence(cron: str | None, options: RecurrenceOptions) -> Recurrence:
    """When a schedule with these options fires."""
    check_known(options, RecurrenceOptions.__annotations__, "a schedule")
    return check_recurrence(cron=cron, **options)


def declare(hub: Hub, task: Task[..., Any], name: str | None, recurrence: Recurrence, args: Any, kwargs: Any) -> None:
    """Add a schedule to the app: its workers declare it in the store."""
    if hub.definitions.get(task.name) is not task.definition:
        raise InvalidOption(f"the task {task.name} is another app's: a schedule belongs to the app of its task.")
    chosen = check_name(task.name if name is None else name, "a schedule's name")
    if chosen in hub.schedules:
        raise InvalidOption(
            f"two schedules are called {chosen!r}, of the tasks {hub.schedules[chosen].task.name} and {task.name}. "
            "A schedule is called like its task unless it is given a name: give one of them name=…"
        )
    template = template_of(hub, task, args, kwargs)
    hub.schedules[chosen] = ScheduleDefinition(name=chosen, recurrence=recurrence, task=template)


def template_of(hub: Hub, task: Task[..., Any], args: Any, kwargs: Any) -> NewTask:
    """What a schedule enqueues each time: as an enqueue now would, without what only one task can have."""
    named = {} if kwargs is None else kwargs
    if not is_several(args) or not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise InvalidOption(f"give the arguments of {task.name} as args=[…] and kwargs={{…}}.")
    return as_template(hub, task.call(*args, **named).new, task.options)


def as_template(hub: Hub, new: NewTask, options: Options) -> NewTask:
    """A task without what belongs to one enqueue, in the form in which stores return it, so that it can be compared.

    `deadline` and `expires_at` count from each start. The client is left out as well: the same code on another host
    declares the same schedule.
    """
    plain = Options()
    for option, why in ONE_TASK_ONLY.items():
        field = "expires_at" if option == "expires" else option
        if getattr(options, field) != getattr(plain, field):
            raise InvalidOption(f"a schedule can't have {option}=…: {why}.")
    if new.after:
        raise InvalidOption(f"a schedule can't take the results of other tasks: {ONE_TASK_ONLY['after']}.")
    if len(new.args) > hub.payloads.limit:
        raise PayloadTooLarge(
            f"the arguments of {new.name} take {len(new.args):,} bytes, and a schedule keeps at most "
            f"{hub.payloads.limit:,} with it. Store the data elsewhere and pass a reference to it."
        )
    spec = structs.replace(
        options.spec(new.spec.priority),
        partition=new.spec.partition,
        deadline=options.deadline_in,
        expires_at=options.expires_in,
    )
    bare = structs.replace(new, id="", client="", fingerprint="", spec=spec)
    return msgspec.json.decode(msgspec.json.encode(bare), type=NewTask)
