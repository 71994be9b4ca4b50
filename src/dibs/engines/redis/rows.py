"""Tasks as they are stored, and back.

An unfinished task is one value, written with the task and not touched by claims and completions:

    LEASE TRACK LENGTH↵  the span of its lease, its track, and the length of what follows
    […]                  what changes in other sets when it is claimed and completed (`Extras`), if anything
    […]↵                 its columns (`Columns`)
    arguments

While it runs, three more entries say so: its lease number (`running`), when the lease ends (`inflight`), and once for
the whole claim who has it since when (`leases`). An ended task has a line before that (`End`), and its result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant, day_of
from dibs.engines.decisions import facts as shared
from dibs.engines.decisions.encoding import encode
from dibs.engines.decisions.facts import Track, decode_facts, facts_of, record_from
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Place, place_of
from dibs.engines.redis import codec
from dibs.engines.redis.keys import Keys
from dibs.engines.unreadable import UNREADABLE

__all__ = [
    "MEMBERS",
    "PARTITIONS",
    "Entry",
    "StoredTask",
    "columns_of",
    "decode_lease",
    "end_of",
    "ended_value",
    "entries",
    "head_of",
    "is_gated",
    "is_held_by",
    "outline",
    "parts_of",
    "pending_entry",
    "purge_row",
    "record_of",
    "running_parts",
    "running_value",
    "task_value",
    "track_of",
    "waiting_partition",
]

Entry = tuple[str, bytes]
"""A key of an ordered set, and a member of it."""

PARTITIONS = "ssisrsr"
MEMBERS = "sssss"


class Columns(Struct, array_like=True, frozen=True):
    """What is stored of a task besides its arguments."""

    state: State
    rank: int
    ready_at: Instant | None
    due_at: Instant | None
    rerank_at: Instant | None
    lease: int
    version: int
    gated: int
    created_at: Instant
    sequence: int
    started_at: Instant | None
    worker: str | None
    cancel: int
    progress: Raw
    facts: Raw


class End(Struct, array_like=True, frozen=True):
    """How a task ended. `length`: of its result."""

    state: State
    finished_at: Instant
    lease: int
    started_at: Instant | None
    worker: str | None
    sequence: int
    progress: Raw
    length: int | None


class Lease(Struct, array_like=True, frozen=True):
    """What all tasks of a claim have in common."""

    started_at: Instant
    worker: str
    sequence: int


class StoredTask(Struct, frozen=True):
    """A task as it was found."""

    id: str
    place: Place
    value: bytes
    day: int = 0
    running: bytes | None = None
    expires_at: Instant | None = None
    lease: bytes | None = None
    """The record of its lease."""

    @property
    def is_running(self) -> bool:
        return self.running is not None


decode_columns = msgspec.json.Decoder(Columns).decode
decode_end = msgspec.json.Decoder(End).decode
decode_extras = msgspec.msgpack.Decoder(tuple[list[tuple[str, str]], list[Any], list[Any]]).decode
decode_lease = msgspec.json.Decoder(Lease).decode
NOTHING = Raw(b"null")


# Reading.


def head_of(value: bytes) -> bytes:
    """What is compared before a task is written: everything but its arguments."""
    start = value.index(b"\n") + 1
    return value[: value.index(b"\n", start + int(value[value.rindex(b" ", 0, start) + 1 : start - 1])) + 1]


class Parts(Struct, frozen=True):
    """A value, taken apart."""

    track: int
    extras: bytes
    columns: Columns
    args: bytes


def parts_of(value: bytes) -> Parts:
    first, newline, rest = value.partition(b"\n")
    if not newline:
        raise ValueError("it has no first line")
    _, track, length = first.split(b" ")
    size = int(length)
    columns, newline, args = rest[size:].partition(b"\n")
    if not newline:
        raise ValueError("it has no columns")
    return Parts(int(track), rest[:size], decode_columns(columns), args)


def end_of(value: bytes) -> tuple[End, bytes | None, bytes]:
    """How a task ended, its result, and what it was."""
    first, newline, rest = value.partition(b"\n")
    if not newline:
        raise ValueError("it does not say how it ended")
    end = decode_end(first)
    return (end, None, rest) if end.length is None else (end, rest[: end.length], rest[end.length :])


def track_of(task: StoredTask) -> int:
    """The track of a task; ValueError if that can't be read."""
    value = task.value if task.place is Place.TASKS else end_of(task.value)[2]
    return int(value[: value.index(b"\n")].split(b" ")[1])


def running_parts(running: bytes) -> tuple[int, bool, bytes | None]:
    """The lease number, whether the task was asked to stop, and its progress."""
    number, newline, rest = running.partition(b"\n")
    return int(number), newline != b"" and rest[:1] == b"1", rest[1:] or None


def text_or_none(raw: Raw) -> bytes | None:
    found = bytes(raw)
    return None if found == b"null" else found


