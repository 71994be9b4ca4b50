"""Plain functions, as a user's module might have them."""

from __future__ import annotations


def double(number: int) -> int:
    return 2 * number


def _hidden() -> None: ...
