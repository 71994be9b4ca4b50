"""Tasks as rows and back.

Every statement that reads tasks returns the columns of `find`, from any of the three places. Strings chosen by users
are inside `facts` and `progress`, JSON that no statement reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.engines.decisions import facts as shared
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.facts import Columns, Track, decode_facts, facts_of, record_from

__all__ = ["TaskRow", "columns", "ended_columns", "real_ids", "record_of", "task_columns"]

TaskRow = Mapping[str, Any]
"""A row as the driver returns it."""


UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def real_ids(ids: Iterable[str]) -> list[str]:
    """Those that can be the id of a task: the database accepts nothing else."""
    return [task_id for task_id in ids if UUID.fullmatch(task_id)]


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as the arrays that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def record_of(row: TaskRow, track: Track) -> TaskRecord:
    """The record of a row and its track."""
    columns = Columns(
        str(row["id"]),
        row["track"],
        State(row["state"]),
        row["rank"],
        row["ready_at"],
        row["due_at"],
        row["rerank_at"],
        row["lease"],
        row["lease_expires_at"],
        row["started_at"],
        row["worker"],
        row["sequence"],
    )
    facts = decode_facts(row["facts"])
    created_at, finished_at = row["created_at"], row["finished_at"]
    return record_from(columns, facts, track, created_at, finished_at, row["progress"], row["result"], row["args"])


def task_columns(record: TaskRecord, track: int, gate: int, version: int = 0) -> tuple[object, ...]:
    """The columns of an unfinished task, for `save_tasks`."""
    return (
        *shared.task_columns(record, track, gate, version),
        progress_of(record),
        record.args,
        encode(facts_of(record)),
        record.created_at,
    )


def ended_columns(record: TaskRecord, track: int, version: int) -> tuple[object, ...]:
    """The columns of an ended task, for `save_dead` and `save_finished`."""
    return (
        *shared.ended_columns(record, track, version),
        progress_of(record),
        record.result,
        record.args,
        encode(facts_of(record)),
        record.spec.workflow,
        record.reason,
        record.created_at,
    )


def progress_of(record: TaskRecord) -> bytes | None:
    return None if record.progress is None else encode((record.progress, record.progress_message))
