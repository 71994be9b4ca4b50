"""Recurring tasks: what a schedule is, which missed fires it catches up, and the task of each fire.

A fire has a *nominal* time. The id and the jitter of its task follow from that time and the schedule's name, so a fire
that is repeated after a lost reply is the same task.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from zoneinfo import ZoneInfoNotFoundError

from msgspec import Struct, structs

from dibs.core.ids import uuid7
from dibs.core.recurrence import CatchUp, Recurrence, count_fires, newest_fires, next_fire
from dibs.core.task import NewTask
from dibs.core.times import EPOCH, MINUTE, MS, Duration, Instant, when
from dibs.errors import InvalidOption

__all__ = [
    "GRACE",
    "UNPLANNABLE",
    "Plan",
    "ScheduleRecord",
    "ScheduleState",
    "fire_id",
    "jitter_of",
    "plan",
    "task_of",
]

GRACE: Duration = MINUTE
"""With `CatchUp.SKIP`, the newest fire does not count as missed until it is this late."""


UNPLANNABLE = (ZoneInfoNotFoundError, InvalidOption)
"""What `plan` raises if this machine can't compute a schedule: its zone is unknown here, or it has no more fires. Other
schedules must still fire."""


class ScheduleState(StrEnum):
    """Whether a schedule fires."""

    ACTIVE = "active"
    PAUSED = "paused"  # what it misses is not caught up
    DELETED = "deleted"  # the tasks that it has enqueued stay


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
    """It is written in code; workers declare it when they start."""
    declared_at: Instant | None = None
    """When a worker last declared it."""
    created_at: Instant = 0
    last_fire_at: Instant | None = None
    last_task: str | None = None
    fired: int = 0
    skipped: int = 0


class Plan(Struct, frozen=True):
    """What a schedule does now: the nominal times that get a task, in order, and how many are skipped."""

    fires: tuple[Instant, ...]
    next_fire_at: Instant
    skipped: int


def plan(record: ScheduleRecord, now: Instant) -> Plan:
    """Decide about all fires that are due. Overlap is not considered here: it depends on the last task.

    `next_fire_at` counts as a fire even if the calendar no longer has it (zone rules change); later ones are computed.
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
    """The task of one fire. Its headers name its schedule and its nominal time."""
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
    """The id of the task of a fire: always the same, so that a fire can't have two tasks."""
    digest = digest_of(name, fire)
    return uuid7(fire // MS, digest, digest >> 12)


def jitter_of(recurrence: Recurrence, name: str, fire: Instant) -> Duration:
    """How much later than its nominal time the task of a fire starts: always the same, from 0 to `jitter`."""
    return (digest_of(name, fire) >> 128) % (recurrence.jitter + 1)


def digest_of(name: str, fire: Instant) -> int:
    return int.from_bytes(sha256(f"{name}\n{fire}".encode()).digest(), "big")
