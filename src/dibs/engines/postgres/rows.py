"""Tasks as rows and back.

Every statement that reads tasks gives the columns of `find.sql`, whichever of the three places they come from. What
people choose travels inside `facts` and `progress`, JSON that no statement looks into.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dibs.core.settings import FALLBACK, Resolved
from dibs.core.states import Reason, State
from dibs.core.task import Failure, TaskRecord
from dibs.core.times import Instant, day_of
from dibs.engines.postgres.catalog import Stream

__all__ = [
    "Facts",
    "Row",
    "columns",
    "decode_facts",
    "encode",
    "ended_columns",
    "facts_of",
    "partition_key",
    "real_ids",
    "record_of",
    "task_columns",
    "to_json",
]

Row = Mapping[str, Any]
"""A row as the driver gives it."""


class Facts(Struct, kw_only=True, omit_defaults=True):
    """What no statement looks at. `options=None`: nobody set any."""

    priority: int
    options: Resolved | None = None
    deadline: Instant | None = None
    attempts: int = 0
    losses: int = 0
    settled_lease: int = 0
    cancel_reason: str | None = None
    reason: Reason | None = None
    note: str = ""
    failure: Failure | None = None
    key: str | None = None
    metadata: dict[str, Any] = {}
    headers: dict[str, str] = {}
    parent: str | None = None
    partition: str | None = None
    tenant: str = ""
    expires_at: Instant | None = None
    workflow: str | None = None
    inherited: int = 0
    takes: bool = False
    not_before: Instant | None = None
    """When a blocked task is due, once nothing else keeps it."""


facts_decoder = msgspec.json.Decoder(Facts)
progress_decoder = msgspec.json.Decoder(tuple[float, str])
encoder = msgspec.json.Encoder()

decode_facts = facts_decoder.decode
encode = encoder.encode


def to_json(value: object) -> str:
    """A value as JSON text."""
    return encode(value).decode()


UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def real_ids(ids: Iterable[str]) -> list[str]:
    """Those that can be the id of a task: the database takes nothing else."""
    return [task_id for task_id in ids if UUID.fullmatch(task_id)]


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as the arrays that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def facts_of(record: TaskRecord) -> Facts:
    """The part of a record that is kept as JSON."""
    return Facts(
        priority=record.priority,
        options=None if record.options is FALLBACK else record.options,
        deadline=record.deadline,
        attempts=record.attempts,
        losses=record.losses,
        settled_lease=record.settled_lease,
        cancel_reason=record.cancel_reason,
        reason=record.reason,
        note=record.note,
        failure=record.failure,
        key=record.key,
        metadata=record.metadata,
        headers=record.headers,
        parent=record.parent,
        partition=record.partition,
        tenant=record.tenant,
        expires_at=record.expires_at,
        workflow=record.workflow,
        inherited=record.inherited,
        takes=record.takes,
        not_before=record.due_at if record.state is State.BLOCKED else None,
    )


def record_of(row: Row, stream: Stream) -> TaskRecord:
    """The record that a row and its stream tell of."""
    facts = decode_facts(row["facts"])
    state = State(row["state"])
    progress, message = progress_decoder.decode(row["progress"]) if row["progress"] is not None else (None, "")
    # Completions move rows in bulk and leave `facts` as they were: what `moves.settled` changes there is added here.
    completed = state is State.COMPLETED
    return TaskRecord(
        id=str(row["id"]),
        queue=stream.queue,
        name=stream.name,
        args=row["args"],
        priority=facts.priority,
        state=state,
        options=facts.options or FALLBACK,
        created_at=row["created_at"],
        due_at=facts.not_before if state is State.BLOCKED else row["due_at"],
        ready_at=row["ready_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        deadline=facts.deadline,
        lane=stream.lane,
        rank_offset=row["rank"] - (row["ready_at"] or 0),
        rerank_at=row["rerank_at"],
        attempts=facts.attempts,
        losses=facts.losses,
        lease=row["lease"],
        settled_lease=row["lease"] if completed else facts.settled_lease,
        lease_expires_at=row["lease_expires_at"],
        worker=row["worker"],
        sequence=row["sequence"],
        cancel_reason=facts.cancel_reason,
        progress=progress,
        progress_message=message,
        reason=facts.reason,
        note=facts.note,
        result=row["result"],
        failure=None if completed else facts.failure,
        key=facts.key,
        requires=stream.requires,
        metadata=facts.metadata,
        headers=facts.headers,
        parent=facts.parent,
        partition=facts.partition,
        tenant=facts.tenant,
        share=facts.tenant if stream.fair else "",
        expires_at=facts.expires_at,
        workflow=facts.workflow,
        inherited=facts.inherited,
        takes=facts.takes,
    )


def partition_key(queue: str, partition: str) -> str:
    """What partitions are told apart by in the whole store. No queue's name has a space."""
    return f"{queue} {partition}"


def task_columns(record: TaskRecord, stream: int, gate: int) -> tuple[object, ...]:
    """An unfinished task, as `save_tasks.sql` takes it."""
    return (
        record.id,
        stream,
        record.state,
        record.rank,
        record.ready_at,
        None if record.state is State.BLOCKED else record.due_at,
        record.rerank_at,
        record.lease,
        record.options.lease,
        record.lease_expires_at,
        record.started_at,
        record.worker,
        record.sequence,
        record.cancel_reason is not None,
        record.share,
        gate,
        None if record.partition is None else partition_key(record.queue, record.partition),
        record.expires_at,
        record.workflow,
        progress_of(record),
        record.args,
        encode(facts_of(record)),
        record.created_at,
    )


def ended_columns(record: TaskRecord, stream: int) -> tuple[object, ...]:
    """An ended task, as `save_dead.sql` and `save_finished.sql` take it."""
    assert record.finished_at is not None
    return (
        record.id,
        day_of(record.finished_at),
        stream,
        record.state,
        record.rank,
        record.ready_at,
        record.lease,
        record.started_at,
        record.finished_at,
        record.worker,
        record.sequence,
        progress_of(record),
        record.result,
        record.args,
        encode(facts_of(record)),
        record.workflow,
        record.reason,
        record.created_at,
    )


def progress_of(record: TaskRecord) -> bytes | None:
    return None if record.progress is None else encode((record.progress, record.progress_message))
