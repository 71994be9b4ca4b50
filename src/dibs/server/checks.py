"""What came over the wire in the form of Dibs's own values, checked at the door: the seam trusts its callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dibs.core.codec import ENVELOPE
from dibs.core.graph import MOST_EDGES
from dibs.core.ids import check_id
from dibs.core.options import (
    KEY_LIMIT,
    NAME_LIMIT,
    PAGE_LIMIT,
    check_label,
    check_name,
    check_note,
    check_number,
    check_reference,
    check_text,
)
from dibs.core.task import INLINE_LIMIT, NewTask, Settlement
from dibs.core.times import LATEST, LONGEST
from dibs.errors import InvalidOption, PayloadTooLarge

__all__ = ["check_arguments"]

MOST_ITEMS = 20_000
"""Tasks, settlements or extensions of one request."""
MOST_TEXT = 1024 * 1024
LARGEST = 2**53


def check_new(task: NewTask) -> None:
    check_id(task.id)
    check_name(task.queue, "queue")
    check_name(task.name, "a task's name")
    check_payload(task.args, "arguments", is_object=True)
    spec = task.spec
    if spec.key is not None:
        check_text(spec.key, "key", KEY_LIMIT, 1)
    for label in (spec.partition, spec.tenant or None):
        if label is not None:
            check_label(label, "per and tenant")
    for capability in task.requires:
        check_name(capability, "requires")
    check_number(task.delay, "delay", 0, LONGEST)
    check_number(task.window, "window", 0, LONGEST)
    for moment in (task.at, spec.deadline, spec.expires_at):
        if moment is not None:
            check_number(moment, "a time", -LATEST, LATEST)
    if len(task.after) > MOST_EDGES:
        raise InvalidOption(f"a task may wait for {MOST_EDGES:,} others at most.")
    if spec.metadata or spec.headers:
        check_plain((spec.metadata, spec.headers))
    check_plain(msgspec.to_builtins(task.options))
    check_plain(msgspec.to_builtins(task.app_options))


def check_payload(payload: bytes, what: str, *, is_object: bool = False) -> None:
    if len(payload) > INLINE_LIMIT:
        raise PayloadTooLarge(f"{what}: {len(payload):,} bytes, more than the {INLINE_LIMIT:,} kept with a task.")
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise InvalidOption(f"{what} must be JSON: {error}.") from None
    if is_object and not isinstance(found, dict) and not payload.startswith(ENVELOPE):
        raise InvalidOption(f"{what} must be a JSON object: arguments by name.")


def check_settlement(settlement: Settlement) -> None:
    check_number(settlement.lease.number, "a lease's number", 0, LARGEST)
    check_reference(settlement.lease.id, "a task's id")
    if settlement.result is not None:
        check_payload(settlement.result, "the result")
    if settlement.delay is not None:
        check_number(settlement.delay, "delay", 0, LONGEST)
    if settlement.failure is not None:  # what a task raises may be any text
        check_length(settlement.failure.type, settlement.failure.message, settlement.failure.traceback)
    check_plain((settlement.metadata, settlement.note))


def check_length(*texts: str) -> None:
    if any(len(text) > MOST_TEXT for text in texts):
        raise InvalidOption(f"a text may have {MOST_TEXT:,} characters at most.")


def check_several(items: Any) -> None:
    if len(items) > MOST_ITEMS:
        raise InvalidOption(f"one request may be about {MOST_ITEMS:,} at most, not {len(items):,}.")


def check_enqueue(given: Any) -> None:
    check_several(given.tasks)
    for task in given.tasks:
        check_new(task)
    check_plain(msgspec.to_builtins(given.workflow))


def check_settle(given: Any) -> None:
    check_several(given.settlements)
    for settlement in given.settlements:
        check_settlement(settlement)


def check_extend(given: Any) -> None:
    check_several(given.extensions)
    for each in given.extensions:
        check_number(each.lease.number, "a lease's number", 0, LARGEST)
        check_number(each.by, "by", 0, LONGEST)
        check_number(each.ran, "ran", -LONGEST, LONGEST)
        check_reference(each.lease.id, "a task's id")
        check_note(each.message, "message")


def check_claim(given: Any) -> None:
    request = given.request
    check_text(request.worker, "a worker's name", NAME_LIMIT, 1)
    check_number(request.limit, "limit", 0, MOST_ITEMS)
    check_number(request.prefetch, "prefetch", 0, MOST_ITEMS)
    if request.lease is not None:
        check_number(request.lease, "lease", 1, LONGEST)
    check_plain(msgspec.to_builtins(request))


def check_search(given: Any) -> None:
    check_number(given.query.limit, "limit", 1, PAGE_LIMIT)
    if given.query.cursor is not None:
        check_id(given.query.cursor)
    check_plain(msgspec.to_builtins(given))


def check_page(given: Any) -> None:
    check_number(given.limit, "limit", 0, PAGE_LIMIT)
    if given.before is not None:
        check_id(given.before)
    check_plain(msgspec.to_builtins(given))


CHECKS: dict[str, Callable[[Any], None]] = {
    "enqueue": check_enqueue,
    "settle": check_settle,
    "extend": check_extend,
    "claim": check_claim,
    "search": check_search,
    "workflows": check_page,
    "steps": check_page,
}


def check_arguments(verb: str, given: Any) -> None:
    """Raises `InvalidOption` if a verb can't be asked so."""
    check = CHECKS.get(verb)
    if check is not None:
        check(given)
    else:
        check_plain(msgspec.to_builtins(given))


def check_plain(value: Any) -> None:
    """That every store can keep it: numbers that are not too large, texts without NUL, not too many of anything."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            check_length(each)
            if "\0" in each:
                raise InvalidOption("a text has a NUL in it, which can't be stored.")
        elif isinstance(each, int | float):
            if not -(2**62) <= each <= 2**62:
                raise InvalidOption("a number is too large.")
        elif isinstance(each, dict):
            check_several(each)
            stack += each.keys()
            stack += each.values()
        elif isinstance(each, list | tuple):
            check_several(each)
            stack += each
