"""Values as JSON."""

from __future__ import annotations

import msgspec

encode = msgspec.json.Encoder().encode


def to_json(value: object) -> str:
    """A value as JSON text."""
    return encode(value).decode()
