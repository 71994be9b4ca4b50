"""Checks that configuration shares: names, whole numbers, and the nearest spelling of what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from dibs.errors import InvalidOption

__all__ = ["check_fraction", "check_label", "check_name", "check_number", "nearest", "unknown_option"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/\-]{0,199}")


def nearest(word: str, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"`, or nothing."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {str(found[0])!r}?" if found else ""


def unknown_option(name: str, known: Iterable[str], where: str) -> InvalidOption:
    """The error for an option that nobody knows."""
    names = sorted(known)
    return InvalidOption(f"{where} has no option {name!r}.{nearest(name, names)} It knows: {', '.join(names)}.")


def check_name(value: object, what: str) -> str:
    """A queue, worker or capability name: letters, digits and ``_ . : / -``, at most 200."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidOption(
            f"{what} must be 1 to 200 letters, digits or any of _ . : / - (starting with a letter, digit or _), "
            f"not {value!r}."
        )
    return value


def check_number(value: object, what: str, low: int, high: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOption(f"{what} must be a whole number from {low:,} to {high:,}, not {value!r}.")
    return value


def check_fraction(value: object, what: str) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidOption(f"{what} must be a number from 0 to 1, not {value!r:.100}.")
    return float(value)


def check_label(value: object, what: str) -> str:
    """A tenant or partition: any text of 1 to 200 characters that can be stored and shown."""
    if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
        raise InvalidOption(f"{what} must be a text of 1 to 200 printable characters, not {value!r}.")
    return value
