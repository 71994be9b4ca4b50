"""Tasks as stored: columns for what statements read, facts for the rest."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from dibs.core.priority import scale
from dibs.core.settings import FALLBACK, QueueSettings, Resolved, Tier, tier_of
from dibs.core.states import Reason, State
from dibs.core.task import EndedBy, Failure, LeasedTask, Moment, NewTask, Percent, TaskRecord, TaskSpec
from dibs.core.times import Instant, day_of
from dibs.engines.decisions.partition import Partition

__all__ = [
    "MIXED",
    "Columns",
    "Facts",
    "Track",
    "decode_facts",
    "ended_columns",
    "facts_for",
    "facts_of",
    "leased_task",
    "mixed_band",
    "record_from",
    "task_columns",
]


MIXED = {Tier.LOW: -1, Tier.MEDIUM: -2, Tier.HIGH: -3, Tier.CRITICAL: -4}
"""The bands of tracks whose tasks have any priority of a tier, or have come back."""
TIERS = {band: tier for tier, band in MIXED.items()}

Band = Annotated[int, Meta(ge=min(TIERS), le=100)]


class Track(Struct, array_like=True, frozen=True):
    """What the tasks of a track have in common: their kind, a lane of their queue, and the epoch they are ranked by.

    All tasks of a track were submitted with priorities of one tier, so what is counted by track is known by queue, name
    and tier. `fair`: tenants take turns. `band`: the priority that all are ranked by, in the order of their arrival, or
    one of `MIXED`. `retired`: nothing waits in it or ever will.
    """

    number: int
    queue: str
    name: str
    requires: tuple[str, ...]
    lane: int
    epoch: int
    fair: bool = False
    band: Band = MIXED[Tier.MEDIUM]
    retired: bool = False

    @property
    def is_mixed(self) -> bool:
        return self.band in TIERS

    @property
    def tier(self) -> Tier:
        """The tier of the priorities that its tasks were submitted with."""
        return TIERS[self.band] if self.is_mixed else tier_of(self.band)


def mixed_band(priority: int) -> int:
    """The band of a track for tasks of any priority of the same tier."""
    return MIXED[tier_of(priority)]


PENDING, RUNNING, COMPLETED, BLOCKED = State.PENDING, State.RUNNING, State.COMPLETED, State.BLOCKED
"""Looked up once: every task that is read is compared with them."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
"""A lease number: where one counter serves all tasks, it grows fast."""
Fraction = Annotated[float, Meta(ge=0, le=1)]


