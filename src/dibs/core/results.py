"""Arguments that are filled in with the results of other tasks when the task runs.

The payload of such a task has `$take` besides its parameters; no parameter can have that name, so it can't be an
argument. It lists the places of results, such as ``{"at": ["totals", 0], "slots": 3}``; until they are filled in they
hold null. Slots number the task's prerequisites: a number is one result, a list of slots is a list of results, and
``{"from": 0, "to": 10000}`` is short for a list of consecutive slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dibs.errors import DibsError, InvalidArguments

__all__ = ["TAKE", "Placeholder", "PlaceholderMet", "Take", "fill", "lift", "shorten", "slots_in", "split"]

TAKE = "$take"

Place = list[str | int]
"""A parameter, and the keys and positions that lead from it to a place within its value."""


class Placeholder:
    """In the arguments of a call, stands for a value that is only known when it runs."""

    __slots__ = ()


class PlaceholderMet(DibsError):
    """A placeholder was about to be encoded as if it were a value."""

    def __init__(self) -> None:
        super().__init__("take(…) can only stand for an argument of a call, or within a list or dict that is one.")


class Take(Struct):
    """One place to fill in."""

    at: Place
    slots: Any


def lift(bound: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[Place, Placeholder]]]:
    """The arguments with null in place of placeholders, and the placeholders with their places."""
    found: list[tuple[Place, Placeholder]] = []

    def look(value: Any, at: Place) -> Any:
        if isinstance(value, Placeholder):
            found.append((at, value))
            return None
        if isinstance(value, dict):
            return {key: look(each, [*at, str(key)]) if leads(key) else each for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [look(each, [*at, position]) for position, each in enumerate(value)]
        return value

    try:
        return {name: look(value, [name]) for name, value in bound.items()}, found
    except RecursionError as error:
        raise InvalidArguments("an argument is nested too deeply, or contains itself.") from error


def leads(key: object) -> bool:
    """Whether JSON writes this key of a dict as plain text. Placeholders behind other keys are found at encoding."""
    return isinstance(key, str | int) and not isinstance(key, bool)


def shorten(slots: Any) -> Any:
    """The same slots, consecutive ones as a range."""
    if not isinstance(slots, list):
        return slots
    flat = len(slots) > 2 and all(isinstance(slot, int) for slot in slots)
    if flat and slots == list(range(slots[0], slots[0] + len(slots))):
        return {"from": slots[0], "to": slots[0] + len(slots)}
    return [shorten(slot) for slot in slots]


def split(json: bytes) -> tuple[dict[str, msgspec.Raw], list[Take]]:
    """The arguments of a payload, each as JSON, and what to fill in."""
    try:
        args = msgspec.json.decode(json, type=dict[str, msgspec.Raw])
        takes = msgspec.json.decode(args.pop(TAKE, b"[]"), type=list[Take])
    except msgspec.DecodeError as error:
        raise InvalidArguments(f"what the task takes can't be read: {error}.") from error
    return args, takes


def slots_in(takes: Sequence[Take]) -> list[int]:
    """The slots that are needed, in order."""
    return sorted({slot for take in takes for slot in flattened(take.slots)})


def flattened(slots: Any) -> Iterator[int]:
    if isinstance(slots, int):
        yield slots
    elif isinstance(slots, dict):
        yield from range(slots["from"], slots["to"])
    else:
        for each in slots:
            yield from flattened(each)


def fill(args: Mapping[str, msgspec.Raw], takes: Sequence[Take], results: Mapping[int, bytes]) -> bytes:
    """The arguments as JSON with the results, which are JSON, in their places."""
    filled: dict[str, Any] = dict(args)
    opened: set[str] = set()
    for take in takes:
        name, *rest = take.at
        assert isinstance(name, str)
        value = gathered(take.slots, results)
        if not rest:
            filled[name] = value
            continue
        if name not in opened:
            filled[name] = msgspec.json.decode(args[name])
            opened.add(name)
        where = filled[name]
        for step in rest[:-1]:
            where = where[step]
        where[rest[-1]] = value
    return msgspec.json.encode(filled)


def gathered(slots: Any, results: Mapping[int, bytes]) -> Any:
    if isinstance(slots, int):
        return msgspec.Raw(results[slots])
    each = range(slots["from"], slots["to"]) if isinstance(slots, dict) else slots
    return [gathered(slot, results) for slot in each]
