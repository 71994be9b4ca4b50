"""The names: each function here and beside is what the port calls by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dibs.core.times import Instant
from dibs.engines.redis.tables import Row

__all__ = ["ALL", "PAGE", "READS", "WRITES", "is_by", "read", "same", "text", "write"]

Reading = Callable[..., Awaitable[list[Any]]]
Writing = Callable[..., Awaitable[int]]
READS: dict[str, Reading] = {}
WRITES: dict[str, Writing] = {}

ALL = 1_000_000
"""For what is bounded by what is asked."""
PAGE = 500


def read(function: Reading) -> Reading:
    READS[function.__name__] = function
    return function


def write(function: Writing) -> Writing:
    WRITES[function.__name__] = function
    return function


def same(row: Row) -> Row:
    return row


def text(value: bytes) -> str:
    return value.decode(errors="replace")


def is_by(instant: object, until: Instant) -> bool:
    """Whether an instant that may be damaged has come by then."""
    return isinstance(instant, int) and instant <= until
