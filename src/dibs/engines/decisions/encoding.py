"""Values as JSON."""

from __future__ import annotations

import msgspec

__all__ = ["encode", "to_json"]

encode = msgspec.json.Encoder().encode


def to_json(value: object) -> str:
    """A value as JSON text."""
    return encode(value).decode()
