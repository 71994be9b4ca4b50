"""Rows with indexes: a hash of rows, and ordered sets that say in which order they are.

Everything but tasks is kept so. A row is a JSON array of its columns, the first of which are its key. An index is an
ordered set of some of its columns (`codec`), or of none if the row is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dibs.engines.decisions.encoding import encode
from dibs.engines.redis import codec
from dibs.engines.redis.draft import LAST, START, Draft
from dibs.engines.redis.keys import Keys

__all__ = ["Index", "Row", "Table", "Tables", "row_of"]

Row = tuple[Any, ...]
decode = msgspec.json.Decoder(list[Any]).decode


class Index(Struct, frozen=True):
    """`columns` as `codec` has them; `of` gives their values, None if a row is not in the index. `key`: which of them
    are the key of the row."""

    name: str
    columns: str
    of: Callable[[Row], Row | None]
    key: tuple[int, ...] = (0,)


class Table(Struct, frozen=True):
    """`width`: how many columns are the key."""

    name: str
    width: int = 1
    indexes: tuple[Index, ...] = ()

    def field(self, key: Sequence[object]) -> str:
        """The field of the hash that has the row of this key."""
        return "\0".join(map(str, key[: self.width]))


class Tables:
    """Tables as one transaction sees them."""

    def __init__(self, draft: Draft, keys: Keys) -> None:
        self.draft = draft
        self.keys = keys

    # Reading.

    async def get(self, table: Table, keys: Sequence[Sequence[object]], *, guard: bool = False) -> list[Row | None]:
        fields = [table.field(key) for key in keys]
        found = await self.draft.values(self.keys(table.name), fields)
        if guard:
            for field in fields:
                self.draft.guard(self.keys(table.name), field)
        return [None if value is None else row_of(field, value) for field, value in zip(fields, found, strict=True)]

    async def one(self, table: Table, *key: object, guard: bool = False) -> list[Row]:
        """The row of a key, if there is one."""
        return [row for row in await self.get(table, [key], guard=guard) if row is not None]

    async def some(self, table: Table, keys: Sequence[Sequence[object]]) -> list[Row]:
        """The rows of those keys that have one."""
        return [row for row in await self.get(table, keys) if row is not None]

    async def all(self, table: Table) -> list[Row]:
        """All rows of a small table, by key."""
        found = await self.draft.all_values(self.keys(table.name))
        return [row_of(field, found[field]) for field in sorted(found)]

    async def index(
        self,
        index: Index,
        prefix: Sequence[Any] = (),
        *,
        after: Sequence[Any] | None = None,
        since: Sequence[Any] | None = None,
        until: Sequence[Any] | None = None,
        most: int,
        downwards: bool = False,
        guard: bool = False,
    ) -> list[Row]:
        """Entries of an index whose first columns are `prefix`, beginning after some (below, if downwards), or with
        some, up to some others, which are included."""
        asked, ends = [(prefix, after)], (since, until)
        return (await self.indexes(index, asked, ends, most=most, downwards=downwards, guard=guard))[0]

    async def indexes(
        self,
        index: Index,
        asked: Sequence[tuple[Sequence[Any], Sequence[Any] | None]],
        ends: tuple[Sequence[Any] | None, Sequence[Any] | None] = (None, None),
        *,
        most: int,
        downwards: bool = False,
        guard: bool = False,
    ) -> list[list[Row]]:
        """`index` of each of some prefixes, in one round trip."""
        key = self.keys(index.name)
        ranges = []
        for prefix, after in asked:
            begins = codec.encode(index.columns, prefix)
            low, high = (b"[" + begins, codec.up_to(begins)) if begins else (START, LAST)
            if after is not None:
                last = codec.encode(index.columns, after)
                low, high = (low, b"(" + last) if downwards else (b"(" + last, high)
            since, until = ends
            if since is not None:
                low = b"[" + codec.encode(index.columns, since)
            if until is not None:
                high = codec.up_to(codec.encode(index.columns, until))
            ranges.append((key, high, low, most, True) if downwards else (key, low, high, most, False))
        found = await self.draft.ranges(ranges, guard=guard)
        return [[codec.decode(index.columns, member) for member in members] for members in found]

    async def rows(self, table: Table, index: Index, entries: Sequence[Row]) -> list[Row]:
        """The rows that entries of an index stand for."""
        return await self.some(table, [[entry[each] for each in index.key] for entry in entries])

    # Writing.

    async def put(self, table: Table, rows: Sequence[Row]) -> None:
        """Write rows, new or not. What is stored for their keys is read first, for the indexes."""
        before = await self.get(table, rows)
        for old, new in zip(before, rows, strict=True):
            self.replace(table, old, new)

    async def delete(self, table: Table, keys: Sequence[Sequence[object]]) -> int:
        """Delete the rows of some keys; how many there were."""
        found = [row for row in await self.get(table, keys) if row is not None]
        for row in found:
            self.replace(table, row, None)
        return len(found)

    def replace(self, table: Table, old: Row | None, new: Row | None) -> None:
        key = old or new
        assert key is not None
        self.draft.put(self.keys(table.name), table.field(key), None if new is None else encode(new))
        for index in table.indexes:
            self.draft.move(self.members(index, old), self.members(index, new))

    def members(self, index: Index, row: Row | None) -> list[tuple[str, bytes]]:
        if row is None:
            return []
        try:
            found = index.of(row)
        except (TypeError, ValueError, IndexError):  # a damaged row: where it is in the index is not known
            return []
        return [] if found is None else [(self.keys(index.name), codec.encode(index.columns, found))]


def row_of(field: str, value: bytes) -> Row:
    """A row; one that is not JSON is its key and its text, which no reader takes for a row."""
    try:
        return tuple(decode(value))
    except (msgspec.DecodeError, ValueError):
        return (*field.split("\0"), value.decode(errors="replace"))
