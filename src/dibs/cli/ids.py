"""From the beginning or the end of an id, as listings show it, to the whole id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from dibs.client.app import Dibs
from dibs.client.tasks import Filter
from dibs.core.ids import is_id
from dibs.core.options import PAGE_LIMIT, shown
from dibs.core.states import UNFINISHED, State
from dibs.errors import InvalidOption, UnknownTask

__all__ = [
    "above",
    "ids_beginning",
    "part_of",
    "tasks_of",
    "whole_step",
    "whole_task",
    "whole_worker",
    "whole_workflow",
]

PART = re.compile(r"[0-9a-f-]{4,35}")
DIGITS, FEWEST = 32, 4
WALK = 10_000
"""Newest tasks of which the end of an id is looked for, and as many of those that are unfinished or dead."""
OPEN = (*sorted(UNFINISHED), State.DEAD)
FEW = 5
"""Ids that are named where several are meant."""

Page = Callable[[str | None], tuple[list[str], str | None]]
"""Ids below one, newest first, and where to go on."""


def whole_task(app: Dibs, text: str) -> str:
    """The id of the task that is meant. What can't be a part of an id is given back as it is."""
    if (part := part_of(text)) is None:
        return text
    found = list(ids_beginning(part, tasks_of(app), FEW + 1))
    if not found:
        newest, is_all = ids_ending(part, tasks_of(app))
        older = [] if is_all else ids_ending(part, tasks_of(app, OPEN))[0]
        found = list(dict.fromkeys([*newest, *older]))
        if not found and not is_all:
            raise UnknownTask(
                f"no task's id begins with {shown(part)}, and none of the newest {WALK:,} ends with it, nor of as many "
                "unfinished or dead ones: give its beginning, or the whole id."
            )
    return only(found, part, "task")


def whole_workflow(app: Dibs, text: str) -> str:
    """The id of the workflow that is meant."""

    def page(before: str | None) -> tuple[list[str], str | None]:
        found = [info.id for info in app.workflows.list(PAGE_LIMIT, before)]
        return found, found[-1] if len(found) == PAGE_LIMIT else None

    if (part := part_of(text)) is None:
        return text
    found = list(ids_beginning(part, page, FEW + 1)) or ids_ending(part, page)[0]
    return only(found, part, "workflow") if found else text


def whole_step(app: Dibs, text: str) -> str:
    """The id of the step that is meant, of the newest."""
    part = part_of(text)
    return text if part is None else one_of([info.id for info in app.steps.list(PAGE_LIMIT)], part, text, "step")


def whole_worker(app: Dibs, text: str) -> str:
    """The name of the worker that is meant."""
    part = stripped(text)
    known = [info.id for info in app.workers.list()] if len(part) >= FEWEST else []
    return text if text in known else one_of(known, part, text, "worker")


def one_of(known: Iterable[str], part: str, text: str, kind: str) -> str:
    found = [each for each in known if each.startswith(part)] or [each for each in known if each.endswith(part)]
    return only(found, part, kind) if found else text


def only(found: list[str], part: str, kind: str) -> str:
    if not found:
        raise UnknownTask(f"no {kind}'s id begins or ends with {shown(part)}.")
    if len(found) > 1:
        more = " and more" if len(found) > FEW else ""
        raise InvalidOption(f"{shown(part)} is part of several {kind}s' ids: {', '.join(found[:FEW])}{more}.")
    return found[0]


def stripped(text: str) -> str:
    """Without the ellipsis of a listing."""
    return text.strip(" .…")


def part_of(text: str) -> str | None:
    """What may be a part of an id, and is no whole one."""
    part = stripped(text).lower()
    could_be = PART.fullmatch(part) is not None and len(digits(part)) >= FEWEST
    return part if could_be and not is_id(text) else None


def digits(text: str) -> str:
    return text.replace("-", "")


def ids_beginning(part: str, page: Page, most: int) -> Iterator[str]:
    """The newest so many ids that begin with it: ids are in order, so these are a range."""
    cursor, wanted = above(digits(part)), digits(part)
    for _ in range(WALK // PAGE_LIMIT):
        found, cursor = page(cursor)
        for each in found:
            if not digits(each).startswith(wanted) or most == 0:
                return
            yield each
            most -= 1
        if cursor is None:
            return


def above(beginning: str) -> str | None:
    """The lowest id above all that begin like this; None if there is none."""
    number = (int(beginning, 16) + 1) << 4 * (DIGITS - len(beginning)) if beginning else 1 << 128
    return None if number >= 1 << 128 else str(UUID(int=number))


def ids_ending(part: str, page: Page) -> tuple[list[str], bool]:
    """The ids that end with it, of the newest, and whether these were all."""
    found: list[str] = []
    cursor: str | None = None
    for _ in range(WALK // PAGE_LIMIT):
        ids, cursor = page(cursor)
        found += [each for each in ids if digits(each).endswith(digits(part))]
        if cursor is None:
            return found, True
    return found, False


def tasks_of(app: Dibs, states: Iterable[State] = ()) -> Page:
    def page(cursor: str | None) -> tuple[list[str], str | None]:
        found = app.tasks.search(Filter(state=tuple(states)), limit=PAGE_LIMIT, cursor=cursor)
        return [info.id for info in found.tasks], found.cursor

    return page
