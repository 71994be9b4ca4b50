"""Which errors are alike: messages without the words that differ from task to task."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable
from datetime import datetime
from pathlib import PurePath

from msgspec import Struct

from dibs.client.info import TaskInfo
from dibs.core.task import Failure

__all__ = ["MOST_GROUPED", "ErrorGroup", "ErrorGroups", "add_to", "grouped"]

MASKS = (
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<email>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<uuid>"),
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`"), "<text>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)
"""In this order: a UUID in quotes is a text, and the digits of an e-mail address are no numbers."""

FRAME_START = '  File "'
FRAME = re.compile(r'  File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
MOST_GROUPED = 20_000
LONGEST = 1000
"""Characters of a message that are masked."""


class ErrorGroup(Struct):
    """Dead tasks of one name and queue with the same reason, and errors that are alike."""

    name: str
    queue: str
    reason: str
    error_type: str
    error_message: str
    place: str = ""
    count: int = 0
    newest: datetime | None = None
    example: str = ""
    """The id of one of them."""
    message: str = ""
    """What they all say: the whole message if it is the same for all, else masked."""
    same: bool = True
    """Whether it is the same for all."""


class ErrorGroups(Struct, frozen=True):
    """The groups, largest first; `more`: there were more tasks than are read."""

    groups: list[ErrorGroup]
    more: bool


async def grouped(tasks: AsyncIterable[TaskInfo]) -> ErrorGroups:
    """Dead tasks by what they have in common."""
    groups: dict[tuple[str, ...], ErrorGroup] = {}
    seen, more = 0, False
    async for info in tasks:
        if seen == MOST_GROUPED:
            more = True
            break
        seen += 1
        add_to(groups, info)
    return ErrorGroups(sorted(groups.values(), key=lambda each: -each.count), more)


def add_to(groups: dict[tuple[str, ...], ErrorGroup], info: TaskInfo) -> None:
    """Count a task in its group; the first one of a group is its example."""
    message = "" if info.error is None else info.error.message.strip()
    key = (
        info.name,
        info.queue,
        str(info.reason),
        info.error.type if info.error else "",
        masked(message.split("\n", 1)[0]),
        place_of(info.error),
    )
    group = groups.setdefault(key, ErrorGroup(*key, example=info.id, message=message))
    group.count += 1
    if group.same and group.message != message:
        group.same, group.message = False, masked(message)
    if info.finished_at is not None and (group.newest is None or info.finished_at > group.newest):
        group.newest = info.finished_at


def masked(message: str) -> str:
    """A message, with what tells one task from another replaced."""
    text = message[:LONGEST]
    for pattern, word in MASKS:
        text = pattern.sub(word, text)
    return text


def place_of(error: Failure | None) -> str:
    """The file and line that raised, as far as the traceback tells."""
    if error is None:
        return ""
    found = FRAME.match(error.traceback, max(0, error.traceback.rfind(FRAME_START)))
    return "" if found is None else f"{PurePath(found['file']).name}:{found['line']}"
