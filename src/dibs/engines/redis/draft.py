"""Hashes and ordered sets as one transaction sees them: what is stored, and on top of it what the transaction writes.

Nothing is written before the end: `Draft.commands` are then sent to the script `save`, which first compares what was
read with what is stored. If anything differs, it writes nothing, and the verb runs again.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dibs.engines.redis.client import Client
from dibs.engines.redis.connection import Argument, Command

__all__ = ["LAST", "START", "Draft", "Range", "pairs"]

START, LAST = b"-", b"+"
"""The ends of an ordered set."""
AT_ONCE = 500
"""Fields or members of one command."""

Range = tuple[str, bytes, bytes, int, bool]
"""A key, the first and the last member as the commands take them, how many, and whether downwards."""


class Draft:
    """What a transaction has read, and what it will write."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: dict[tuple[str, str], bytes | None] = {}
        """By key and field, what was stored when it was first read."""
        self.fields: dict[str, dict[str, bytes | None]] = {}
        self.members: dict[str, dict[bytes, bool]] = {}
        """By key, members that were added (True) or removed."""
        self.checks: dict[Command, None] = {}
        self.more: list[Command] = []
        """Other commands."""

    @property
    def is_empty(self) -> bool:
        return not self.fields and not self.members and not self.more

    # Hashes.

    async def values(self, key: str, fields: Sequence[str]) -> list[bytes | None]:
        """Fields of a hash. Those that are written later must not have changed until then."""
        written = self.fields.get(key, {})
        new = [each for each in fields if each not in written and (key, each) not in self.seen]
        for at in range(0, len(new), AT_ONCE):
            part = new[at : at + AT_ONCE]
            for field, value in zip(part, await self.client.call("HMGET", key, *part), strict=True):
                self.seen[key, field] = value
        return [written[each] if each in written else self.seen[key, each] for each in fields]

    async def all_values(self, key: str) -> dict[str, bytes]:
        """A whole hash that is never large."""
        reply = await self.client.call("HGETALL", key)
        found = {field.decode(errors="surrogateescape"): value for field, value in pairs(reply)}
        for field, value in found.items():
            self.seen.setdefault((key, field), value)
        for field, written in self.fields.get(key, {}).items():
            if written is None:
                found.pop(field, None)
            else:
                found[field] = written
        return found

    def put(self, key: str, field: str, value: bytes | None) -> None:
        """Write a field, or delete it."""
        self.fields.setdefault(key, {})[field] = value

    def guard(self, key: str, field: str) -> None:
        """What was read must still be so when this is written."""
        self.checks["field", key, field, *optional(self.seen[key, field])] = None

    # Ordered sets.

    async def ranges(self, asked: Sequence[Range], *, guard: bool = False) -> list[list[bytes]]:
        """The members in each of some ranges."""
        commands: list[Command] = []
        for key, first, last, most, downwards in asked:
            removed = sum(not is_there for is_there in self.members.get(key, {}).values())
            name = "ZREVRANGEBYLEX" if downwards else "ZRANGEBYLEX"
            commands.append((name, key, first, last, "LIMIT", 0, most + removed))
        replies = await self.client.pipeline(commands) if commands else []
        if guard:
            for command, reply in zip(commands, replies, strict=True):
                self.checks["range", *command, b"\n".join(reply)] = None
        return [self.merged(each, reply) for each, reply in zip(asked, replies, strict=True)]

    def merged(self, asked: Range, stored: list[bytes]) -> list[bytes]:
        key, first, last, most, downwards = asked
        changed = self.members.get(key)
        if not changed:
            return stored
        low, high = (last, first) if downwards else (first, last)
        found = [each for each in stored if changed.get(each, True)]
        known = set(found)
        for member, is_there in changed.items():
            if is_there and member not in known and is_within(member, low, high):
                insort(found, member, key=(lambda each: tuple(-byte for byte in each)) if downwards else None)
        return found[:most]

    async def range(
        self, key: str, first: bytes, last: bytes, most: int, *, downwards: bool = False, guard: bool = False
    ) -> list[bytes]:
        return (await self.ranges([(key, first, last, most, downwards)], guard=guard))[0]

    def add(self, key: str, member: bytes) -> None:
        self.members.setdefault(key, {})[member] = True

    def remove(self, key: str, member: bytes) -> None:
        self.members.setdefault(key, {})[member] = False

    def move(self, before: Iterable[tuple[str, bytes]], after: Iterable[tuple[str, bytes]]) -> None:
        """From some members of ordered sets to others."""
        old, new = {*before}, {*after}
        for key, member in old - new:
            self.remove(key, member)
        for key, member in new - old:
            self.add(key, member)

    # The end.

    def comparisons(self) -> Iterator[Command]:
        """What must still be stored."""
        yield from self.checks
        for key, fields in self.fields.items():
            for field in fields:
                if (key, field) in self.seen:
                    yield ("field", key, field, *optional(self.seen[key, field]))

    def commands(self) -> Iterator[Command]:
        for key, fields in self.fields.items():
            yield from in_parts("HSET", key, [(each, value) for each, value in fields.items() if value is not None])
            yield from in_parts("HDEL", key, [(each,) for each, value in fields.items() if value is None])
        for key, members in self.members.items():
            yield from in_parts("ZADD", key, [(0, each) for each, is_there in members.items() if is_there])
            yield from in_parts("ZREM", key, [(each,) for each, is_there in members.items() if not is_there])
        yield from self.more


def pairs(reply: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(reply[::2], reply[1::2], strict=True)


def optional(value: bytes | None) -> tuple[bytes, ...]:
    return () if value is None else (value,)


def is_within(member: bytes, low: bytes, high: bytes) -> bool:
    above = low == START or (member > low[1:] if low[:1] == b"(" else member >= low[1:])
    below = high == LAST or (member < high[1:] if high[:1] == b"(" else member <= high[1:])
    return above and below


def in_parts(name: str, key: str, parts: Sequence[tuple[Argument, ...]]) -> Iterator[Command]:
    """One command for some of the parts at a time: a script can't take any number of arguments."""
    for at in range(0, len(parts), AT_ONCE):
        yield (name, key, *(value for part in parts[at : at + AT_ONCE] for value in part))
