"""Schedules: how each changes when it is set, paused, resumed or fired."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from dibs.core.recurrence import Recurrence, first_fire
from dibs.core.schedules import UNPLANNABLE, ScheduleRecord, fire_id, plan, task_of
from dibs.core.task import NewTask
from dibs.core.times import Instant
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome
from dibs.errors import Unreadable

__all__ = [
    "SCHEDULER",
    "UNFIRABLE",
    "Firing",
    "firing",
    "moved_on",
    "schedule_from",
    "schedule_paused",
    "schedule_set",
]

SCHEDULER = "schedule"
"""The client name of schedules; no enqueue limit applies to it."""


UNFIRABLE = (*UNPLANNABLE, ArithmeticError, Unreadable)
"""Errors about one schedule or its queue, raised before anything is written: other schedules must still fire."""

decode_record = msgspec.json.Decoder(ScheduleRecord).decode


def schedule_from(stored: object) -> ScheduleRecord:
    """Decode a stored schedule."""
    if not isinstance(stored, str | bytes):
        raise TypeError("its record is not JSON")
    return decode_record(stored)


def schedule_set(
    old: ScheduleRecord | None, name: str, recurrence: Recurrence, task: NewTask, declared: bool, now: Instant
) -> tuple[ScheduleRecord, bool]:
    """The new schedule, and whether it differs in what users see."""
    if old is None:
        next_fire_at = first_fire(recurrence, now)
        new = ScheduleRecord(name=name, recurrence=recurrence, task=task, next_fire_at=next_fire_at, created_at=now)
    else:
        next_fire_at = old.next_fire_at if old.recurrence == recurrence else first_fire(recurrence, now)
        new = structs.replace(old, recurrence=recurrence, task=task, next_fire_at=next_fire_at)
    if declared:
        new = structs.replace(new, declared=True, declared_at=now)
    return new, old is None or (old.recurrence, old.task) != (recurrence, task)


def schedule_paused(old: ScheduleRecord, paused: bool, now: Instant) -> ScheduleRecord:
    """A schedule paused or resumed. Fires missed during the pause are not made up."""
    next_fire_at = old.next_fire_at if paused else first_fire(old.recurrence, now)
    return structs.replace(old, paused=paused, next_fire_at=next_fire_at)


class Firing(Struct, frozen=True):
    """The due tasks of a schedule, and the schedule after their enqueue, except `last_task`."""

    tasks: list[NewTask]
    skipped: int
    after: ScheduleRecord


def firing(record: ScheduleRecord, overlaps: bool, now: Instant) -> Firing:
    """`overlaps`: the last task is unfinished, and the schedule allows only one at a time."""
    plans = plan(record, now)
    fires = () if overlaps else plans.fires
    tasks = [structs.replace(task_of(record, at, fire_id(record.name, at)), client=SCHEDULER) for at in fires]
    skipped = plans.skipped + (len(plans.fires) if overlaps else 0)
    after = structs.replace(
        record,
        next_fire_at=plans.next_fire_at,
        last_fire_at=fires[-1] if fires else record.last_fire_at,
        fired=record.fired + len(fires),
        skipped=record.skipped + skipped,
    )
    return Firing(tasks, skipped, after)


def moved_on(fired: Firing, answers: Sequence[EnqueueAnswer]) -> ScheduleRecord | None:
    """The schedule after its tasks were answered; None if its queue rejected them: it fires when there is space."""
    if any(answer.outcome in (EnqueueOutcome.FULL, EnqueueOutcome.DRAINING) for answer in answers):
        return None
    return structs.replace(fired.after, last_task=answers[-1].id) if answers else fired.after
