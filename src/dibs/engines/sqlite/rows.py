"""Tasks as rows and back.

A row leaves the store as one JSON array with the columns of `Row`, in this order, whichever place it is in. Strings
that people choose travel inside `facts` or `progress`, which are JSON themselves: SQLite's JSON functions print floats
with 15 digits and cut text at a NUL, and so never see either.
"""

from __future__ import annotations

import msgspec

from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions import facts as shared
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import Columns, decode_facts, facts_of, record_from
from dibs.engines.sqlite.catalog import Track

__all__ = ["Row", "decode_rows", "ended_columns", "record_of", "row_from", "task_columns"]


class Row(Columns, array_like=True, frozen=True):
    """A task as any of the three places gives it."""

    progress: str | None
    finished_at: Instant | None
    result: str | None
    args: str
    facts: str


decode_rows = msgspec.json.Decoder(list[Row]).decode


def row_from(columns: tuple[object, ...]) -> Row:
    """A row that was read by itself."""
    return msgspec.convert(columns, Row)


def record_of(row: Row, track: Track) -> TaskRecord:
    """The record that a row and its stream tell of."""
    facts = decode_facts(row.facts)
    result = None if row.result is None else row.result.encode()
    return record_from(row, facts, track, facts.created_at, row.finished_at, row.progress, result, row.args.encode())


def task_columns(record: TaskRecord, track: int, gated: bool) -> tuple[object, ...]:
    """An unfinished task, as `insert_task` and `save_task` take it."""
    return (
        *shared.task_columns(record, track, gated),
        progress_text(record),
        record.args.decode(),
        to_json(facts_of(record, record.created_at)),
    )


def ended_columns(record: TaskRecord, track: int) -> tuple[object, ...]:
    """An ended task, as `save_dead` and `save_finished` take it."""
    return (
        *shared.ended_columns(record, track),
        progress_text(record),
        None if record.result is None else record.result.decode(),
        record.args.decode(),
        to_json(facts_of(record, record.created_at)),
        record.spec.workflow,
    )


def progress_text(record: TaskRecord) -> str | None:
    return None if record.progress is None else to_json((record.progress, record.progress_message))
