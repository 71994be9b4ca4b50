"""What arguments name: a part of an id is made whole, and a shell completes names and ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from threading import Thread
from typing import Any

import click
from click.shell_completion import CompletionItem

from dibs.cli.ids import ids_beginning, part_of, tasks_of, whole_step, whole_task, whole_worker, whole_workflow
from dibs.cli.loading import open_store
from dibs.client.app import Dibs
from dibs.client.queues import QueueChanges
from dibs.core.priority import NAMES
from dibs.core.states import State
from dibs.errors import UnknownTask
from dibs.observe.events import FAMILIES, EventType

__all__ = [
    "PRIORITY",
    "QUEUE",
    "SCHEDULE",
    "SETTING",
    "STATE",
    "STEP",
    "TARGET",
    "TASK",
    "TASK_NAME",
    "TASK_OR_SCHEDULE",
    "TOPIC",
    "WORKER",
    "WORKFLOW",
    "Kind",
    "made_whole",
]  # fmt: skip

SHOWN = 50
"""Ids that a shell offers, the newest."""
PATIENCE = 2.0
"""Seconds that a shell waits for a store."""

Choices = Iterable[tuple[str, str]]
"""What may be given, each with a few words about it."""


class Kind(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """Something that an argument names: `choices` begin with what was typed, `whole` makes it whole."""

    name = "text"

    def __init__(
        self, choices: Callable[[Dibs, str], Choices], whole: Callable[[Dibs, str], str] | None = None
    ) -> None:
        self.choices, self.whole = choices, whole

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found: list[CompletionItem] = []

        def look() -> None:
            # Errors have no place in a command line that is being typed, nor has what an app prints.
            with (
                suppress(Exception),
                redirect_stdout(StringIO()),
                redirect_stderr(StringIO()),
                open_store(ctx.params.get("url"), ctx.params.get("app_spec")) as app,
            ):
                found.extend(items(self.choices(app, incomplete), incomplete))

        thread = Thread(target=look, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        return found


class Words(click.ParamType):  # type: ignore[type-arg]
    """Words that are the same for every store."""

    name = "text"

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return items(((word, "") for word in self.words), incomplete)


def items(choices: Choices, beginning: str) -> list[CompletionItem]:
    return [CompletionItem(value, help=text or None) for value, text in choices if value.startswith(beginning)]


def made_whole(app: Dibs, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the present command, with whole ids."""
    for param in click.get_current_context().command.params:
        if isinstance(param.type, Kind) and param.type.whole is not None and given.get(str(param.name)):
            given[str(param.name)] = whole(app, param.type.whole, given[str(param.name)])
    return given


def whole(app: Dibs, make: Callable[[Dibs, str], str], value: str | tuple[str, ...]) -> Any:
    return make(app, value) if isinstance(value, str) else tuple(make(app, each) for each in value)


def task_or_text(app: Dibs, text: str) -> str:
    """The id of a task, or something else that can be looked for."""
    with suppress(UnknownTask):
        return whole_task(app, text)
    return text


def task_or_schedule(app: Dibs, text: str) -> str:
    names = [each.name for each in app.schedules.list()] if part_of(text) else []
    return text if text in names else whole_task(app, text)


def task_ids(app: Dibs, beginning: str) -> Choices:
    """The newest; what an id says about its task is left to the listings."""
    part = part_of(beginning)
    ids = tasks_of(app)(None)[0][:SHOWN] if part is None else ids_beginning(part, tasks_of(app), SHOWN)
    return [(each, "") for each in ids]


def task_names(app: Dibs, beginning: str) -> Choices:
    kinds = app.hub.runner.run(app.hub.engine.counts()).kinds
    return [(each, "") for each in sorted({*app.hub.definitions, *(kind.name for kind in kinds)})]


def queue_names(app: Dibs, beginning: str) -> Choices:
    return [(each.name, str(each.state)) for each in app.queues.list()]


def schedule_names(app: Dibs, beginning: str) -> Choices:
    return [(each.name, each.words) for each in app.schedules.list()]


def worker_names(app: Dibs, beginning: str) -> Choices:
    return [(each.id, str(each.state)) for each in app.workers.list()]


def workflow_ids(app: Dibs, beginning: str) -> Choices:
    return [(each.id, f"{each.name} {each.state}".strip()) for each in app.workflows.list(SHOWN)]


def step_ids(app: Dibs, beginning: str) -> Choices:
    return [(each.id, each.act) for each in app.steps.list(SHOWN)]


TASK = Kind(task_ids, whole_task)
TARGET = Kind(task_ids, task_or_text)
TASK_OR_SCHEDULE = Kind(lambda app, text: [*schedule_names(app, text), *task_ids(app, text)], task_or_schedule)
WORKFLOW = Kind(workflow_ids, whole_workflow)
STEP = Kind(step_ids, whole_step)
WORKER = Kind(worker_names, whole_worker)
QUEUE, SCHEDULE, TASK_NAME = Kind(queue_names), Kind(schedule_names), Kind(task_names)
STATE, PRIORITY, TOPIC = Words(State), Words(NAMES), Words((*FAMILIES, *EventType))
SETTING = Words(f"{name}=" for name in QueueChanges.__annotations__)
