"""Checks of arguments, and their error messages.

Every public function passes its arguments to a check here (or in `times`, for durations and instants). A check returns
the value in the form that the code uses, or raises `InvalidOption`. Values in messages go through `shown` or `brief`: a
value may be of any size, a message may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from reprlib import Repr
from typing import Any, NamedTuple, TypeGuard, TypeVar
from urllib.parse import SplitResult, urlsplit
from uuid import UUID

from msgspec import Struct

from dibs.errors import InvalidOption

__all__ = [
    "CAPABILITIES",
    "KEY_LIMIT",
    "MODULES",
    "NAME_LIMIT",
    "NOTE_LIMIT",
    "PAGE_LIMIT",
    "QUEUES",
    "TASKS",
    "URL_LIMIT",
    "NumberOption",
    "as_number",
    "brief",
    "check_choice",
    "check_flag",
    "check_fraction",
    "check_items",
    "check_kind",
    "check_label",
    "check_mapping",
    "check_name",
    "check_names",
    "check_note",
    "check_number",
    "check_real",
    "check_reference",
    "check_text",
    "is_several",
    "nearest",
    "plain",
    "shown",
    "split_url",
    "storable",
    "unknown_option",
    "worded",
]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,199}")
NAME_LIMIT = 200

WHOLE = re.compile(r"-?[0-9]{1,15}")

MESSAGE_LIMIT = 480
"""Characters that a message to people may have."""

VALUE_LIMIT = 80
"""Characters of a message that one value may take."""

KEY_LIMIT = 500
"""Characters of an idempotency key."""

PAGE_LIMIT = 1000
"""The most items that one call returns."""

NOTE_LIMIT = 1000
"""Characters of a reason or a progress message."""

URL_LIMIT = 2000
"""Characters of a URL."""

LONG_INT = 200
"""Bits from which a number is not written out: that takes time, and Python refuses more than 4,300 digits."""

GUESSED = 100
"""Characters up to which a name is compared with the known ones."""

Choice = TypeVar("Choice", bound=StrEnum)
Item = TypeVar("Item")


class Short(Repr):
    """`repr` that stops early: the first few items of a container, both ends of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxtuple = self.maxlist = self.maxarray = self.maxdict = self.maxset = self.maxfrozenset = 4
        self.maxdeque = 4
        self.maxstring = self.maxother = VALUE_LIMIT - 10

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= LONG_INT else f"a number of {x.bit_length():,} bits"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[: self.maxstring]) + ("…" if len(x) > self.maxstring else "")


short = Short()


def shown(value: object) -> str:
    """A value for a message, in at most 80 characters."""
    try:
        return brief(short.repr(value), VALUE_LIMIT)
    except Exception:  # a `__repr__` that raises, or keys that can't be compared: the message must not fail
        return f"a {type(value).__name__}"


def brief(text: str, most: int = MESSAGE_LIMIT) -> str:
    """A text, without its middle if it is long."""
    if len(text) <= most:
        return text
    half = (most - 3) // 2
    return f"{text[:half]} … {text[-half:]}"


