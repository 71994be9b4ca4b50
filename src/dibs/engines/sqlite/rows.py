"""Tasks as rows and back.

A row leaves the store as one JSON array with the columns of `Row`, in this order, whichever place it is in. Strings
that people choose travel inside `facts` or `progress`, which are JSON themselves: SQLite's JSON functions print floats
with 15 digits and cut text at a NUL, and so never see either.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from dibs.core.settings import FALLBACK, Resolved
from dibs.core.states import Reason, State
from dibs.core.task import Failure, TaskRecord
from dibs.core.times import Instant, day_of
from dibs.engines.sqlite.catalog import Stream

__all__ = [
    "Facts",
    "Row",
    "decode_facts",
    "decode_rows",
    "ended_columns",
    "facts_of",
    "partition_key",
    "record_of",
    "task_columns",
    "to_json",
]


class Facts(Struct, kw_only=True, omit_defaults=True):
    """What no statement looks at. `options=None`: nobody set any."""

    priority: int
    created_at: Instant
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


class Row(Struct, array_like=True, frozen=True):
    """A task as any of the three places gives it."""

    id: str
    stream: int
    state: State
    rank: int
    ready_at: Instant | None
    due_at: Instant | None
    rerank_at: Instant | None
    lease: int
    lease_expires_at: Instant | None
    started_at: Instant | None
    worker: str | None
    sequence: int
    progress: str | None
    finished_at: Instant | None
    result: str | None
    args: str
    facts: str


facts_decoder = msgspec.json.Decoder(Facts)
rows_decoder = msgspec.json.Decoder(list[Row])
progress_decoder = msgspec.json.Decoder(tuple[float, str])
encoder = msgspec.json.Encoder()

decode_facts = facts_decoder.decode
decode_rows = rows_decoder.decode


def to_json(value: object) -> str:
    """A value as the JSON text that a statement takes."""
    return encoder.encode(value).decode()


def facts_of(record: TaskRecord) -> Facts:
    """The part of a record that is kept as JSON."""
    return Facts(
        priority=record.priority,
        created_at=record.created_at,
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
    facts = decode_facts(row.facts)
    progress, message = progress_decoder.decode(row.progress) if row.progress is not None else (None, "")
    # Completions move rows in bulk and leave `facts` as they were: what `moves.settled` changes there is added here.
    completed = row.state is State.COMPLETED
    return TaskRecord(
        id=row.id,
        queue=stream.queue,
        name=stream.name,
        args=row.args.encode(),
        priority=facts.priority,
        state=row.state,
        options=facts.options or FALLBACK,
        created_at=facts.created_at,
        due_at=facts.not_before if row.state is State.BLOCKED else row.due_at,
        ready_at=row.ready_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        deadline=facts.deadline,
        lane=stream.lane,
        rank_offset=row.rank - (row.ready_at or 0),
        rerank_at=row.rerank_at,
        attempts=facts.attempts,
        losses=facts.losses,
        lease=row.lease,
        settled_lease=row.lease if completed else facts.settled_lease,
        lease_expires_at=row.lease_expires_at,
        worker=row.worker,
        sequence=row.sequence,
        cancel_reason=facts.cancel_reason,
        progress=progress,
        progress_message=message,
        reason=facts.reason,
        note=facts.note,
        result=None if row.result is None else row.result.encode(),
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


def task_columns(record: TaskRecord, stream: int, gated: bool) -> tuple[object, ...]:
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
        int(record.cancel_reason is not None),
        record.share,
        int(gated),
        None if record.partition is None else partition_key(record.queue, record.partition),
        record.expires_at,
        record.workflow,
        progress_text(record),
        record.args.decode(),
        to_json(facts_of(record)),
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
        progress_text(record),
        None if record.result is None else record.result.decode(),
        record.args.decode(),
        to_json(facts_of(record)),
        record.workflow,
    )


def progress_text(record: TaskRecord) -> str | None:
    return None if record.progress is None else to_json((record.progress, record.progress_message))