def columns_of(task: StoredTask) -> tuple[shared.Columns, Parts, Instant | None, bytes | None, bytes | None]:
    """The columns that all engines have, the parts of the value, when it ended, its result, and its progress."""
    end: End | None = None
    result = None
    value = task.value
    if task.place is not Place.TASKS:
        end, result, value = end_of(value)
    parts = parts_of(value)
    columns = parts.columns
    state, lease, progress = columns.state, columns.lease, text_or_none(columns.progress)
    started_at, worker, sequence = columns.started_at, columns.worker, columns.sequence
    if end is not None:
        state, lease, progress = end.state, end.lease, text_or_none(end.progress)
        started_at, worker, sequence = end.started_at, end.worker, end.sequence
    elif task.running is not None:
        state = State.RUNNING
        lease, _, progress = running_parts(task.running)
        if task.lease is None:
            raise ValueError("it is running, but its lease is not there")
        given = decode_lease(task.lease)
        started_at, worker, sequence = given.started_at, given.worker, given.sequence
    elif state is State.RUNNING:
        raise ValueError("its state is running, but it has no lease")
    row = shared.Columns(
        task.id, parts.track, state, columns.rank, columns.ready_at,
        columns.due_at if end is None else None, columns.rerank_at if end is None else None,
        lease, task.expires_at, started_at, worker, sequence,
    )  # fmt: skip
    return row, parts, None if end is None else end.finished_at, result, progress


def record_of(task: StoredTask, track: Track) -> TaskRecord:
    row, parts, finished_at, result, progress = columns_of(task)
    facts = decode_facts(parts.columns.facts)
    return record_from(row, facts, track, parts.columns.created_at, finished_at, progress, result, parts.args)


def is_gated(task: StoredTask) -> bool:
    return bool(parts_of(task.value).columns.gated)


def waiting_partition(keys: Keys, task: StoredTask) -> str | None:
    """The partition that a pending task is in, even if the rest of it can't be read."""
    with suppress(*UNREADABLE):
        first, _, rest = task.value.partition(b"\n")
        waits, _, _ = decode_extras(rest[: int(first.rpartition(b" ")[2])])
        for key, member in waits:
            if key == keys("partitions"):
                return str(codec.decode(PARTITIONS, member.encode())[0])
    return None


def is_held_by(task: StoredTask, workers: Collection[str], sequence: Sequence[int]) -> bool:
    if task.lease is None:
        return False
    try:
        lease = decode_lease(task.lease)
    except UNREADABLE:
        return False
    return lease.worker in workers and (not sequence or lease.sequence == sequence[0])


class PendingEntry(Struct, frozen=True):
    """A member of the pending index."""

    share: str
    rank: int
    id: str
    ready_at: Instant
    partition: str | None


def pending_entry(member: bytes) -> PendingEntry:
    text = member.decode()
    end = text.index("\0", 1)
    (share,) = codec.decode("s", text[1 : end + 1].encode())
    at = end + 1
    rank, ready_at = (int(text[each : each + 14], 16) - codec.RANKS for each in (at, at + 50))
    return PendingEntry(share, rank, text[at + 14 : at + 50], ready_at, text[at + 64 :] or None)


def outline(task: StoredTask) -> tuple[Any, ...]:
    """Id, track, state and worker of a task."""
    row = columns_of(task)[0]
    return row.id, row.track, row.state, row.worker


def purge_row(keys: Keys, task: StoredTask) -> tuple[Any, ...]:
    """What is known of a task that can't be read, as far as it is."""
    track: object = None
    state: object = task.place if task.place is not Place.TASKS else None
    share = ""
    with suppress(*UNREADABLE):
        track = track_of(task)
        row, parts, *_ = columns_of(task)
        state = row.state
        facts = decode_facts(parts.columns.facts)
        share = facts.spec.tenant
    if task.running is not None:
        state = State.RUNNING
    partition = waiting_partition(keys, task)
    return (task.id, task.place, state, track, share, partition, task.day, task.expires_at)


# Writing.


def progress_of(record: TaskRecord) -> bytes:
    return b"null" if record.progress is None else encode((record.progress, record.progress_message))


def task_value(keys: Keys, record: TaskRecord, track: Track, gated: bool, version: int) -> bytes:
    """An unfinished task, or what an ended one was."""
    due_at = None if record.state is State.BLOCKED else record.due_at
    columns = Columns(
        record.state, record.rank, record.ready_at, due_at, record.rerank_at, record.lease, version, int(gated),
        record.created_at, record.sequence, record.started_at, record.worker, int(record.cancel_reason is not None),
        Raw(progress_of(record)), Raw(encode(facts_of(record))),
    )  # fmt: skip
    extras = extras_of(keys, record, track, gated)
    span = record.options.lease
    return b"%d %d %d\n%s%s\n%s" % (span, track.number, len(extras), extras, encode(columns), record.args)


