"""What the tests about schedules share."""

from __future__ import annotations

from dibs.core.recurrence import Recurrence
from dibs.core.schedules import ScheduleRecord, ScheduleState
from dibs.core.task import NewTask
from dibs.core.times import HOUR
from dibs.engines.values import Changed
from dibs.testing.conformance.harness import QUEUE, Harness

__all__ = ["HOURLY", "NIGHTLY", "TEMPLATE", "acts", "delete", "pause", "put", "schedule"]


HOURLY = Recurrence(every=HOUR)

NIGHTLY = Recurrence(cron="30 2 * * *", tz="Europe/Zurich")

TEMPLATE = NewTask(id="", queue=QUEUE, name="report")


async def put(
    harness: Harness,
    name: str = "s",
    recurrence: Recurrence = HOURLY,
    task: NewTask = TEMPLATE,
    *,
    declared: bool = False,
) -> Changed:
    return await harness.engine.set_schedule(name, recurrence, task, declared=declared, actor="ada", now=harness.now)


async def schedule(harness: Harness, name: str = "s") -> ScheduleRecord:
    """A schedule that must be there."""
    return next(record for record in await harness.engine.schedules() if record.name == name)


async def pause(harness: Harness, paused: bool = True, name: str = "s") -> Changed:
    return await harness.engine.set_schedule_state(
        name, ScheduleState.PAUSED if paused else ScheduleState.ACTIVE, actor="ada", now=harness.now
    )


async def delete(harness: Harness, name: str = "s") -> Changed:
    return await harness.engine.set_schedule_state(name, ScheduleState.DELETED, actor="ada", now=harness.now)


async def acts(harness: Harness) -> list[tuple[str, str, str]]:
    """The audit, oldest first."""
    return [(entry.actor, entry.act, entry.target) for entry in reversed(await harness.engine.audit())]
