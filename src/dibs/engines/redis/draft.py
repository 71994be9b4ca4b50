"""Hashes and ordered sets as one transaction sees them: what is stored, and on top of it what the transaction writes.

Nothing is written before the end: `Draft.commands` are then sent to the script `save`, which first compares what was
read with what is stored. If anything differs, it writes nothing, and the verb runs again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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


class Members:
    """What was added to an ordered set, and what was removed."""

    def __init__(self) -> None:
        self.there: dict[bytes, bool] = {}
        self.ordered: dict[bool, list[bytes]] = {}
        """Those that are there, and those that are not, in order, since the last change."""

    def change(self, member: bytes, is_there: bool) -> None:
        self.there[member] = is_there
        self.ordered.clear()

    def between(self, low: bytes, high: bytes, are_there: bool) -> list[bytes]:
        """Those in a range, in order."""
        if are_there not in self.ordered:
            self.ordered[are_there] = sorted(each for each, is_there in self.there.items() if is_there is are_there)
        found = self.ordered[are_there]
        begin = 0 if low == START else (bisect_right if low[:1] == b"(" else bisect_left)(found, low[1:])
        end = len(found) if high == LAST else (bisect_left if high[:1] == b"(" else bisect_right)(found, high[1:])
        return found[begin:end]


class Draft:
    """What a transaction has read, and what it will write."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: dict[tuple[str, str], bytes | None] = {}
        """By key and field, what was stored when it was first read."""
        self.fields: dict[str, dict[str, bytes | None]] = {}
        self.members: dict[str, Members] = {}
        """By key, members that were added or removed."""
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
            changed = self.members.get(key)
            low, high = (last, first) if downwards else (first, last)
            removed = 0 if changed is None else len(changed.between(low, high, are_there=False))
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
        if changed is None:
            return stored
        low, high = (last, first) if downwards else (first, last)
        found = {each for each in stored if changed.there.get(each, True)}
        found.update(changed.between(low, high, are_there=True))
        return sorted(found, reverse=downwards)[:most]

    async def range(
        self, key: str, first: bytes, last: bytes, most: int, *, downwards: bool = False, guard: bool = False
    ) -> list[bytes]:
        return (await self.ranges([(key, first, last, most, downwards)], guard=guard))[0]

    def add(self, key: str, member: bytes) -> None:
        self.change(key, member, True)

    def remove(self, key: str, member: bytes) -> None:
        self.change(key, member, False)

    def change(self, key: str, member: bytes, is_there: bool) -> None:
        if key not in self.members:
            self.members[key] = Members()
        self.members[key].change(member, is_there)

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
        for key, changed in self.members.items():
            members = changed.there.items()
            yield from in_parts("ZADD", key, [(0, each) for each, is_there in members if is_there])
            yield from in_parts("ZREM", key, [(each,) for each, is_there in members if not is_there])
        yield from self.more


def pairs(reply: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(reply[::2], reply[1::2], strict=True)


def optional(value: bytes | None) -> tuple[bytes, ...]:
    return () if value is None else (value,)


def in_parts(name: str, key: str, parts: Sequence[tuple[Argument, ...]]) -> Iterator[Command]:
    """One command for some of the parts at a time: a script can't take any number of arguments."""
    for at in range(0, len(parts), AT_ONCE):
        yield (name, key, *(value for part in parts[at : at + AT_ONCE] for value in part))
