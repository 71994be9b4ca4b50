"""What `@app.task(…)` and `.using(…)` accept, checked when it is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, structs

from dibs.core.codec import encoder
from dibs.core.ids import check_id
from dibs.core.options import check_name
from dibs.core.priority import parse_priority
from dibs.core.settings import Defaults, check_defaults
from dibs.core.times import DAY, Duration, Instant, duration, instant, seconds
from dibs.errors import InvalidOption

__all__ = ["Options", "Span", "make_options"]

Span = float | timedelta
"""Seconds, or a timedelta."""

METADATA_LIMIT = 16 * 1024


class Options(Struct, frozen=True, kw_only=True):
    """Everything that can be said about one enqueue, in stored form; None leaves it to the task."""

    queue: str | None = None
    priority: int | None = None
    delay: Duration = 0
    at: Instant | None = None
    deadline: Instant | None = None
    deadline_in: Duration | None = None
    options: Defaults = Defaults()
    key: str | None = None
    window: Duration = DAY
    requires: tuple[str, ...] | None = None
    metadata: dict[str, Any] = {}
    headers: dict[str, str] | None = None
    id: str | None = None
    block: float | None = None
    connection: Any = None


def make_options(old: Options, given: Mapping[str, Any]) -> Options:
    """`old` with what is given (not None) changed."""
    if given.get("delay") is not None and given.get("at") is not None:
        raise InvalidOption("delay and at both say when: give one of them.")
    changes: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in SHARED:
            shared[name] = value
        else:
            changes |= CONVERT[name](value)
    if shared:
        checked = check_defaults(shared, "using()")
        changes["options"] = structs.replace(old.options, **{name: getattr(checked, name) for name in shared})
    return structs.replace(old, **changes)


def check_deadline(deadline: datetime | Span) -> dict[str, Any]:
    if isinstance(deadline, datetime):
        return {"deadline": instant(deadline, "deadline"), "deadline_in": None}
    return {"deadline_in": duration(deadline, "deadline"), "deadline": None}


def check_key(key: object) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= 500:
        raise InvalidOption(f"key must be a text of 1 to 500 characters, not {key!r}.")
    return key


def check_requires(requires: object) -> tuple[str, ...]:
    if isinstance(requires, str) or not isinstance(requires, Sequence):
        raise InvalidOption(f"requires must be a list of capabilities such as ['gpu'], not {requires!r}.")
    return tuple(sorted({check_name(name, "a capability") for name in requires}))


def check_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    plain = {str(name): value for name, value in metadata.items()}
    try:
        size = len(encoder.encode(plain))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InvalidOption(f"metadata can't be carried as JSON: {error}.") from error
    if size > METADATA_LIMIT:
        raise InvalidOption(
            f"metadata takes {size:,} bytes, more than {METADATA_LIMIT:,}: it is for labels, not for data."
        )
    return plain


SHARED = frozenset(Defaults.__struct_fields__)

CONVERT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "queue": lambda value: {"queue": check_name(value, "queue")},
    "priority": lambda value: {"priority": parse_priority(value)},
    "delay": lambda value: {"delay": duration(value, "delay"), "at": None},
    "at": lambda value: {"at": instant(value, "at"), "delay": 0},
    "deadline": check_deadline,
    "key": lambda value: {"key": check_key(value)},
    "window": lambda value: {"window": duration(value, "window")},
    "requires": lambda value: {"requires": check_requires(value)},
    "metadata": lambda value: {"metadata": check_metadata(value)},
    "headers": lambda value: {"headers": {str(name): str(text) for name, text in value.items()}},
    "id": lambda value: {"id": check_id(value)},
    "block": lambda value: {"block": seconds(duration(value, "block"))},
    "connection": lambda value: {"connection": value},
}
"""Each option in its public form → the fields it sets."""
