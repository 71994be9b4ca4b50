"""Members of ordered sets: columns as bytes that sort as the columns do.

All members of a set have the same score, so the server orders them by their bytes, and a range of it is a range of the
columns. That keeps ties exact, whatever they are, and numbers of any size. Columns are, one letter each:

- `s`: a text, with a zero byte at its end;
- `i`: a whole number of 64 bits, as sixteen hex digits;
- `r`: a rank or an instant below 2⁵³ in size, as fourteen hex digits, which Lua reads exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["END", "RANKS", "after", "decode", "encode", "rank_text", "text_of", "up_to"]

INTEGERS = 2**63
RANKS = 2**53

END = b"\xff"
"""Sorts after every column: no UTF-8 text has this byte."""


def rank_text(rank: int) -> str:
    return f"{min(max(rank + RANKS, 0), 2 * RANKS):014x}"


def text_of(text: str) -> str:
    if "\0" in text or "\1" in text:
        text = text.replace("\1", "\1\2").replace("\0", "\1\1")
    return f"{text}\0"


def encode(columns: str, values: Sequence[Any]) -> bytes:
    """The bytes of some values, of which there may be fewer than columns: then of the beginning of a member."""
    parts = []
    for kind, value in zip(columns, values, strict=False):
        if kind == "s":
            parts.append(text_of(value))
        elif kind == "i":
            parts.append(f"{value + INTEGERS:016x}")
        else:
            parts.append(rank_text(value))
    return "".join(parts).encode()


def decode(columns: str, member: bytes) -> tuple[Any, ...]:
    """The values of a member. ValueError: it is not one."""
    text, values, at = member.decode(), [], 0
    for kind in columns:
        if kind == "s":
            end = text.index("\0", at)
            value: Any = text[at:end]
            if "\1" in value:
                value = value.replace("\1\1", "\0").replace("\1\2", "\1")
            at = end + 1
        elif kind == "i":
            value, at = int(text[at : at + 16], 16) - INTEGERS, at + 16
        else:
            value, at = int(text[at : at + 14], 16) - RANKS, at + 14
        values.append(value)
    return tuple(values)


# Ends of ranges, as the commands of ordered sets take them.


def up_to(prefix: bytes) -> bytes:
    """The end of everything that begins so; what comes before it if used as the start of a range downwards."""
    return b"(" + prefix + END


def after(member: bytes) -> bytes:
    return b"(" + member
