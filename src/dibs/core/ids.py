"""Task ids: UUIDv7, so that ids in time order keep every index dense at its end."""

from __future__ import annotations

from uuid import UUID

from dibs.core.options import shown
from dibs.errors import InvalidOption


def uuid7(milliseconds: int, counter: int, random: int) -> str:
    """A version 7 UUID of a Unix time, a 12-bit counter and 62 random bits."""
    tail = 1 << 63 | random & (2**62 - 1)
    return (
        f"{milliseconds >> 16 & 0xFFFFFFFF:08x}-{milliseconds & 0xFFFF:04x}-7{counter & 0xFFF:03x}"
        f"-{tail >> 48:04x}-{tail & 0xFFFFFFFFFFFF:012x}"
    )


def is_id(text: str) -> bool:
    """Whether something could be the id of a task, a workflow or a step."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def check_id(value: object) -> str:
    """A caller-chosen id in its canonical form."""
    try:
        return str(value if isinstance(value, UUID) else UUID(value))  # type: ignore[arg-type]
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(
            f"id must be a UUID, such as '0190163d-8694-739b-aea5-966c26f8ad91', not {shown(value)}."
        ) from None
