"""Tasks as rows and back.

A row leaves the store as one JSON array with the columns of `Row`, in this order, from any of the three places. Strings
chosen by users are inside `facts` or `progress`, which are JSON themselves: SQLite's JSON functions print floats with
15 digits and cut text at a NUL, and so never handle either.
"""

from __future__ import annotations

import msgspec

from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions import facts as shared
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import Columns, Track, decode_facts, facts_of, record_from

__all__ = ["BEYOND", "Row", "decode_rows", "ended_columns", "record_of", "row_from", "task_columns"]

BEYOND = "\U0010ffff"
"""Sorts after every id."""


class Row(Columns, array_like=True, frozen=True):
    """A task from any of the three places."""

    version: int
    progress: str | None
    finished_at: Instant | None
    result: str | None
    args: str
    facts: str
    created_at: Instant


decode_rows = msgspec.json.Decoder(list[Row]).decode


def row_from(columns: tuple[object, ...]) -> Row:
    """A row that was read by itself."""
    return msgspec.convert(columns, Row)


def record_of(row: Row, track: Track) -> TaskRecord:
    """The record of a row and its track."""
    facts = decode_facts(row.facts)
    result = None if row.result is None else row.result.encode()
    return record_from(row, facts, track, row.created_at, row.finished_at, row.progress, result, row.args.encode())


def task_columns(record: TaskRecord, track: int, version: int) -> tuple[object, ...]:
    """The columns of an unfinished task, for `insert_task` and `save_task`."""
    return (
        *shared.task_columns(record, track, 0, version),
        progress_text(record),
        record.args.decode(),
        to_json(facts_of(record)),
    )


def ended_columns(record: TaskRecord, track: int, version: int) -> tuple[object, ...]:
    """The columns of an ended task, for `save_dead` and `save_finished`."""
    return (
        *shared.ended_columns(record, track, version),
        progress_text(record),
        None if record.result is None else record.result.decode(),
        record.args.decode(),
        to_json(facts_of(record)),
        record.spec.workflow,
        record.created_at,
    )


def progress_text(record: TaskRecord) -> str | None:
    return None if record.progress is None else to_json((record.progress, record.progress_message))