def running_value(record: TaskRecord) -> bytes:
    progress = b"" if record.progress is None else progress_of(record)
    cancel = record.cancel_reason is not None
    if not cancel and not progress:
        return b"%d" % record.lease
    return b"%d\n%d%s" % (record.lease, cancel, progress)


def ended_value(keys: Keys, record: TaskRecord, track: Track, version: int) -> bytes:
    result = record.result
    assert record.finished_at is not None
    end = End(
        record.state, record.finished_at, record.lease, record.started_at, record.worker, record.sequence,
        Raw(progress_of(record)), None if result is None else len(result),
    )  # fmt: skip
    return b"%s\n%s%s" % (encode(end), result or b"", task_value(keys, record, track, False, version))


# The ordered sets that a task is in.


def entries(keys: Keys, record: TaskRecord, track: Track, gated: bool, state: State | None = None) -> list[Entry]:
    """Every member that stands for a task in ordered sets. `state`: as if it were in that one."""
    state = state or record.state
    place, task_id, spec = place_of(state), record.id, record.spec
    found: list[Entry] = []
    if place is Place.FINISHED:
        found.append((keys.finished_ids(day_of(record.finished_at or 0)), task_id.encode()))
        if state is State.CANCELLED:
            found.append((keys("cancelled"), task_id.encode()))
    else:
        found.append((keys(f"{place}_ids"), task_id.encode()))
    if place is Place.DEAD:
        found.append((keys("dead_days"), codec.encode("is", (day_of(record.finished_at or 0), task_id))))
    elif place is Place.TASKS:
        found += waiting_entries(keys, record, track, gated, state)
    if spec.workflow is not None:
        asked = "asked" if record.cancel_reason is not None else ""
        detail = asked if place is Place.TASKS else record.reason or ""
        found.append((keys("members"), codec.encode(MEMBERS, (spec.workflow, place, task_id, state, detail))))
    return found


def waiting_entries(keys: Keys, record: TaskRecord, track: Track, gated: bool, state: State) -> list[Entry]:
    found: list[Entry] = []
    task_id, spec, partition = record.id, record.spec, partition_of(record)
    ready_at = record.ready_at or 0
    if state is State.PENDING:
        found.append(
            (keys.pending(track.number), pending_member(gated, record.share, record.rank, task_id, ready_at, partition))
        )
    elif state is not State.RUNNING:
        found.append((keys.waiting(track.number, state), task_id.encode()))
        if record.due_at is not None and state is not State.BLOCKED:
            found.append((keys("due"), codec.encode("is", (record.due_at, task_id))))
    if record.rerank_at is not None and state is not State.RUNNING:
        found.append((keys("reranks"), codec.encode("is", (record.rerank_at, task_id))))
    if spec.expires_at is not None and state is not State.RUNNING:
        found.append((keys("expiries"), codec.encode("is", (spec.expires_at, task_id))))
    if partition is not None:
        row = (partition, state, track.number, record.share, record.rank, task_id, ready_at)
        found.append((keys("partitions"), codec.encode(PARTITIONS, row)))
    return found


def pending_member(gated: bool, share: str, rank: int, task_id: str, ready_at: Instant, partition: str | None) -> bytes:
    """A gate, a share, then what has a fixed width, and the partition."""
    gate = "1" if gated else "0"
    text = f"{gate}{codec.text_of(share)}{codec.rank_text(rank)}{task_id}{codec.rank_text(ready_at)}"
    return f"{text}{partition or ''}".encode()


def partition_of(record: TaskRecord) -> str | None:
    partition = record.spec.partition
    return None if partition is None else Partition(record.queue, partition).key


def extras_of(keys: Keys, record: TaskRecord, track: Track, gated: bool) -> bytes:
    """What scripts change besides the places of every task: (key, member) that go at a claim, that come at a claim and
    go at a completion, and that come at a completion. Nothing for nearly all tasks, and for those that are neither
    pending nor running: they are written again before they can be claimed.
    """
    if record.state not in (State.PENDING, State.RUNNING):
        return b""
    usual = {keys.pending(track.number), keys("tasks_ids")}
    waits = [each for each in entries(keys, record, track, gated, State.PENDING) if each[0] not in usual]
    runs = [each for each in entries(keys, record, track, gated, State.RUNNING) if each[0] not in usual]
    if not waits and not runs:
        return b""
    workflow = record.spec.workflow
    ends: Sequence[Entry] = ()
    if workflow is not None:
        member = codec.encode(MEMBERS, (workflow, Place.FINISHED, record.id, State.COMPLETED, ""))
        ends = [(keys("members"), member)]
    return msgspec.msgpack.encode([[(key, member.decode()) for key, member in each] for each in (waits, runs, ends)])
