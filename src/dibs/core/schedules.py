"""Recurring tasks: what a schedule is, what it fires after a time without firing, and the task of each fire.

A fire has a *nominal* time, and everything about its task follows from that time and the schedule's name: the id, so
that a fire which is repeated after a lost reply is the same task, and the jitter.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from zoneinfo import ZoneInfoNotFoundError

from msgspec import Struct, structs

from dibs.core.ids import uuid7
from dibs.core.recurrence import (
    CatchUp,
    Overlap,
    Recurrence,
    check_recurrence,
    count_fires,
    describe,
    first_fire,
    newest_fires,
    next_fire,
    upcoming,
)
from dibs.core.task import NewTask
from dibs.core.times import EPOCH, MINUTE, MS, Duration, Instant, when
from dibs.errors import InvalidOption

__all__ = [
    "GRACE",
    "UNPLANNABLE",
    "CatchUp",
    "Overlap",
    "Plan",
    "Recurrence",
    "ScheduleRecord",
    "ScheduleState",
    "check_recurrence",
    "describe",
    "fire_id",
    "first_fire",
    "jitter_of",
    "next_fire",
    "plan",
    "task_of",
    "upcoming",
]

GRACE: Duration = MINUTE
"""With `CatchUp.SKIP`, the newest fire is not missed yet if it is less late than this."""


UNPLANNABLE = (ZoneInfoNotFoundError, InvalidOption)
"""What `plan` raises about a schedule that this machine can't work out: its zone is unknown here, or it has come to an
end. Others must fire all the same."""


class ScheduleState(StrEnum):
    """Whether a schedule fires."""

    ACTIVE = "active"
    PAUSED = "paused"  # what it misses is not caught up
    DELETED = "deleted"  # it is gone; the tasks that it has enqueued stay


class ScheduleRecord(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A schedule as it is stored. `task` is the template of its tasks; its id is empty.

    The template's `deadline` and `expires_at` count from the moment at which each task may start.
    """

    name: str
    recurrence: Recurrence
    task: NewTask
    next_fire_at: Instant
    paused: bool = False
    declared: bool = False
    """It is written in code, and workers say so when they start."""
    declared_at: Instant | None = None
    """When a worker last said so."""
    created_at: Instant = 0
    last_fire_at: Instant | None = None
    last_task: str | None = None
    fired: int = 0
    skipped: int = 0


class Plan(Struct, frozen=True):
    """What a schedule does now: the nominal times that get a task, in order, and how many get none."""

    fires: tuple[Instant, ...]
    next_fire_at: Instant
    skipped: int


def plan(record: ScheduleRecord, now: Instant) -> Plan:
    """Decide about all fires that are due. Overlap is not looked at here: it depends on the last task.

    `next_fire_at` is a fire even if its calendar no longer says so (zone rules change); those after it are computed.
    """
    due = record.next_fire_at
    if record.paused or due > now:
        return Plan((), due, 0)
    recurrence = record.recurrence
    limit = recurrence.catch_up_limit if recurrence.catch_up is CatchUp.ALL else 1
    total = 1 + count_fires(recurrence, due, now)
    fires = newest_fires(recurrence, due, now, limit)
    if len(fires) < limit:
        fires.insert(0, due)
    newest = fires[-1]
    if recurrence.catch_up is CatchUp.SKIP and now - newest >= GRACE:
        fires = []
    return Plan(tuple(fires), next_fire(recurrence, newest), total - len(fires))


def task_of(record: ScheduleRecord, fire: Instant, task_id: str) -> NewTask:
    """The task of one fire. It knows its schedule and its nominal time by its headers."""
    task = record.task
    at = fire + jitter_of(record.recurrence, record.name, fire)
    spec = structs.replace(
        task.spec,
        deadline=None if task.spec.deadline is None else at + task.spec.deadline,
        expires_at=None if task.spec.expires_at is None else at + task.spec.expires_at,
        headers={**task.spec.headers, "schedule": record.name, "fire-time": (when(fire) or EPOCH).isoformat()},
    )
    return structs.replace(task, id=task_id, at=at, spec=spec)


def fire_id(name: str, fire: Instant) -> str:
    """The id of the task of a fire: always the same one, so that a fire can't have two tasks."""
    digest = digest_of(name, fire)
    return uuid7(fire // MS, digest, digest >> 12)


def jitter_of(recurrence: Recurrence, name: str, fire: Instant) -> Duration:
    """How much later than its nominal time the task of a fire starts: always the same, from 0 to `jitter`."""
    return (digest_of(name, fire) >> 128) % (recurrence.jitter + 1)


def digest_of(name: str, fire: Instant) -> int:
    return int.from_bytes(sha256(f"{name}\n{fire}".encode()).digest(), "big")
