"""Decoding the rows of a statement: all together, or one by one if some of them can't be read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, structs

from dibs.engines.unreadable import UNREADABLE, UnreadableRows, problem_of

Value = TypeVar("Value")

BATCH_ERRORS = (msgspec.DecodeError, sqlite3.OperationalError)
"""What decoding rows together raises if one of them is invalid, among other causes: see `is_spoiled`."""


def is_spoiled(error: Exception) -> bool:
    """Whether a row is the cause: it has a blob, a text that is not UTF-8, or an invalid value."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return not isinstance(error, sqlite3.Error) or code == sqlite3.SQLITE_ERROR


def text_or_bytes(stored: bytes) -> str | bytes:
    """A stored text; bytes if it is not UTF-8."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def columns_of(value: object) -> tuple[Any, ...]:
    """A decoded row, as stored."""
    if isinstance(value, Struct):
        return structs.astuple(value)
    return value if isinstance(value, tuple) else (value,)


class RowDecoder(Generic[Value]):
    """Rows of one kind. `what` names the kind for people, the columns `keys` name a row."""

    def __init__(
        self, kind: type[Value], what: str, *keys: int, decode: Callable[[str | bytes], list[Value]] | None = None
    ) -> None:
        self.kind = kind
        self.what = what
        self.keys = keys or (0,)
        decoder: Any = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self.decode: Callable[[str | bytes], list[Value]] = decode or decoder.decode
        self.is_single = kind in (str, int)

    def one_by_one(
        self, rows: Sequence[tuple[Any, ...]], aside: UnreadableRows, unread: list[tuple[Any, ...]] | None = None
    ) -> list[Value]:
        """Those that can be read; the others are told of, and added to `unread`."""
        found = []
        for row in rows:
            try:
                found.append(msgspec.convert(row[0] if self.is_single else row, self.kind))
            except UNREADABLE as error:
                self.set_aside(row, problem_of(error), aside)
                if unread is not None:
                    unread.append(row)
        return found

    def set_aside(self, row: tuple[Any, ...], problem: str, aside: UnreadableRows) -> None:
        aside.log_once(self.what, " ".join(str(row[key]) for key in self.keys), problem)


class TaskDecoder(RowDecoder[Value]):
    """Rows of unfinished tasks: unreadable ones are skipped from now on."""

    def set_aside(self, row: tuple[Any, ...], problem: str, aside: UnreadableRows) -> None:
        super().set_aside(row, problem, aside)
        task_id = row[self.keys[0]]
        if isinstance(task_id, str):
            aside.skip_task(task_id)
        else:
            aside.skip_nameless()