def nearest(word: object, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"`, or nothing."""
    if not isinstance(word, str) or len(word) > GUESSED:
        return ""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {shown(str(found[0]))}?" if found else ""


def unknown_option(name: object, known: Iterable[str], where: str) -> InvalidOption:
    """The error for an unknown option."""
    names = sorted(known)
    message = f"{where} has no option {shown(name)}.{nearest(name, names)}"
    listed = f"{message} It knows: {', '.join(names)}."
    return InvalidOption(listed if len(listed) <= MESSAGE_LIMIT else message)


def check_name(value: object, what: str) -> str:
    """A queue, worker or capability name: letters, digits and ``_ . : / -``, at most 200."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidOption(
            f"{what} must be 1 to 200 letters, digits or any of _ . : / - (starting with a letter, digit or _), "
            f"not {shown(value)}."
        )
    return plain(value)


class Named(NamedTuple):
    """What a name stands for, in messages."""

    one: str
    many: str
    example: str


QUEUES = Named("queue", "queues", "mail")
CAPABILITIES = Named("a capability", "capabilities", "gpu")
TASKS = Named("a task's name", "tasks' names", "mail.send")
MODULES = Named("a module's name", "modules' names", "shop.tasks")


def check_names(value: object, what: str, named: Named) -> tuple[str, ...]:
    """Several names."""
    if not is_several(value):
        raise InvalidOption(f"{what} must be a list of {named.many} such as [{named.example!r}], not {shown(value)}.")
    return tuple(check_name(name, named.one) for name in value)


def is_several(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether a value holds several values: a text does not, though it is a sequence of letters."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def check_kind(value: object, what: str, kind: type[Item]) -> Item:
    """An object of one class."""
    if not isinstance(value, kind):
        raise InvalidOption(f"{what} must be a {kind.__name__}, not {shown(value)}.")
    return value


def check_items(value: object, what: str, kind: type[Item], several: str) -> list[Item]:
    """Several things of one kind, which `several` describes."""
    if not is_several(value):
        raise InvalidOption(f"{what} takes a list of {several}, not {shown(value)}.")
    found = list(value)
    for item in found:
        if not isinstance(item, kind):
            raise InvalidOption(f"{what} takes a list of {several}, and {shown(item)} is none of them.")
    return found


def check_number(value: object, what: str, low: int, high: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOption(f"{what} must be a whole number from {low:,} to {high:,}, not {shown(value)}.")
    return value


def check_real(value: object, what: str, low: float, high: float) -> float:
    """A number within bounds; NaN never is."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidOption(f"{what} must be a number from {low:g} to {high:,.0f}, not {shown(value)}.")
    return float(value)


def check_fraction(value: object, what: str) -> float:
    """A number from 0 to 1."""
    return check_real(value, what, 0, 1)


def check_flag(value: object, what: str) -> bool:
    """True or False, and nothing that only behaves like it: `"no"` would be true."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{what} must be True or False, not {shown(value)}.")
    return value


def check_choice(choices: type[Choice], value: object, what: str) -> Choice:
    """One of a few words."""
    names = [str(choice) for choice in choices]
    if not isinstance(value, str) or value not in names:
        raise InvalidOption(f"{what} must be one of {', '.join(names)}, not {shown(value)}.{nearest(value, names)}")
    return choices(value)


def check_mapping(value: object, what: str, example: str) -> Mapping[Any, Any]:
    """A mapping."""
    if not isinstance(value, Mapping):
        raise InvalidOption(f"{what} must be a mapping such as {example}, not {shown(value)}.")
    return value


def check_text(value: object, what: str, most: int, least: int = 0) -> str:
    """A text that every store can keep: no lone surrogates (UTF-8 can't encode them), no NUL (PostgreSQL)."""
    if not isinstance(value, str) or not least <= len(value) <= most:
        size = f"{least:,} to {most:,}" if least else f"at most {most:,}"
        raise InvalidOption(f"{what} must be a text of {size} characters, not {shown(value)}.")
    if not value.isascii() and not is_utf8(value):
        raise InvalidOption(f"{what} has a lone surrogate, which can't be stored: {shown(value)}.")
    if "\0" in value:
        raise InvalidOption(f"{what} has a NUL character, which can't be stored: {shown(value)}.")
    return plain(value)


def plain(text: str) -> str:
    """A text of a subclass, such as a member of a StrEnum, as a plain `str`: stores take no other."""
    return text if type(text) is str else str.__str__(text)


def storable(text: str) -> str:
    """A text that is recorded, not checked: lone surrogates and NUL become question marks."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def worded(value: object) -> object:
    """A number as text, for options that are texts but often numbers; all else is left for a check."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return value if isinstance(value, int) and value.bit_length() > LONG_INT else str(value)


def split_url(url: str) -> SplitResult:
    """The parts of a URL."""
    check_text(url, "a URL", URL_LIMIT, 1)
    try:
        return urlsplit(url)
    except ValueError as error:  # without the URL, which may hold a password
        raise InvalidOption(f"the URL can't be read: {brief(str(error), 200)}.") from None


def as_number(text: str) -> int | str:
    """A text as a whole number of up to 15 digits, if it is one; otherwise the text."""
    return int(text) if WHOLE.fullmatch(text) else text


def check_note(value: object, what: str) -> str:
    """A reason or a message for people."""
    return check_text(value, what, NOTE_LIMIT)


def check_reference(value: object, what: str) -> str:
    """The id or name of something in the store: any short text."""
    if isinstance(value, UUID):
        return str(value)
    return check_text(value, what, NAME_LIMIT)


def check_label(value: object, what: str) -> str:
    """A tenant or partition: any text of 1 to 200 characters that can be stored and shown."""
    if not isinstance(value, str) or not 1 <= len(value) <= NAME_LIMIT or not value.isprintable():
        raise InvalidOption(f"{what} must be a text of 1 to 200 printable characters, not {shown(value)}.")
    return plain(value)


class NumberOption(Struct, frozen=True):
    """The range of a numeric option of a URL."""

    default: str
    low: float
    high: float
    whole: bool = False

    def parse(self, name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self.low <= value <= self.high or (self.whole and value % 1):
            kind = "whole number" if self.whole else "number"
            raise InvalidOption(f"{name} must be a {kind} from {self.low:g} to {self.high:g}, not {shown(text)}.")
        return value
