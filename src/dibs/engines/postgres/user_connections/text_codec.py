"""Converts values for a driver whose own conversions the user may have changed.

Parameters are text without a type, so the server infers their types from the statement, as it does for asyncpg. Results
come in the binary form, which no setting of the session changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct, unpack
from typing import Any
from uuid import UUID

__all__ = ["Row", "as_text", "from_binary"]

LENGTH = Struct(">i")
NULL = -1


class Row:
    """A row as asyncpg would return it: by name, by position, unpacked."""

    __slots__ = ("names", "values")

    def __init__(self, names: dict[str, int], values: Sequence[Any]) -> None:
        self.names = names
        self.values = values

    def __getitem__(self, place: str | int) -> Any:
        return self.values[self.names[place] if isinstance(place, str) else place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<Row {dict(zip(self.names, self.values, strict=False))}>"


def as_text(value: object) -> str:
    """A parameter as PostgreSQL reads it; not for None."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int | UUID):
        return str(value)
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, list | tuple):
        return "{" + ",".join(map(element, value)) + "}"
    raise TypeError(f"a {type(value).__qualname__} can't be a parameter of a statement")


def element(value: object) -> str:
    """A value inside an array."""
    if value is None:
        return "NULL"
    text = as_text(value)
    if isinstance(value, int):  # the frequent case, without quotes
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def from_binary(kind: int, data: bytes, encoding: str) -> Any:
    """A value of the type with this oid."""
    if kind in TEXTS:
        return data.decode(encoding)
    if kind in ARRAYS:
        return array(data, encoding)
    read = READERS.get(kind)
    if read is None:
        raise TypeError(f"a statement returned a value of type {kind}, which can't be decoded here")
    return read(data)


def number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


TEXTS = frozenset({18, 19, 25, 1042, 1043})
ARRAYS = frozenset({1005, 1007, 1009, 1016, 2951})
READERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: data != b"\0",
    17: bytes,
    20: number,
    21: number,
    23: number,
    26: number,
    701: lambda data: unpack(">d", data)[0],
    2278: lambda _: None,
    2950: lambda data: UUID(bytes=bytes(data)),
}
"""By oid: boolean, bytea, bigint, smallint, integer, oid, double precision, void, uuid."""


def array(data: bytes, encoding: str) -> list[Any]:
    """Arrays of one dimension; an array without dimensions is empty."""
    dimensions, _, kind = unpack(">iiI", data[:12])
    if dimensions == 0:
        return []
    count, place = LENGTH.unpack(data[12:16])[0], 20
    found: list[Any] = []
    for _ in range(count):
        (length,) = LENGTH.unpack(data[place : place + 4])
        place += 4
        if length == NULL:
            found.append(None)
            continue
        found.append(from_binary(kind, data[place : place + length], encoding))
        place += length
    return found
