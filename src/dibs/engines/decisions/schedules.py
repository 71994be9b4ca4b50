"""Schedules: what becomes of one when it is set, paused or due."""

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
"""The client by which schedules enqueue; no limit on enqueueing holds for it."""


UNFIRABLE = (*UNPLANNABLE, ArithmeticError, Unreadable)
"""What may come up about one schedule, or its queue, before anything is written: others must fire all the same."""

decode_record = msgspec.json.Decoder(ScheduleRecord).decode


def schedule_from(stored: object) -> ScheduleRecord:
    """A schedule as it is stored."""
    if not isinstance(stored, str | bytes):
        raise TypeError("its record is no JSON")
    return decode_record(stored)


def schedule_set(
    old: ScheduleRecord | None, name: str, recurrence: Recurrence, task: NewTask, declared: bool, now: Instant
) -> tuple[ScheduleRecord, bool]:
    """A schedule as it is to be, and whether that is new to whoever looks at it."""
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
    """A schedule paused or resumed. What it has missed meanwhile is not made up for."""
    next_fire_at = old.next_fire_at if paused else first_fire(old.recurrence, now)
    return structs.replace(old, paused=paused, next_fire_at=next_fire_at)


class Firing(Struct, frozen=True):
    """The tasks that a schedule has due, and the schedule once they are enqueued, but for `last_task`."""

    tasks: list[NewTask]
    skipped: int
    after: ScheduleRecord


def firing(record: ScheduleRecord, overlaps: bool, now: Instant) -> Firing:
    """`overlaps`: the last task is unfinished, and the schedule wants no two at a time."""
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
    """The schedule after its tasks were answered; None if its queue did not take them: it fires when there is room."""
    if any(answer.outcome in (EnqueueOutcome.FULL, EnqueueOutcome.DRAINING) for answer in answers):
        return None
    return structs.replace(fired.after, last_task=answers[-1].id) if answers else fired.after