class Facts(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What no statement reads. `options=None`: none were set.

    A task with a field that this version does not know is unreadable: nothing is dropped.
    """

    spec: TaskSpec
    changed_at: Moment | None = None
    options: Resolved | None = None
    attempts: Count = 0
    losses: Count = 0
    handed_back: Count = 0
    settled_lease: Number = 0
    cancel_reason: str | None = None
    reason: Reason | None = None
    ended_by: EndedBy | None = None
    note: str = ""
    failure: Failure | None = None
    inherited: Percent = 0
    not_before: Moment | None = None
    """When a blocked task is due once it is unblocked."""


decode_facts = msgspec.json.Decoder(Facts).decode
decode_progress = msgspec.json.Decoder(tuple[Fraction, str]).decode


def facts_of(record: TaskRecord) -> Facts:
    """The part of a record that is kept as JSON."""
    return Facts(
        spec=record.spec,
        changed_at=record.changed_at,
        options=None if record.options is FALLBACK else record.options,
        attempts=record.attempts,
        losses=record.losses,
        handed_back=record.handed_back,
        settled_lease=record.settled_lease,
        cancel_reason=record.cancel_reason,
        reason=record.reason,
        ended_by=record.ended_by,
        note=record.note,
        failure=record.failure,
        inherited=record.inherited,
        not_before=record.due_at if record.state is State.BLOCKED else None,
    )


def facts_for(new: NewTask, options: Resolved) -> Facts:
    """`facts_of` a new task without dependencies, without building a record."""
    return Facts(spec=new.spec, options=None if options is FALLBACK else options)


class Columns(Struct, array_like=True, frozen=True):
    """The columns of a task that all engines read alike."""

    id: str
    track: int
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


def check_columns(row: Columns) -> None:
    """Check what a task in its state must have, so that other code can rely on it."""
    state = row.state
    if state is PENDING and row.ready_at is None:
        raise ValueError("it is pending, but has no ready_at")
    if state is RUNNING and (
        row.lease_expires_at is None or row.started_at is None or row.ready_at is None or row.worker is None
    ):
        raise ValueError("it is running, but has no worker, no start or no end of its lease")


def record_from(
    row: Columns,
    facts: Facts,
    track: Track,
    created_at: Instant,
    finished_at: Instant | None,
    progress: str | bytes | None,
    result: bytes | None,
    args: bytes,
) -> TaskRecord:
    """The record made of a row's columns, its facts and its track. ValueError: they contradict each other."""
    check_columns(row)
    done, message = decode_progress(progress) if progress is not None else (None, "")
    # Completions move rows in bulk and leave `facts` unchanged: what `moves.settled` changes there is added here.
    completed = row.state is COMPLETED
    return TaskRecord(
        id=row.id,
        queue=track.queue,
        name=track.name,
        args=args,
        requires=track.requires,
        spec=facts.spec,
        state=row.state,
        options=facts.options or FALLBACK,
        created_at=created_at,
        due_at=facts.not_before if row.state is BLOCKED else row.due_at,
        ready_at=row.ready_at,
        started_at=row.started_at,
        finished_at=finished_at,
        changed_at=None if completed else facts.changed_at,
        lane=track.lane,
        rank_offset=row.rank - (row.ready_at or 0),
        rerank_at=row.rerank_at,
        attempts=facts.attempts,
        losses=facts.losses,
        handed_back=facts.handed_back,
        lease=row.lease,
        settled_lease=row.lease if completed else facts.settled_lease,
        lease_expires_at=row.lease_expires_at,
        worker=row.worker,
        sequence=row.sequence,
        cancel_reason=facts.cancel_reason,
        progress=1.0 if completed and done is not None else done,
        progress_message=message,
        reason=facts.reason,
        ended_by=facts.ended_by,
        note=facts.note,
        result=result,
        failure=None if completed else facts.failure,
        share=facts.spec.tenant if track.fair else "",
        inherited=facts.inherited,
    )


def leased_task(
    facts: Facts,
    track: Track,
    settings: QueueSettings,
    *,
    id: str,
    lease: int,
    expires_at: Instant,
    ready_at: Instant,
    rank: int,
    args: bytes,
    now: Instant,
) -> LeasedTask:
    """`moves.leased`, directly from a row's columns, its facts and its track."""
    return LeasedTask(
        id=id,
        lease=lease,
        lease_expires_at=expires_at,
        claimed_at=now,
        ready_at=ready_at,
        queue=track.queue,
        name=track.name,
        args=args,
        spec=facts.spec,
        rank=rank,
        scale=scale(settings, track.lane),
        options=facts.options or FALLBACK,
        attempts=facts.attempts,
        losses=facts.losses,
        handed_back=facts.handed_back,
        fair=settings.fair,
    )


def task_columns(record: TaskRecord, track: int, gate: int, version: int) -> tuple[object, ...]:
    """The columns of an unfinished task, except the ones whose format is the engine's: progress, arguments, facts."""
    return (
        record.id,
        track,
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
        None if record.spec.partition is None else Partition(record.queue, record.spec.partition).key,
        record.spec.expires_at,
        record.spec.workflow,
        version,
    )


def ended_columns(record: TaskRecord, track: int, version: int) -> tuple[object, ...]:
    """The columns of an ended task; progress, result, arguments and facts follow."""
    assert record.finished_at is not None
    return (
        record.id,
        day_of(record.finished_at),
        track,
        record.state,
        record.rank,
        record.ready_at,
        record.lease,
        record.started_at,
        record.finished_at,
        record.worker,
        record.sequence,
        version,
    )
